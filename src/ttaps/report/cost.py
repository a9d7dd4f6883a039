"""Accuracy against the time it takes: one model, all methods and settings that were evaluated on the same images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ttaps.evaluate.summary import Accuracy, measure
from ttaps.report.columns import Column
from ttaps.report.grouping import by_model, names_apart, on_same_images
from ttaps.report.pairs import before_after
from ttaps.report.style import COLUMN, FAINT, INK, Look, new_figure, strip
from ttaps.report.tables import Table

LEAST, MANY = 3, 8  # points: fewer are not worth a figure, the intervals of more hide each other
LETTER, LABEL = 0.046, 0.125  # inches: a letter's width and a label's height
TICKS = tuple(digit * 10.0**power for power in range(-4, 6) for digit in (1, 3))


@dataclass(frozen=True)
class Point:
    """A method with its settings: what it costs and what it reaches."""

    label: str
    look: Look
    seconds: float
    """Median of what an image took."""
    accuracy: Accuracy
    source: bool = False
    """Whether it is the prediction without adaptation, the unit of cost."""


@dataclass(frozen=True)
class Costs:
    """Points of one model on the same images."""

    model: str
    n: int
    """Images of each point, over all corruptions and seeds."""
    points: tuple[Point, ...]
    base: str = ""
    """What the settings' names are compared with; empty where they are whole."""

    @property
    def unit(self) -> float | None:
        """Seconds of a prediction without adaptation; None where it was not timed."""
        return next((point.seconds for point in self.points if point.source), None)


def table_costs(table: Table) -> list[Costs]:
    """Return what can be drawn of a table: every model with at least three methods or settings on the same images."""
    found = []
    for group in by_model([shown.column for shown in table.ours if shown.column]):
        columns = on_same_images(group, table.severity, LEAST)
        if columns:
            labels, base = _labels(columns)
            model, n = columns[0].runs[0].experiment.model, len(before_after(columns[0], None))
            found.append(Costs(model, n, tuple(map(_point, columns, labels)), base))
    return found


def costs_figure(costs: Costs) -> Any:
    """Draw accuracy with its 95 % interval against the time per image; names are on the right, in the order of accuracy."""
    points, unit = costs.points, costs.unit or 1.0
    words = max(len(point.label) for point in points) * LETTER + 0.22
    height = max(2.3, LABEL * len(points) + 0.75)
    figure = new_figure(COLUMN, height)
    axes = figure.add_axes((0.42 / COLUMN, 0.36 / height, 1 - (0.45 + words) / COLUMN, 1 - 0.46 / height))
    axes.set_xscale("log")
    best = frontier(points)
    ends = [p.seconds / unit for p in best], [p.accuracy.percent for p in best]
    axes.plot(*ends, color="#cccccc", linewidth=1, zorder=0)
    faint = 0.55 if len(points) <= MANY else 0.2
    for point in points:
        x, a, look = point.seconds / unit, point.accuracy, point.look
        axes.plot([x, x], [a.low, a.high], color=look.color, linewidth=0.8, alpha=faint)
        axes.plot([x], [a.percent], linestyle="", marker=look.marker, markersize=3.6, color=look.color)
    _scale(axes, [point.seconds / unit for point in points])
    axes.set_xlabel("time per image / source" if costs.unit else "seconds per image", fontsize=7, color=INK, labelpad=2)
    axes.set_ylabel("accuracy, %", fontsize=7, color=INK, labelpad=2)
    axes.grid(color="#eeeeee", linewidth=0.6)
    axes.set_axisbelow(True)
    strip(axes)
    _write_labels(axes, points, unit, LABEL / (height - 0.46))
    return figure


def frontier(points: Sequence[Point]) -> list[Point]:
    """Return the points that no cheaper one reaches, from the cheapest to the most accurate."""
    found: list[Point] = []
    for point in sorted(points, key=lambda point: (point.seconds, -point.accuracy.percent)):
        if not found or point.accuracy.percent > found[-1].accuracy.percent:
            found.append(point)
    return found


def spread_out(wanted: Sequence[float], gap: float) -> list[float]:
    """Move sorted places within 0 and 1 so far apart that there is a gap between neighbours, as near to where they were as is easy."""
    placed: list[float] = []
    for place in wanted:
        placed.append(max(place, placed[-1] + gap if placed else 0.0))
    limit = 1.0
    for index in reversed(range(len(placed))):
        placed[index] = min(placed[index], limit)
        limit = placed[index] - gap
    return placed


def _point(column: Column, label: str) -> Point:
    seconds = float(np.median(np.concatenate([run.rows["seconds"] for run in column.runs])))
    accuracy = measure(before_after(column, None)).after
    return Point(label, column.look, seconds, accuracy, column.method == "source")


def _labels(columns: Sequence[Column]) -> tuple[list[str], str]:
    """Name columns by method, and by settings where a method has several or other ones than its own; say what those are beside."""
    names: dict[int, str] = {}
    bases = []
    for method in dict.fromkeys(column.method for column in columns):
        own = [column for column in columns if column.method == method]
        found, base = names_apart(own)
        bases += [f"{method} {base}"] if base else []
        plain = len(own) == 1 and not own[0].settings
        names |= {id(column): method if plain else f"{method} {name}" for column, name in zip(own, found, strict=True)}
    return [names[id(column)] for column in columns], " and ".join(bases)


def _scale(axes: Any, places: Sequence[float]) -> None:
    """Put ticks at 1, 3, 10, 30 and so on, with some room on both sides."""
    low, high = min(places) / 1.6, max(places) * 1.6
    ticks = [tick for tick in TICKS if low <= tick <= high]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlim(low, high)


def _write_labels(axes: Any, points: Sequence[Point], unit: float, gap: float) -> None:
    """Write the names beside the axes, each with its marker and a line to its point."""
    ordered = sorted(points, key=lambda point: (point.accuracy.percent, -point.seconds))
    low, high = axes.get_ylim()
    wanted = [(point.accuracy.percent - low) / (high - low) for point in ordered]
    for point, place in zip(ordered, spread_out(wanted, gap), strict=True):
        beside, look = {"transform": axes.transAxes, "clip_on": False}, point.look
        line = {"arrowstyle": "-", "color": FAINT, "linewidth": 0.35, "shrinkA": 0, "shrinkB": 2.5}
        to, start = (point.seconds / unit, point.accuracy.percent), (1.06, place)
        axes.annotate("", to, start, textcoords="axes fraction", annotation_clip=False, arrowprops=line)
        axes.plot([1.06], [place], marker=look.marker, markersize=3, color=look.color, **beside)
        axes.text(1.06, place, f"  {point.label}", fontsize=6, color=INK, va="center", parse_math=False, **beside)
