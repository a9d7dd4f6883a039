"""What the settings of a method do: accuracy gained, labels fixed and labels broken, for every setting and step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ttaps.evaluate.summary import Line
from ttaps.report.columns import Column
from ttaps.report.curves import step_lines
from ttaps.report.grouping import by_model, names_apart, on_same_images
from ttaps.report.style import COLUMN, FAINT, INK, METHOD_COLOURS, RIGHT, WRONG, new_figure, strip, write
from ttaps.report.tables import Table

LEAST = 4
ROW, LETTER = 0.14, 0.046  # inches: a setting's height and a letter's width
USUAL = 0.9  # of the numbers that are drawn as colors
COLOURS = "RdBu"  # worse is red, better is blue: told apart by eyes of every kind


@dataclass(frozen=True, eq=False)
class Tried:
    """One of the settings, and what it did after every step from 0 on."""

    label: str
    column: Column
    lines: tuple[Line, ...]

    @property
    def last(self) -> Line:
        """After the last step."""
        return self.lines[-1]

    @property
    def significant(self) -> bool:
        """Whether the interval of the change is on one side of zero."""
        return not self.last.difference.low <= 0 <= self.last.difference.high

    def per_hundred(self) -> tuple[float, float]:
        """Return labels fixed and broken, of a hundred images."""
        last = self.last
        return 100 * last.difference.fixed / last.n, 100 * last.difference.broken / last.n


@dataclass(frozen=True, eq=False)
class Settings:
    """All settings of a method that were tried with one model on the same images, the best first."""

    model: str
    method: str
    base: str
    """What the labels are compared with; empty where they are whole."""
    tried: tuple[Tried, ...]

    @property
    def n(self) -> int:
        """Images of each, over all corruptions and seeds."""
        return self.tried[0].last.n


def table_settings(table: Table) -> Iterator[Settings]:
    """Yield what can be drawn of a table: every model and method with at least four settings on the same images."""
    for group in by_model([shown.column for shown in table.adapting if shown.column]):
        for method in dict.fromkeys(column.method for column in group):
            own = [column for column in group if column.method == method]
            columns = on_same_images(own, table.severity, LEAST)
            if columns:
                labels, base = names_apart(columns)
                tried = [Tried(label, c, tuple(step_lines(c, None))) for label, c in zip(labels, columns, strict=True)]
                best = sorted(tried, key=lambda one: -one.last.difference.points)
                yield Settings(columns[0].runs[0].experiment.model, method, base, tuple(best))


def map_figure(settings: Settings) -> Any:
    """Draw a row for each of the settings: the change after the last step, labels broken and fixed, and the change after every step."""
    tried = settings.tried
    height, names = ROW * len(tried) + 0.85, max(len(one.label) for one in tried) * LETTER + 0.1
    figure = new_figure(COLUMN, height)
    room, bottom, tall = COLUMN - names - 0.25, 0.55 / height, ROW * len(tried) / height

    def panel(start: float, share: float, title: str) -> Any:
        axes = figure.add_axes(((names + start * room + 0.05) / COLUMN, bottom, share * room / COLUMN, tall))
        axes.set(ylim=(len(tried) - 0.5, -0.5), yticks=())
        axes.set_title(title, fontsize=6.2, color=INK, pad=3)
        return axes

    change, labels, steps = (
        panel(0, 0.37, "change, points"),
        panel(0.43, 0.26, "labels per 100"),
        panel(0.74, 0.29, "by step"),
    )
    for place, one in enumerate(tried):
        write(change, -0.05, place, one.label, fontsize=6, ha="right", transform=change.get_yaxis_transform())
    _draw_changes(change, tried)
    _draw_labels(labels, tried)
    _draw_steps(figure, steps, tried, 0.2 / height)
    return figure


def _draw_changes(axes: Any, tried: Sequence[Tried]) -> None:
    """Draw each change with its interval; a full dot where that is on one side of zero."""
    color = METHOD_COLOURS.get(tried[0].column.method, INK)
    axes.axvline(0, color=FAINT, linewidth=0.8, zorder=0)
    for place, one in enumerate(tried):
        d = one.last.difference
        inside = color if one.significant else "white"
        axes.plot([d.low, d.high], [place, place], color=color, linewidth=0.9, solid_capstyle="butt")
        axes.plot(
            [d.points], [place], marker="o", markersize=3.2, color=color, markerfacecolor=inside, markeredgewidth=0.8
        )
    axes.grid(axis="x", color="#eeeeee", linewidth=0.6)
    axes.set_axisbelow(True)
    strip(axes, keep=("bottom",))


def _draw_labels(axes: Any, tried: Sequence[Tried]) -> None:
    """Draw labels broken to the left and labels fixed to the right."""
    fixed, broken = zip(*(one.per_hundred() for one in tried), strict=True)
    axes.barh(range(len(tried)), fixed, height=0.62, color=RIGHT, linewidth=0)
    axes.barh(range(len(tried)), [-count for count in broken], height=0.62, color=WRONG, linewidth=0)
    axes.axvline(0, color=FAINT, linewidth=0.8)
    most = max(*fixed, *broken, 0.1)
    axes.set_xlim(-1.1 * most, 1.1 * most)
    axes.set_xticks([-most, 0, most], [f"{most:.2g}", "0", f"{most:.2g}"])
    strip(axes, keep=("bottom",))
    for x, words, color in ((0.22, "broken", WRONG), (0.78, "fixed", RIGHT)):
        axes.annotate(
            words, (x, 0), (0, -13), "axes fraction", "offset points", color=color, fontsize=6, ha="center", va="top"
        )


def _draw_steps(figure: Any, axes: Any, tried: Sequence[Tried], bar: float) -> None:
    """Draw the change after every step as a color, and the scale of colors below."""
    most = max(len(one.lines) for one in tried)
    points = np.full((len(tried), most - 1), np.nan)
    for place, one in enumerate(tried):
        points[place, : len(one.lines) - 1] = [line.difference.points for line in one.lines[1:]]
    image = colored(axes, points, (0.5, most - 0.5))
    axes.set_xticks([1, most - 1] if most > 2 else [1])
    strip(axes, keep=())
    box = axes.get_position()
    scale = figure.colorbar(image, cax=figure.add_axes((box.x0, bar, box.width, 0.25 * bar)), orientation="horizontal")
    scale.outline.set_visible(False)
    end = image.get_clim()[1]
    low, high = ("≤", "≥") if np.nanmax(np.abs(points)) > end else ("", "")
    scale.set_ticks([-end, end], labels=[f"{low}{-end:+.1f}", f"{high}{end:+.1f}"], fontsize=6, color=INK)


def colored(axes: Any, points: Any, across: tuple[float, float]) -> Any:
    """Draw numbers as colors around zero, row by row from the top; a few that are far greater than the others have the last color."""
    sizes = np.abs(points)
    usual, most = float(np.nanquantile(sizes, USUAL)), float(np.nanmax(sizes))
    most = max(usual if most > 2 * usual else most, 0.1)
    extent = (*across, len(points) - 0.5, -0.5)
    return axes.imshow(
        points, cmap=COLOURS, vmin=-most, vmax=most, aspect="auto", extent=extent, interpolation="nearest"
    )
