"""The paper's Tables III and IV from rows: corruptions (or severities) by methods, with intervals, tests and the protocol in words."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Literal

import pandas as pd

from ttaps.evaluation.statistics import AVERAGE, CONDITION, ORDER, STATISTICS, accuracy_table, compare_table
from ttaps.report.columns import PUBLISHED_SETS, RUN, TEXTS, Results, TableColumn, load_published, make_columns
from ttaps.report.figures.style import SeriesStyle, series_style

Metric = Literal["accuracy", "error"]
SEVERITY = "severity "


@dataclass(frozen=True, eq=False)
class Table:
    """All numbers on one data set, at one severity by corruption or at all severities by severity."""

    data: str
    digest: str
    severity: int | None  # None for all; 0 for images that are not corrupted.
    metric: Metric
    rows: tuple[str, ...]
    """Corruptions in the paper's order, or severities; the average is last where there are several."""
    columns: tuple[TableColumn, ...]
    numbers: pd.DataFrame
    """By (column, row): ``value`` in % with its ``std`` over seeds, ``best``, the fewest and most images of a seed (``n_min``,
    ``n_max``), and the statistics of :mod:`ttaps.evaluation.statistics`. What was not evaluated is missing."""
    published: pd.DataFrame  # By (column, row): ``value``, ``std`` and ``best``; columns have the paper's names.

    @cached_property
    def comparisons(self) -> pd.DataFrame:
        """By (first, second, row): the statistics of two columns on their common images; takes seconds for many columns."""
        by = ["severity" if self.severity is None else "corruption"]
        names, found = ["first", "second", "row"], {}
        for first, second in combinations(self.columns, 2):
            lines = _named_rows(compare_table(first.at(self.severity), second.at(self.severity), by))
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

    @property
    def partial(self) -> list[str]:
        """The columns that lack rows, so that their average is over those that are there."""
        return [column.label for column in self.columns if len(self.of(column)) < len(self.rows)]

    @property
    def images(self) -> str:
        """Describe the images of the table."""
        which = "all severities" if self.severity is None else f"severity {self.severity}"
        return self.data if self.severity == 0 else f"{self.data}, {which}"


def make_tables(results: Results, metric: Metric = "accuracy", published: bool = True) -> list[Table]:
    """Return a table for each data set and severity; where there are several severities, one by severity comes first."""
    found: list[Table] = []
    styles: dict[tuple[str, str], SeriesStyle] = {}  # by method and label, which looks the same in every figure
    for _, rows in results.rows.groupby(["data", "digest"], sort=False):
        columns = make_columns(rows, results.models)
        for column in columns:
            method = (column.paper_name or column.method).lower()
            variant = sum(other == method for other, _ in styles)
            column.style = styles.setdefault((method, column.label), series_style(method, variant))
        severities = sorted(map(int, rows["severity"].unique()))
        wanted = [None, *severities] if len(severities) > 1 else severities
        found += [_table(columns, severity, metric, published) for severity in wanted]
    return found


def highest_severity(tables: Sequence[Table]) -> list[Table]:
    """Return each data set's table of the highest severity, which is the paper's: the one to look at first, and in detail."""
    return list({(table.data, table.digest): table for table in tables}.values())


def in_metric(numbers: pd.DataFrame, metric: Metric) -> pd.DataFrame:
    """Return statistics as accuracies, or as errors; applied twice, they are accuracies again."""
    if metric == "accuracy":
        return numbers
    values = [name for name in ("value", "before", "after") if name in numbers]
    flipped = {name: 100 - numbers[name] for name in values} | {"change": -numbers["change"]}
    for name, whole in (("before", 100), ("after", 100), ("change", 0)):
        flipped |= {f"{name}_low": whole - numbers[f"{name}_high"], f"{name}_high": whole - numbers[f"{name}_low"]}
    return numbers.assign(**flipped)


def _table(columns: Sequence[TableColumn], severity: int | None, metric: Metric, published: bool) -> Table:
    by = "severity" if severity is None else "corruption"
    parts = {column.label: column.at(severity) for column in columns}
    numbers = pd.concat({label: _numbers(own, by) for label, own in parts.items() if len(own)}, names=["column", "row"])
    rows = tuple(sorted(numbers.index.unique("row"), key=lambda row: (row == AVERAGE, ORDER.get(row, -1), row)))
    if len(rows) == 2:  # the average of one row is that row
        rows, numbers = rows[:1], numbers.drop(index=AVERAGE, level="row")
    data, digest = columns[0].rows[["data", "digest"]].iloc[0]
    printed = _published(load_published(data, severity if published else None), rows, metric)
    shown = tuple(column for column in columns if len(parts[column.label]))
    numbers, printed = (_mark_best(found, rows, metric) for found in (in_metric(numbers, metric), printed))
    return Table(data, digest, severity, metric, rows, shown, numbers, printed)


def _named_rows(numbers: pd.DataFrame) -> pd.DataFrame:
    return numbers.set_axis([name if isinstance(name, str) else f"{SEVERITY}{name}" for name in numbers.index])


def _numbers(rows: pd.DataFrame, by: str) -> pd.DataFrame:
    """Return a column's statistics by row; its deviation over seeds weighs every corruption and severity of a seed alike."""
    each = pd.concat([rows.assign(row=rows[by]), rows.assign(row=AVERAGE)])
    shares = each.groupby(["row", *RUN, *CONDITION])["correct_after"].mean()
    std = 100 * shares.groupby(["row", *RUN]).mean().groupby("row").std()
    images = each.groupby(["row", *RUN]).size().groupby("row")
    numbers = accuracy_table(rows, [by])
    return _named_rows(numbers.assign(value=numbers["after"], std=std, n_min=images.min(), n_max=images.max()))


def _published(numbers: pd.DataFrame, rows: Sequence[str], metric: Metric) -> pd.DataFrame:
    """Return published numbers of some rows; the average of only some corruptions is computed again, and its deviation is unknown."""
    whole = numbers.groupby("column").size()
    numbers = numbers[numbers.index.isin(rows, level="row")].copy()
    for name in numbers.index.unique("column"):
        own = numbers.loc[name].drop(index=AVERAGE, errors="ignore")
        if AVERAGE in rows and len(own) < whole[name] - 1:
            numbers.loc[(name, AVERAGE), ["value", "std"]] = own["value"].mean(), float("nan")
    return numbers if metric == "accuracy" else numbers.assign(value=100 - numbers["value"])


def _mark_best(numbers: pd.DataFrame, rows: Sequence[str], metric: Metric) -> pd.DataFrame:
    """Mark the best number of a row and what prints the same, of several with the same number of images; no average of only some rows."""
    partial = numbers.groupby("column")["value"].transform("size") < len(rows)
    counting = numbers[~(partial & (numbers.index.get_level_values("row") == AVERAGE))]
    if "n_max" in counting:
        images = counting["n_min"] * (counting["n_max"].max() + 1) + counting["n_max"]
        counting = counting[images == images.groupby("row").transform("max")]
    printed = counting["value"].map("{:.1f}".format).astype(float)
    by_row = printed.groupby("row")
    best = printed == by_row.transform("max" if metric == "accuracy" else "min")
    best &= by_row.transform("size") > 1
    return numbers.assign(best=best.reindex(numbers.index, fill_value=False))


def protocol(table: Table) -> list[str]:
    """Return how every column was measured (a table by severity leaves it to those that follow), and how to read the numbers."""
    whole = table.severity is None
    count = len({name for column in table.columns for name in column.at(table.severity)["corruption"].unique()})
    corruptions = f"{count} corruption{'s' * (count != 1)}"
    where = f" at severity {table.severity}, {corruptions}" if table.severity else ""
    over = f"averaged over {corruptions} at each severity, " if whole else ""
    later = " How each column was measured is below the tables of each severity." if whole else ""
    on = f"{table.metric.capitalize()} in % on {table.data}{where} (labels {table.digest})"
    lines = [f"{on}, {over}after the last step.{later}"]
    lines += [f"{column.label}: {column_protocol(column, table)}" for column in table.columns if not whole]
    if table.numbers.drop(index=AVERAGE, level="row", errors="ignore")[["n_min", "n_max"]].stack().nunique() > 1:
        both = "differences between columns use only their common images"
        lines.append(f"Not finished: numbers of images differ; {both}.")
    if table.partial:
        missing = f"some {'severities' if whole else 'corruptions'} are missing"
        lines.append(f"* {', '.join(table.partial)}: {missing}, and the average is over those available.")
    if not whole:
        lines.append(TEXTS["reading"])
    if len(table.published):
        name = PUBLISHED_SETS[table.data]
        other = "" if name == table.data else f" Those are all 10,000 images of {name}, not this sample."
        lines.append(f"{TEXTS['citations'][name]}{other}")
    return lines


def column_protocol(column: TableColumn, table: Table) -> str:
    """Describe a column: model, method, settings, seeds and images."""
    rows = column.at(table.severity)
    models = rows.drop_duplicates("fingerprint")
    names = [f"{model.model} ({model.fingerprint})" for model in models.itertuples()]
    seeds = sorted(set(models["training_seed"]) - {-1})
    training = [
        f"objective {column.objective}" if column.objective else "",
        f"K={column.num_prototypes}" if column.num_prototypes else "",
        f"seeds of training {', '.join(map(str, seeds))}" if seeds else "",
    ]
    parts = [f"model{'s' * (len(names) > 1)} {', '.join([*names, *filter(None, training)])}", f"method {column.spec}"]
    if column.adapts:
        kept = f"not everything is reset after each image ({column.protocol}): the order of images counts"
        parts.append("weights and optimizer are reset after every image" if column.protocol == "episodic" else kept)
        parts.append(f"{rows.groupby(RUN)['seconds'].mean().mean():.2g} s per image")
        parts.append(f"seeds of views {', '.join(map(str, sorted(set(rows['seed']))))}")
    else:
        parts.append("no adaptation")
    counts = table.of(column).drop(index=AVERAGE, errors="ignore")
    low, high = counts["n_min"].min(), counts["n_max"].max()
    each = " at each severity" if table.severity is None else " under each corruption" if len(table.rows) > 1 else ""
    return "; ".join([*parts, f"n = {low if low == high else f'{low} to {high}'}{each}"])
