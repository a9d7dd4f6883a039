"""Stored results as a tidy file for other programs, CSV or Parquet: a line per experiment and corruption, or per image."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ttaps.errors import MissingExtra, UsageError
from ttaps.evaluate.frame import IDENTITY, ITEM, load_classes, load_rows, load_traces
from ttaps.evaluate.statistics import accuracy_table
from ttaps.files import atomic_write


def export(folder: Path, path: Path, images: bool = False, steps: bool = False) -> None:
    """Write accuracy tables, or with ``images`` every image; with ``steps`` after every step and not only the last."""
    if path.suffix not in (".csv", ".parquet"):
        raise UsageError(f"{path}: the file must end in .csv or .parquet.")
    rows = load_traces([folder]) if steps else load_rows([folder])
    found = _named(rows, load_classes([folder])) if images else _accuracies(rows, steps)
    with atomic_write(path) as partial:
        if path.suffix == ".csv":
            found.to_csv(partial, index=False, lineterminator="\n")
        else:
            _write_parquet(found, partial)


def _accuracies(rows: pd.DataFrame, steps: bool) -> pd.DataFrame:
    """Return the accuracy table of every experiment, one below the other; with ``steps`` one for each."""
    key = [*IDENTITY, *(["step"] if steps else [])]
    if steps:
        first = rows.loc[rows["step"] == 0, [*IDENTITY, *ITEM, "correct"]].rename(columns={"correct": "correct_before"})
        rows = rows.rename(columns={"correct": "correct_after"}).merge(first)
    parts = {identity: accuracy_table(part).reset_index() for identity, part in rows.groupby(key, sort=False)}
    return pd.concat(parts, names=key).reset_index(key).reset_index(drop=True)


def _named(rows: pd.DataFrame, classes: dict[str, tuple[str, ...]]) -> pd.DataFrame:
    """Add the names of the true and of the predicted classes; "" where there is none."""
    names = {(model, number): name for model, known in classes.items() for number, name in enumerate(known)}
    for column in [name for name in ("label", "before", "after", "prediction") if name in rows]:
        keys = zip(rows["fingerprint"], rows[column], strict=True)
        rows[f"{column}_name"] = [names.get(key, "") for key in keys]
    return rows


def _write_parquet(rows: pd.DataFrame, path: Path) -> None:
    try:
        rows.to_parquet(path, index=False)
    except ImportError as error:
        raise MissingExtra("Writing Parquet", "figures") from error
