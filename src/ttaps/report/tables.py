"""The paper's Tables III and IV from outcomes: corruptions (or severities) as rows, methods as columns, and how sure each number is."""

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
from ttaps.report.pairs import before_after, conditions, select, versus
from ttaps.report.published import LABELS, Published, published_columns
from ttaps.report.style import Look

Metric = Literal["accuracy", "error"]
SEVERITY = "severity "


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
    """A column with its numbers by row; what was not evaluated is missing."""

    label: str
    cells: dict[str, Cell]
    column: Column | None = None
    """None if it is published."""

    def complete(self, rows: Sequence[str]) -> bool:
        """Say whether all rows are there, so that the average means what it says."""
        return all(row in self.cells for row in rows)


@dataclass(frozen=True)
class Comparison:
    """Two columns on the images that both have."""

    first: str
    second: str
    lines: tuple[Line, ...]
    """Of each row that both have; the average is last."""


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
    ours: tuple[Shown, ...]
    published: tuple[Shown, ...]
    comparisons: tuple[Comparison, ...]

    @property
    def adapting(self) -> list[Shown]:
        """Our columns that have a before and an after."""
        return [shown for shown in self.ours if shown.column and shown.column.steps]

    @property
    def corruptions(self) -> tuple[str, ...]:
        """All corruptions that any of our columns has, in the paper's order."""
        return corruptions_of([shown.column for shown in self.ours if shown.column], self.severity)


def make_tables(runs: Sequence[Run], metric: Metric = "accuracy", published: bool = True) -> list[Table]:
    """Return a table for each data set and severity; where there are several severities, one by severity comes first."""
    sets: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        sets.setdefault((run.experiment.data, run.experiment.digest), []).append(run)
    found: list[Table] = []
    looks: dict[tuple[str, str], Look] = {}
    for (data, digest), group in sets.items():
        columns = make_columns(group, looks)
        severities = sorted({int(s) for run in group for s in np.unique(run.rows["severity"])})
        wanted = [None, *severities] if len(severities) > 1 else severities
        found += [_table(data, digest, severity, columns, metric, published) for severity in wanted]
    return found


def severest(tables: Sequence[Table]) -> list[Table]:
    """Return each data set's table of the highest severity, which is the paper's: the one to look at first, and in detail."""
    return list({(table.data, table.digest): table for table in tables}.values())


def _table(
    data: str, digest: str, severity: int | None, columns: Sequence[Column], metric: Metric, published: bool
) -> Table:
    columns = [column for column in columns if any(len(select(run.rows, severity)) for run in column.runs)]
    rows = _rows(columns, severity)
    ours = [Shown(column.label, _cells(column, severity, rows, metric), column) for column in columns]
    printed = published_columns(data, severity) if published and severity else {}
    theirs = [Shown(LABELS[name], _published_cells(cells, rows, metric)) for name, cells in printed.items()]
    comparisons = [_compare(first, second, severity, metric) for first, second in combinations(columns, 2)]
    known = tuple(comparison for comparison in comparisons if comparison.lines)
    return Table(data, digest, severity, metric, rows, _bold(ours, rows, metric), _bold(theirs, rows, metric), known)


def _rows(columns: Sequence[Column], severity: int | None) -> tuple[str, ...]:
    rows = _severities_of(columns) if severity is None else corruptions_of(columns, severity)
    return (*rows, AVERAGE) if len(rows) > 1 else rows


def _part(row: str, severity: int | None) -> tuple[int | None, str | None]:
    """Return the severity and the corruption that a row is of; None is all of them."""
    if row == AVERAGE:
        return severity, None
    return (int(row.removeprefix(SEVERITY)), None) if severity is None else (severity, row)


def _severities_of(columns: Sequence[Column]) -> tuple[str, ...]:
    found = {int(severity) for column in columns for run in column.runs for severity in np.unique(run.rows["severity"])}
    return tuple(f"{SEVERITY}{severity}" for severity in sorted(found))


def corruptions_of(columns: Sequence[Column], severity: int | None) -> tuple[str, ...]:
    """Return the corruptions that any of some columns has, in the paper's order."""
    names = {
        str(name)
        for column in columns
        for run in column.runs
        for name in np.unique(select(run.rows, severity)["corruption"])
    }
    return tuple(sorted(names, key=lambda name: (ORDER.get(name, -1), name)))


def _cells(column: Column, severity: int | None, rows: Sequence[str], metric: Metric) -> dict[str, Cell]:
    cells: dict[str, Cell] = {}
    for row in rows:
        part = _part(row, severity)
        pairs = before_after(column, *part)
        if len(pairs):
            line = in_metric(measure(pairs, row, part[0]), metric)
            std = mean_std(_by_seed(column, *part))[1]
            counts = [len(select(run.rows, *part)) for run in column.runs]
            cells[row] = Cell(line.after.percent, std, line=line, n=(min(counts), max(counts)))
    return cells


def _by_seed(column: Column, severity: int | None, corruption: str | None) -> list[float]:
    """Return the accuracy in % of each seed, every corruption and severity with the same weight."""
    found = []
    for run in column.runs:
        rows = select(run.rows, severity, corruption)
        if len(rows):
            places = conditions(rows)
            shares = np.bincount(places, rows["right"][:, -1]) / np.bincount(places)
            found.append(100 * float(shares.mean()))
    return found


def _published_cells(cells: dict[str, Published], rows: Sequence[str], metric: Metric) -> dict[str, Cell]:
    """Return published numbers; the average of only some corruptions is taken anew, and its deviation is not known."""
    found = {row: cells[row] for row in rows if row in cells}
    shown = [cell.accuracy for row, cell in found.items() if row != AVERAGE]
    if AVERAGE in found and len(shown) < len(cells) - 1:
        found[AVERAGE] = Published(sum(shown) / len(shown), None)
    flip = metric == "error"
    return {row: Cell(100 - cell.accuracy if flip else cell.accuracy, cell.std) for row, cell in found.items()}


def _compare(first: Column, second: Column, severity: int | None, metric: Metric) -> Comparison:
    lines = []
    for row in _rows([first, second], severity):
        part = _part(row, severity)
        pairs = versus(first, second, *part)
        if len(pairs):
            lines.append(in_metric(measure(pairs, row, part[0]), metric))
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
    """Mark the best number of every row, and those that print the same, among columns that have the same number of images.

    A column that stands alone is not the best of anything.
    """
    choose = max if metric == "accuracy" else min
    marked = [dict(shown.cells) for shown in columns]
    for row in rows:
        counting = [number for number, shown in enumerate(columns) if _counts(shown, row, rows)]
        most = max((columns[number].cells[row].n or (0, 0) for number in counting), default=None)
        alike = [number for number in counting if (columns[number].cells[row].n or (0, 0)) == most]
        if len(alike) < 2:
            continue
        best = choose(round(marked[number][row].value, 1) for number in alike)
        for number in alike:
            cell = marked[number][row]
            marked[number][row] = replace(cell, best=round(cell.value, 1) == best)
    return tuple(replace(shown, cells=cells) for shown, cells in zip(columns, marked, strict=True))


def _counts(shown: Shown, row: str, rows: Sequence[str]) -> bool:
    """Say whether a column's number may be the best of its row: the average of only some corruptions may not."""
    return row in shown.cells and (row != AVERAGE or shown.complete(rows))
