"""What a table's numbers were measured with, in words: a number without its protocol cannot be reproduced."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ttaps.evaluate.statistics import AVERAGE
from ttaps.report.columns import TableColumn
from ttaps.report.load import CITATIONS, PUBLISHED_SETS, RUN
from ttaps.report.tables import Table

READING = (
    "± is the standard deviation over seeds, of training or of views; a column without it has one seed. "
    "Intervals are 95 %: over images, Wilson's for an accuracy, paired for a difference. p is the exact McNemar test; for an average "
    "or several seeds, where an image counts once, the exact sign test over images. No p is corrected for the number of comparisons."
)


def protocol(table: Table) -> list[str]:
    """Return what every column was measured with, and how to read the numbers.

    A table by severity has only what is its own: the tables of each severity follow it.
    """
    measured = f"{table.metric.capitalize()} in % on {table.data}"
    count = len({name for column in table.columns for name in column.at(table.severity)["corruption"].unique()})
    corruptions = f"{count} corruption{'s' * (count != 1)}"
    if table.severity is None:
        later = "What each column was measured with is below the tables of each severity."
        over = f"averaged over {corruptions} at each severity, after the last step"
        return [f"{measured} (labels {table.digest}), {over}. {later}", *_warnings(table)]
    corrupted = f" at severity {table.severity}, {corruptions}" if table.severity else ""
    lines = [f"{measured}{corrupted} (labels {table.digest}), after the last step."]
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
    models = rows.drop_duplicates("fingerprint")
    names = [f"{model.model} ({model.fingerprint})" for model in models.itertuples()]
    seeds = models.loc[models["training_seed"] >= 0, "training_seed"]
    training = [
        f"objective {column.objective}" if column.objective else "",
        f"K={column.num_prototypes}" if column.num_prototypes else "",
        f"seeds of training {_listed(seeds)}" if len(seeds) else "",
    ]
    parts = [f"model{'s' * (len(names) > 1)} {', '.join([*names, *filter(None, training)])}", f"method {column.spec}"]
    if column.adapts:
        kept = f"not everything is reset after an image ({column.protocol}): the order of images counts"
        parts.append("weights and optimizer are reset after every image" if column.protocol == "episodic" else kept)
        parts.append(f"{rows.groupby(RUN)['seconds'].mean().mean():.2g} s per image")
        parts.append(f"seeds of views {_listed(rows['seed'])}")
    else:
        parts.append("no adaptation")
    counts = table.of(column).drop(index=AVERAGE, errors="ignore")
    low, high = counts["n_min"].min(), counts["n_max"].max()
    each = " at each severity" if table.severity is None else " under each corruption" if len(table.rows) > 1 else ""
    return "; ".join([*parts, f"n = {low if low == high else f'{low} to {high}'}{each}"])


def _warnings(table: Table) -> list[str]:
    """Say where numbers of one table are not of the same images."""
    found = []
    counts = table.numbers.drop(index=AVERAGE, level="row", errors="ignore")[["n_min", "n_max"]]
    if counts.stack().nunique() > 1:
        also = "differences between columns use only the images that both have."
        found.append(f"Not finished: numbers of images differ; {also}")
    what = "severities" if table.severity is None else "corruptions"
    partial = [column.label for column in table.columns if table.partial(column)]
    if partial:
        found.append(f"* {', '.join(partial)}: some {what} are missing, and the average is over those that are there.")
    return found


def _listed(numbers: Iterable[Any]) -> str:
    return ", ".join(map(str, sorted(set(numbers))))
