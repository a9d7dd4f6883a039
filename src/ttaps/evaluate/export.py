"""Stored results as a tidy file for other programs, CSV or Parquet: a line per corruption, or per image, of every experiment."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ttaps.errors import MissingExtra, UsageError
from ttaps.evaluate.frame import IDENTITY, load_classes, load_rows
from ttaps.evaluate.statistics import accuracy_table
from ttaps.files import atomic_write


def export(folder: Path, path: Path, images: bool = False) -> None:
    """Write accuracy before and after adaptation with 95 % intervals of every experiment and corruption, or every image."""
    if path.suffix not in (".csv", ".parquet"):
        raise UsageError(f"{path}: the file must end in .csv or .parquet.")
    rows = load_rows([folder])
    found = name_classes(rows, load_classes([folder])) if images else accuracies(rows)
    with atomic_write(path) as partial:
        if path.suffix == ".csv":
            found.to_csv(partial, index=False, lineterminator="\n")
        else:
            _write_parquet(found, partial)


def accuracies(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the accuracy table of every experiment, one below the other."""
    tables = [
        accuracy_table(part).reset_index().assign(**dict(zip(IDENTITY, identity, strict=True)))
        for identity, part in rows.groupby(IDENTITY, sort=False)
    ]
    found = pd.concat(tables, ignore_index=True)
    return found[[*IDENTITY, *(name for name in found if name not in IDENTITY)]]


def name_classes(rows: pd.DataFrame, classes: dict[str, tuple[str, ...]]) -> pd.DataFrame:
    """Add the names of the true and of the predicted classes; "" where there is none."""
    names = {(model, number): name for model, known in classes.items() for number, name in enumerate(known)}
    for column in ("label", "before", "after"):
        keys = zip(rows["fingerprint"], rows[column], strict=True)
        rows[f"{column}_name"] = [names.get(key, "") for key in keys]
    return rows


def _write_parquet(rows: pd.DataFrame, path: Path) -> None:
    try:
        rows.to_parquet(path, index=False)
    except ImportError as error:
        raise MissingExtra("Writing Parquet", "figures") from error
