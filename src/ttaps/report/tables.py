"""The paper's Tables III and IV from outcomes: corruptions as rows, methods as columns, and how sure each number is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal

import numpy as np

from ttaps.evaluate.statistics import mean_std
from ttaps.evaluate.summary import AVERAGE, ORDER, Accuracy, Difference, Line, measure
from ttaps.report.columns import Column, make_columns
from ttaps.report.outcomes import Run
from ttaps.report.pairs import before_after, select, versus
from ttaps.report.published import LABELS, Published, published_columns

Metric = Literal["accuracy", "error"]


@dataclass(frozen=True)
class Cell:
    """One number of a table in %; what is not known of published ones is None."""

    value: float
    std: float | None
    """Over seeds; one seed has none."""
    best: bool = False
    line: Line | None = None
    """Before, after and their difference, with intervals over images."""
    n: tuple[int, int] | None = None
    """Images, of the seed that has the fewest and the one that has the most."""


@dataclass(frozen=True, eq=False)
class Shown:
    """A column with its numbers by corruption; one that was not evaluated is missing."""

    label: str
    cells: dict[str, Cell]
    column: Column | None = None
    """None if it is published."""

    def complete(self, rows: Sequence[str]) -> bool:
        """Say whether all corruptions are there, so that the average means what it says."""
        return all(row in self.cells for row in rows)


@dataclass(frozen=True)
class Comparison:
    """Two columns on the images that both have."""

    first: str
    second: str
    lines: tuple[Line, ...]
    """Of each corruption that both have; the average is last."""


@dataclass(frozen=True, eq=False)
class Table:
    """All numbers on one data set at one severity."""

    data: str
    digest: str
    severity: int
    metric: Metric
    rows: tuple[str, ...]
    """Corruptions in the paper's order; the average is last where there are several."""
    ours: tuple[Shown, ...]
    published: tuple[Shown, ...]
    comparisons: tuple[Comparison, ...]

    @property
    def adapting(self) -> list[Shown]:
        """Our columns that take gradient steps, and so have a before and an after."""
        return [shown for shown in self.ours if shown.column and shown.column.steps]


def make_tables(runs: Sequence[Run], metric: Metric = "accuracy", published: bool = True) -> list[Table]:
    """Return a table for each data set and severity."""
    sets: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        sets.setdefault((run.experiment.data, run.experiment.digest), []).append(run)
    found: list[Table] = []
    colours: dict[str, str] = {}
    for (data, digest), group in sets.items():
        columns = make_columns(group, colours)
        severities = sorted({int(s) for run in group for s in np.unique(run.rows["severity"])})
        found += [_table(data, digest, severity, columns, metric, published) for severity in severities]
    return found


def _table(data: str, digest: str, severity: int, columns: Sequence[Column], metric: Metric, published: bool) -> Table:
    columns = [column for column in columns if any(len(select(run.rows, severity)) for run in column.runs)]
    corruptions = corruptions_of(columns, severity)
    rows = (*corruptions, AVERAGE) if len(corruptions) > 1 else corruptions
    ours = [Shown(column.label, _cells(column, severity, rows, metric), column) for column in columns]
    printed = published_columns(data, severity) if published else {}
    theirs = [Shown(LABELS[name], _published_cells(cells, rows, metric)) for name, cells in printed.items()]
    comparisons = [_compare(first, second, severity, metric) for first, second in combinations(columns, 2)]
    known = tuple(comparison for comparison in comparisons if comparison.lines)
    return Table(data, digest, severity, metric, rows, _bold(ours, rows, metric), _bold(theirs, rows, metric), known)


def corruptions_of(columns: Sequence[Column], severity: int) -> tuple[str, ...]:
    """Return the corruptions that any of some columns has, in the paper's order."""
    names = {
        str(name)
        for column in columns
        for run in column.runs
        for name in np.unique(select(run.rows, severity)["corruption"])
    }
    return tuple(sorted(names, key=lambda name: (ORDER.get(name, -1), name)))


def _cells(column: Column, severity: int, rows: Sequence[str], metric: Metric) -> dict[str, Cell]:
    cells: dict[str, Cell] = {}
    for row in rows:
        corruption = None if row == AVERAGE else row
        pairs = before_after(column, severity, corruption)
        if len(pairs):
            line = in_metric(measure(pairs, row, severity), metric)
            std = mean_std(_by_seed(column, severity, corruption))[1]
            counts = [len(select(run.rows, severity, corruption)) for run in column.runs]
            cells[row] = Cell(line.after.percent, std, line=line, n=(min(counts), max(counts)))
    return cells


def _by_seed(column: Column, severity: int, corruption: str | None) -> list[float]:
    """Return the accuracy in % of each seed, every corruption with the same weight."""
    found = []
    for run in column.runs:
        rows = select(run.rows, severity, corruption)
        shares = [rows["right"][rows["corruption"] == name, -1].mean() for name in np.unique(rows["corruption"])]
        if shares:
            found.append(100 * float(np.mean(shares)))
    return found


def _published_cells(cells: dict[str, Published], rows: Sequence[str], metric: Metric) -> dict[str, Cell]:
    """Return published numbers; the average of only some corruptions is taken anew, and its deviation is not known."""
    found = {row: cells[row] for row in rows if row in cells}
    shown = [cell.accuracy for row, cell in found.items() if row != AVERAGE]
    if AVERAGE in found and len(shown) < len(cells) - 1:
        found[AVERAGE] = Published(sum(shown) / len(shown), None)
    flip = metric == "error"
    return {row: Cell(100 - cell.accuracy if flip else cell.accuracy, cell.std) for row, cell in found.items()}


def _compare(first: Column, second: Column, severity: int, metric: Metric) -> Comparison:
    corruptions = corruptions_of([first, second], severity)
    rows = [*corruptions, AVERAGE] if len(corruptions) > 1 else list(corruptions)
    lines = []
    for row in rows:
        pairs = versus(first, second, severity, None if row == AVERAGE else row)
        if len(pairs):
            lines.append(in_metric(measure(pairs, row, severity), metric))
    return Comparison(first.label, second.label, tuple(lines))


def in_metric(line: Line, metric: Metric) -> Line:
    """Return a line of accuracies as it is, or as errors."""
    if metric == "accuracy":
        return line
    before, after = (Accuracy(100 - a.percent, 100 - a.high, 100 - a.low) for a in (line.before, line.after))
    d = line.difference
    difference = Difference(-d.points, -d.high, -d.low, d.p, d.fixed, d.broken)
    return replace(line, before=before, after=after, difference=difference)


def _bold(columns: Sequence[Shown], rows: Sequence[str], metric: Metric) -> tuple[Shown, ...]:
    """Mark the best number of every row, and those that print the same; a column that stands alone is not the best of anything."""
    if len(columns) < 2:
        return tuple(columns)
    choose = max if metric == "accuracy" else min
    best: dict[str, float] = {}
    for row in rows:
        values = [shown.cells[row].value for shown in columns if _counts(shown, row, rows)]
        best |= {row: choose(round(value, 1) for value in values)} if values else {}
    return tuple(
        replace(
            shown,
            cells={
                row: replace(cell, best=_counts(shown, row, rows) and round(cell.value, 1) == best[row])
                for row, cell in shown.cells.items()
            },
        )
        for shown in columns
    )


def _counts(shown: Shown, row: str, rows: Sequence[str]) -> bool:
    """Say whether a column's number may be the best of its row: the average of only some corruptions may not."""
    return row in shown.cells and (row != AVERAGE or shown.complete(rows))
