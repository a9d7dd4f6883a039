"""Lines with their uncertainty: accuracy against gradient steps (the paper's figure 3), and against severity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ttaps.evaluate.settings import all_settings
from ttaps.evaluate.summary import AVERAGE, Line, measure
from ttaps.report.columns import Column
from ttaps.report.pairs import before_after, right_after
from ttaps.report.style import FAINT, Look, label_above, two_panels
from ttaps.report.tables import SEVERITY, Table, in_metric

MANY = 4  # lines: with more of them bands hide each other, and only the last point has its interval


@dataclass(frozen=True)
class Series:
    """A line: where its points are, and a line of a table at each."""

    label: str
    look: Look
    places: tuple[int, ...]
    lines: tuple[Line, ...]
    adapts: bool = True
    """Whether it has a before and an after."""


def steps_figure(table: Table, columns: Sequence[Column], labels: Sequence[str]) -> Any:
    """Draw accuracy over gradient steps, and its paired change since step 0."""
    found = []
    for column, label in zip(columns, labels, strict=True):
        first, *others = step_lines(column, table.severity)
        nothing = replace(
            first, difference=replace(first.difference, low=0.0, high=0.0)
        )  # before the first step, for sure
        found.append(Series(label, column.look, tuple(range(len(others) + 1)), (nothing, *others)))
    most = max(column.steps for column in columns)
    return lines_figure(found, "gradient steps", range(0, most + 1, max(1, most // 10)))


def severity_figure(table: Table) -> Any:
    """Draw accuracy at each severity of a table by severity, and its paired change; of very many columns those that adapt."""
    found = []
    for shown in table.adapting if len(table.ours) > 2 * MANY and table.adapting else table.ours:
        lines = {
            int(row.removeprefix(SEVERITY)): in_metric(cell.line, table.metric)  # an error of an error is an accuracy
            for row, cell in shown.cells.items()
            if cell.line and row != AVERAGE
        }
        if shown.column:
            adapts = shown.column.steps > 0
            found.append(Series(shown.label, shown.column.look, tuple(lines), tuple(lines.values()), adapts))
    return lines_figure(found, "severity", sorted({place for series in found for place in series.places}))


def step_lines(column: Column, severity: int | None) -> list[Line]:
    """Return, for every step from 0 on, the accuracy before adaptation and after that step, averaged over corruptions."""
    pairs, right = before_after(column, severity), right_after(column, severity)
    lines = []
    for step in range(right.shape[1]):
        pairs["after"] = right[:, step]
        lines.append(measure(pairs))
    return lines


def lines_figure(series: Sequence[Series], words: str, ticks: Sequence[int]) -> Any:
    """Draw accuracies above, and below them what adaptation changed, paired; bands are 95 % intervals.

    The change has the narrower band: most images keep their label, and only those that do not can make a difference.
    """
    figure, above, below = two_panels([one.label for one in series], "accuracy, %", "change, points", words)
    for number, one in enumerate(series):
        aside = number / len(series) if len(series) > MANY else None
        _line(above, one, [(line.after.percent, line.after.low, line.after.high) for line in one.lines], aside)
        changes = [line.difference for line in one.lines]
        if one.adapts:
            _line(below, one, [(d.points, d.low, d.high) for d in changes], aside)
    below.axhline(0, color=FAINT, linewidth=0.8, zorder=0)
    below.set_xticks(ticks)
    label_above(above)
    return figure


def by_prototypes(columns: Sequence[Column]) -> list[list[Column]]:
    """Return groups of columns that differ in K only, from small to large."""
    groups: dict[str, list[Column]] = {}
    for column in columns:
        run = column.runs[0]
        facts = {name: value for name, value in run.facts.items() if name not in ("seed", "model")}
        network = {name: value for name, value in run.facts.get("model", {}).items() if name != "num_prototypes"}
        e = run.experiment
        key = repr((facts, network, e.method, sorted(all_settings(e).items()), e.protocol))
        groups.setdefault(key, []).append(column)
    several = [group for group in groups.values() if len({column.prototypes for column in group}) > 1]
    return [sorted(group, key=lambda column: column.prototypes or 0) for group in several]


def _line(axes: Any, series: Series, values: Sequence[tuple[float, float, float]], aside: float | None) -> None:
    """Draw a line with its band; or, where ``aside`` is given, with the interval of its last point only, that far beside it."""
    middle, low, high = zip(*values, strict=True)
    look, last = series.look, series.places[-1]
    if aside is None:
        axes.fill_between(series.places, low, high, color=look.color, alpha=0.15, linewidth=0)
    else:
        x = last + max(last, 4) * (0.02 + 0.08 * aside)
        axes.plot([x, x], [low[-1], high[-1]], color=look.color, linewidth=1.1, solid_capstyle="butt")
    style = {"color": look.color, "linestyle": look.dashes, "marker": look.marker}
    axes.plot(series.places, middle, linewidth=1.3, markersize=2.6, label=series.label, **style)
