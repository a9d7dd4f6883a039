"""What a table's numbers were measured with, in words: a number without its protocol cannot be reproduced."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from ttaps.evaluate.statistics import AVERAGE
from ttaps.report.columns import TableColumn
from ttaps.report.load import CITATIONS, PUBLISHED_SETS, RUN
from ttaps.report.tables import Table

EPISODIC = "episodic"
READING = (
    "± is the standard deviation over seeds, of training or of views; a column without it has one seed. "
    "Intervals are 95 %: over images, Wilson's for an accuracy, paired for a difference. p is the exact McNemar test; for an average "
    "or several seeds, where an image counts once, the exact sign test over images. No p is corrected for the number of comparisons."
)


def protocol(table: Table) -> list[str]:
    """Return what every column was measured with, and how to read the numbers.

    A table by severity has only what is its own: the tables of each severity follow it.
    """
    lines = [_measured(table)]
    if table.severity is None:
        return [*lines, *_warnings(table)]
    lines += [f"{column.label}: {column_protocol(column, table)}" for column in table.columns]
    lines += [*_warnings(table), READING]
    if len(table.published):
        name = PUBLISHED_SETS[table.data]
        other = "" if name == table.data else f" Those are all 10,000 images of {name}, not this sample."
        lines.append(f"{CITATIONS[name]}{other}")
    return lines


def column_protocol(column: TableColumn, table: Table) -> str:
    """Say which model, method, settings, seeds and images a column is of."""
    rows = column.at(table.severity)
    views = f"seeds of views {_listed(rows['seed'].unique())}" if column.adapts else ""
    return "; ".join(filter(None, (_model(column), _method(column, rows), views, _images(column, table))))


def _model(column: TableColumn) -> str:
    """Name a column's models with their fingerprints, and how they were trained where that is known."""
    names = ", ".join(f"{name} ({fingerprint})" for name, fingerprint in column.models)
    seeds = [seed for seed in column.rows["training_seed"].unique() if seed >= 0]
    facts = [
        f"objective {column.objective}" if column.objective else "",
        f"K={column.num_prototypes}" if column.num_prototypes else "",
        f"seeds of training {_listed(seeds)}" if seeds else "",
    ]
    return f"model{'s' if len(column.models) > 1 else ''} {', '.join([names, *filter(None, facts)])}"


def _method(column: TableColumn, rows: pd.DataFrame) -> str:
    """Say how a column adapts and what is reset between images."""
    if not column.adapts:
        return f"{column.spec}: no adaptation"
    kept = f"not everything is reset after an image ({column.protocol}): the order of images counts"
    reset = "everything is reset after every image (episodic)" if column.protocol == EPISODIC else kept
    seconds = rows.groupby(RUN)["seconds"].mean().mean()
    return f"method {column.spec}; {reset}; {seconds:.2g} s per image"


def _images(column: TableColumn, table: Table) -> str:
    """Say how many images a column has per corruption."""
    counts = table.numbers.loc[column.label].drop(index=AVERAGE, errors="ignore")
    low, high = counts["n_min"].min(), counts["n_max"].max()
    each = " at each severity" if table.severity is None else " under each corruption" if len(table.rows) > 1 else ""
    return f"n = {low if low == high else f'{low} to {high}'}{each}"


def _measured(table: Table) -> str:
    count = len(table.corruptions)
    words = f"{count} corruption{'s' * (count != 1)}"
    if table.severity is None:
        return (
            f"{table.metric.capitalize()} in % on {table.data} (labels {table.digest}), averaged over {words} at each "
            "severity, after the last step. What each column was measured with is below the tables of each severity."
        )
    corrupted = f" at severity {table.severity}, {words}" if table.severity else ""
    return f"{table.metric.capitalize()} in % on {table.data}{corrupted} (labels {table.digest}), after the last step."


def _warnings(table: Table) -> list[str]:
    """Say where numbers of one table are not of the same images."""
    found = []
    counts = table.numbers.drop(index=AVERAGE, level="row", errors="ignore")[["n_min", "n_max"]]
    if counts.stack().nunique() > 1:
        found.append(
            "Not finished: numbers of images differ; differences between columns use only the images that both have."
        )
    what = "severities" if table.severity is None else "corruptions"
    partial = [column.label for column in table.columns if table.partial(column.label)]
    if partial:
        found.append(f"* {', '.join(partial)}: some {what} are missing, and the average is over those that are there.")
    return found


def _listed(values: Iterable[object]) -> str:
    return ", ".join(map(str, sorted(map(int, values))))  # type: ignore[call-overload]
