"""Accuracy against gradient steps: the paper's figure 3, with its uncertainty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ttaps.evaluate.summary import Line, measure
from ttaps.report.columns import Column
from ttaps.report.pairs import before_after, right_after
from ttaps.report.style import COLUMN, FAINT, INK, new_figure, strip
from ttaps.report.tables import Table

DASHES = ("-", "--", ":", "-.")


def step_lines(column: Column, severity: int) -> list[Line]:
    """Return, for every step from 0 on, the accuracy before adaptation and after that step, averaged over corruptions."""
    pairs, right = before_after(column, severity), right_after(column, severity)
    lines = []
    for step in range(right.shape[1]):
        pairs["after"] = right[:, step]
        lines.append(measure(pairs))
    return lines


def steps_figure(table: Table, columns: Sequence[Column], labels: Sequence[str], dashes: Sequence[str] = ()) -> Any:
    """Draw accuracy over steps above, and below it the paired change since step 0; bands are 95 % intervals.

    The change has the narrower band: most images keep their label, and only those that do not can make a difference.
    """
    figure = new_figure(COLUMN, 3.5)
    above = figure.add_axes((0.15, 0.53, 0.82, 0.38))
    below = figure.add_axes((0.15, 0.12, 0.82, 0.33), sharex=above)
    for place, (column, label) in enumerate(zip(columns, labels, strict=True)):
        style = {"color": column.colour, "linestyle": dashes[place] if dashes else "-", "label": label}
        lines = step_lines(column, table.severity)
        _band(above, [(line.after.percent, line.after.low, line.after.high) for line in lines], style)
        change = [(line.difference.points, line.difference.low, line.difference.high) for line in lines]
        _band(below, [(0.0, 0.0, 0.0), *change[1:]], style)
    below.axhline(0, color=FAINT, linewidth=0.8, zorder=0)
    above.set_ylabel("accuracy, %", fontsize=7, color=INK)
    below.set_ylabel("change since step 0, points", fontsize=7, color=INK)
    below.set_xlabel("gradient steps", fontsize=7, color=INK)
    most = max(column.steps for column in columns)
    below.set_xticks(range(0, most + 1, max(1, most // 10)))
    for axes in (above, below):
        axes.grid(axis="y", color="#e8e8e8", linewidth=0.6)
        strip(axes)
    above.tick_params(labelbottom=False)
    above.legend(fontsize=6.5, frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)
    return figure


def by_prototypes(columns: Sequence[Column]) -> list[list[Column]]:
    """Return groups of columns that differ in K only, from small to large."""
    groups: dict[str, list[Column]] = {}
    for column in columns:
        run = column.runs[0]
        facts = {name: value for name, value in run.facts.items() if name not in ("seed", "model")}
        network = {name: value for name, value in run.facts.get("model", {}).items() if name != "prototypes"}
        key = repr((facts, network, run.experiment.method, run.experiment.settings))
        groups.setdefault(key, []).append(column)
    several = [group for group in groups.values() if len({column.prototypes for column in group}) > 1]
    return [sorted(group, key=lambda column: column.prototypes or 0) for group in several]


def _band(axes: Any, values: Sequence[tuple[float, float, float]], style: dict[str, Any]) -> None:
    middle, low, high = zip(*values, strict=True)
    steps = range(len(values))
    axes.fill_between(steps, low, high, color=style["color"], alpha=0.15, linewidth=0)
    axes.plot(steps, middle, linewidth=1.4, marker="o", markersize=2.2, **style)
