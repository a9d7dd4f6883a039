"""The paper's Tables III and IV from rows: corruptions (or severities) as rows, methods as columns, and how certain each number is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Literal

import pandas as pd

from ttaps.evaluate.statistics import AVERAGE, CONDITION, ORDER, STATISTICS, accuracy_table, compare_table
from ttaps.report.columns import Styles, TableColumn, make_columns
from ttaps.report.load import RUN, Results, load_published

Metric = Literal["accuracy", "error"]
SEVERITY = "severity "


@dataclass(frozen=True, eq=False)
class Table:
    """All numbers on one data set, at one severity by corruption or at all severities by severity."""

    data: str
    digest: str
    severity: int | None
    """None for all; 0 for images that are not corrupted."""
    metric: Metric
    rows: tuple[str, ...]
    """Corruptions in the paper's order, or severities; the average is last where there are several."""
    columns: tuple[TableColumn, ...]
    numbers: pd.DataFrame
    """By (column, row): ``value`` in % with its ``std`` over seeds, ``best``, the fewest and most images of a seed (``n_min``,
    ``n_max``), and the statistics of :mod:`ttaps.evaluate.statistics`. What was not evaluated is missing."""
    published: pd.DataFrame
    """By (column, row): ``value``, ``std`` and ``best``; columns have the paper's names."""

    @cached_property
    def comparisons(self) -> pd.DataFrame:
        """By (first, second, row): the statistics of two columns on the images that both have; of many columns they take seconds."""
        by = "severity" if self.severity is None else "corruption"
        names, found = ["first", "second", "row"], {}
        for first, second in combinations(self.columns, 2):
            lines = _named_rows(compare_table(first.at(self.severity), second.at(self.severity), [by]))
            if len(lines):
                found[first.label, second.label] = lines[lines.index.isin(self.rows)]
        if not found:
            return pd.DataFrame(columns=STATISTICS, index=pd.MultiIndex.from_arrays([[], [], []], names=names))
        return in_metric(pd.concat(found, names=names), self.metric)

    @property
    def adapting(self) -> list[TableColumn]:
        """The columns that have a before and an after."""
        return [column for column in self.columns if column.adapts]

    def of(self, column: TableColumn) -> pd.DataFrame:
        """Return a column's numbers by row."""
        return self.numbers.loc[[column.label]].droplevel("column")

    def partial(self, column: TableColumn) -> bool:
        """Say whether a column lacks rows, so that its average is over those that are there."""
        return len(self.of(column)) < len(self.rows)

    @property
    def images(self) -> str:
        """Name the images of the table."""
        if self.severity is None:
            return f"{self.data}, all severities"
        return f"{self.data}, severity {self.severity}" if self.severity else self.data


def make_tables(results: Results, metric: Metric = "accuracy", published: bool = True) -> list[Table]:
    """Return a table for each data set and severity; where there are several severities, one by severity comes first."""
    found: list[Table] = []
    styles: Styles = {}
    for _, rows in results.rows.groupby(["data", "digest"], sort=False):
        columns = make_columns(rows, results.models, styles)
        severities = sorted(map(int, rows["severity"].unique()))
        wanted = [None, *severities] if len(severities) > 1 else severities
        found += [_table(columns, severity, metric, published) for severity in wanted]
    return found


def highest_severity(tables: Sequence[Table]) -> list[Table]:
    """Return each data set's table of the highest severity, which is the paper's: the one to look at first, and in detail."""
    return list({(table.data, table.digest): table for table in tables}.values())


def in_metric(numbers: pd.DataFrame, metric: Metric) -> pd.DataFrame:
    """Return statistics of accuracies as they are, or as errors; done twice, they are accuracies again."""
    if metric == "accuracy":
        return numbers
    values = [name for name in ("value", "before", "after") if name in numbers]
    flipped = {name: 100 - numbers[name] for name in values} | {"change": -numbers["change"]}
    for name, whole in (("before", 100), ("after", 100), ("change", 0)):
        flipped |= {f"{name}_low": whole - numbers[f"{name}_high"], f"{name}_high": whole - numbers[f"{name}_low"]}
    return numbers.assign(**flipped)


def _table(columns: Sequence[TableColumn], severity: int | None, metric: Metric, published: bool) -> Table:
    parts = {column.label: column.at(severity) for column in columns}
    parts = {label: part for label, part in parts.items() if len(part)}
    by = "severity" if severity is None else "corruption"
    numbers = pd.concat({label: _numbers(part, by) for label, part in parts.items()}, names=["column", "row"])
    rows = tuple(sorted(numbers.index.unique("row"), key=lambda row: (row == AVERAGE, ORDER.get(row, -1), row)))
    if len(rows) == 2:  # the average of one row is that row
        rows = rows[:1]
        numbers = numbers.drop(index=AVERAGE, level="row")
    numbers = in_metric(numbers, metric)
    data, digest = columns[0].rows[["data", "digest"]].iloc[0]
    printed = _published(load_published(data, severity if published else None), rows, metric)
    return Table(
        *(data, digest, severity, metric, rows),
        columns=tuple(column for column in columns if column.label in parts),
        numbers=numbers.assign(best=_best(numbers, rows, metric)),
        published=printed.assign(best=_best(printed, rows, metric)),
    )


def _named_rows(numbers: pd.DataFrame) -> pd.DataFrame:
    """Name rows by corruption, or ``severity 3``."""
    return numbers.set_axis([name if isinstance(name, str) else f"{SEVERITY}{name}" for name in numbers.index])


def _numbers(rows: pd.DataFrame, by: str) -> pd.DataFrame:
    """Return a column's statistics by row; its deviation over seeds weighs every corruption and severity of a seed alike."""
    each = pd.concat([rows.assign(row=rows[by]), rows.assign(row=AVERAGE)])
    shares = each.groupby(["row", *RUN, *CONDITION])["correct_after"].mean()
    std = 100 * shares.groupby(["row", *RUN]).mean().groupby("row").std()
    images = each.groupby(["row", *RUN]).size().groupby("row")
    numbers = accuracy_table(rows, [by])
    numbers = numbers.assign(value=numbers["after"], std=std, n_min=images.min(), n_max=images.max())
    return _named_rows(numbers)


def _published(numbers: pd.DataFrame, rows: Sequence[str], metric: Metric) -> pd.DataFrame:
    """Return published numbers of some rows; the average of only some corruptions is computed anew, and its deviation is not known."""
    whole = numbers.groupby("column").size()
    numbers = numbers[numbers.index.isin(rows, level="row")].copy()
    for name in numbers.index.unique("column"):
        own = numbers.loc[name].drop(index=AVERAGE, errors="ignore")
        if AVERAGE in rows and len(own) < whole[name] - 1:
            numbers.loc[(name, AVERAGE), ["value", "std"]] = own["value"].mean(), float("nan")
    return numbers if metric == "accuracy" else numbers.assign(value=100 - numbers["value"])


def _best(numbers: pd.DataFrame, rows: Sequence[str], metric: Metric) -> pd.Series[bool]:
    """Mark the best number of every row, and those that print the same, among columns that have the same number of images.

    A column that stands alone is not the best of anything, and the average of only some rows is not the best average.
    """
    partial = numbers.groupby("column")["value"].transform("size") < len(rows)
    counting = numbers[~(partial & (numbers.index.get_level_values("row") == AVERAGE))]
    if "n_max" in counting:
        images = counting["n_min"] * (counting["n_max"].max() + 1) + counting["n_max"]
        counting = counting[images == images.groupby("row").transform("max")]
    printed = counting["value"].map("{:.1f}".format).astype(float)
    by_row = printed.groupby("row")
    best = printed == by_row.transform("max" if metric == "accuracy" else "min")
    return (best & (by_row.transform("size") > 1)).reindex(numbers.index, fill_value=False)
