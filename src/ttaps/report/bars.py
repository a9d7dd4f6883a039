"""Accuracy under each corruption, before and after adaptation, as bars."""

from __future__ import annotations

from typing import Any

from ttaps.evaluate.summary import AVERAGE, Accuracy, signed
from ttaps.report.grids import short
from ttaps.report.style import COLUMN, INK, METHOD_COLOURS, new_figure, strip
from ttaps.report.tables import Shown, Table, in_metric

BAR = 0.38  # of a row's height


def bars_figure(table: Table, shown: Shown) -> Any:
    """Draw two bars for each corruption with their 95 % intervals; the average is last."""
    lines = [
        in_metric(cell.line, table.metric) for cell in shown.cells.values() if cell.line
    ]  # an error of an error is an accuracy
    height = 0.27 * len(lines) + 0.85
    figure = new_figure(COLUMN, height)
    axes = figure.add_axes((0.15, 0.42 / height, 0.72, 1 - 0.8 / height))
    color = shown.column.color if shown.column else INK
    for place, line in enumerate(lines):
        _bar(axes, place - BAR / 2, line.before, METHOD_COLOURS["source"], alpha=0.45)
        _bar(axes, place + BAR / 2, line.after, color, alpha=1)
        axes.text(102, place, signed(line.difference.points), fontsize=6.5, color=INK, va="center")
    axes.set_yticks(range(len(lines)), [short(line.corruption) for line in lines])
    axes.set(xlim=(0, 100), ylim=(len(lines) - 0.4, -0.6))
    if lines[-1].corruption == AVERAGE:
        axes.axhline(len(lines) - 1.5, color=INK, linewidth=0.6)
    axes.set_xlabel("accuracy, %, with 95 % interval", fontsize=7, color=INK)
    axes.grid(axis="x", color="#e8e8e8", linewidth=0.6)
    axes.set_axisbelow(True)
    strip(axes)
    words = ((0.15, "■ before", METHOD_COLOURS["source"]), (0.36, f"■ after {shown.label}", color))
    for x, text, ink in words:
        figure.text(x, 1 - 0.22 / height, text, fontsize=7, color=ink, parse_math=False)
    return figure


def _bar(axes: Any, y: float, accuracy: Accuracy, color: str, alpha: float) -> None:
    axes.barh(y, accuracy.percent, height=BAR, color=color, alpha=alpha, linewidth=0)
    axes.plot([accuracy.low, accuracy.high], [y, y], color=INK, linewidth=0.7, solid_capstyle="butt")
