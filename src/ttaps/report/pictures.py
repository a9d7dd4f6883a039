"""Figures with pictures in them: what adaptation did to a few images. They are drawn from arrays alone."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ttaps.adaptation.result import Result
from ttaps.evaluate.summary import Accuracy, Line
from ttaps.report.style import (
    CLASS_COLOURS,
    INK,
    METHOD_COLOURS,
    RIGHT,
    WRONG,
    new_figure,
    save_figure,
    strip,
    write,
)

MOST_ROWS = 20  # pictures in one figure; a taller one cannot be read
SHOWN = 4  # classes per picture
ROW = 2.25  # height of a picture's row, in inches
CELLS = ((0.3, 1.4), (1.95, 2.85), (5.35, 2.6), (8.95, 2.5))  # left and width of its picture, views, steps and bars


def adaptation_figure(
    path: Path, names: Sequence[str], pictures: Sequence[Tensor], views: Sequence[Tensor], results: Sequence[Result]
) -> None:
    """Draw a row for each picture: itself, some of its views, its class probabilities over the steps, and before and after.

    Pictures are uint8 (3, H, W), views float (V, 3, H, W) in [0, 1]. Only the first 20 pictures are drawn.
    """
    rows = min(len(names), MOST_ROWS)
    figure = new_figure(11.6, ROW * rows + 0.35)
    colors: dict[int, str] = {}
    for row in range(rows):
        cells = [figure.add_axes(_inches(figure, left, 0.42 + ROW * row, width, 1.4)) for left, width in CELLS]
        shown = most_probable(results[row].trace)
        for index in shown:
            colors.setdefault(index, CLASS_COLOURS[len(colors) % len(CLASS_COLOURS)])
        _picture(cells[0], pictures[row], names[row], results[row])
        _views(cells[1], views[row])
        _steps(cells[2], results[row], {index: colors[index] for index in shown})
        _bars(cells[3], results[row], {index: colors[index] for index in shown})
    save_figure(figure, path)


def _inches(figure: Any, left: float, top: float, width: float, height: float) -> tuple[float, float, float, float]:
    """Turn a place in inches, from the left and the top, into the fractions matplotlib wants."""
    wide, tall = figure.get_size_inches()
    return left / wide, 1 - (top + height) / tall, width / wide, height / tall


def most_probable(trace: Tensor, count: int = SHOWN) -> list[int]:
    """Return the classes that matter most before or after adaptation, the most probable one afterwards first."""
    ends = trace[[0, -1]].nan_to_num()  # not a number: no prediction
    most = ends.amax(0)
    chosen = most.topk(min(count, len(most))).indices.tolist()
    return sorted(chosen, key=lambda index: -float(ends[-1, index]))


def mosaic(views: Tensor, columns: int = 4) -> NDArray[np.float32]:
    """Lay views (V, 3, H, W) out in a grid with white lines between them, (rows, columns, 3)."""
    count, _, height, width = views.shape
    rows = -(-count // columns)
    wall = np.ones((rows * (height + 2) - 2, columns * (width + 2) - 2, 3), dtype=np.float32)
    for place, view in enumerate(views.clamp(0, 1).permute(0, 2, 3, 1).numpy()):
        top, left = (height + 2) * (place // columns), (width + 2) * (place % columns)
        wall[top : top + height, left : left + width] = view
    return wall


def _picture(axes: Any, picture: Tensor, name: str, result: Result) -> None:
    axes.imshow(picture.permute(1, 2, 0).numpy(), interpolation="nearest")
    axes.set_axis_off()
    axes.set_title(_short(name), fontsize=9, color=INK, pad=5, parse_math=False)
    before, after = (
        "none" if p.isnan().any() else f"{result.classes[int(p.argmax())]} {float(p.max()):.0%}"
        for p in (result.before, result.probabilities)
    )
    style = {"ha": "center", "transform": axes.transAxes}
    write(axes, 0.5, -0.09, f"before: {before}", **style)
    write(axes, 0.5, -0.22, f"after: {after}", fontweight="bold", **style)


def _views(axes: Any, views: Tensor) -> None:
    axes.set_axis_off()
    if len(views):
        axes.set_title("some of its views", fontsize=9, color=INK, pad=5)
        axes.imshow(mosaic(views), interpolation="nearest")


def _steps(axes: Any, result: Result, colors: Mapping[int, str]) -> None:
    steps = np.arange(len(result.trace))
    for index, color in colors.items():
        axes.plot(steps, result.trace[:, index].numpy(), color=color, linewidth=1.6, marker="o", markersize=2.8)
    axes.set_title("probability, step by step", fontsize=9, color=INK, pad=5)
    axes.set_ylim(-0.03, 1.03)
    axes.set_yticks([0, 0.5, 1], ["0", "50 %", "100 %"])
    axes.set_xticks(steps[:: max(1, len(steps) // 10)])
    axes.set_xlabel("gradient steps", fontsize=7, color=INK, labelpad=1)
    axes.grid(axis="y", color="#e8e8e8", linewidth=0.6)
    strip(axes)


def _bars(axes: Any, result: Result, colors: Mapping[int, str]) -> None:
    for place, (index, color) in enumerate(colors.items()):
        before, after = (float(p[index].nan_to_num()) for p in (result.before, result.probabilities))
        axes.barh(place, after, height=0.62, color=color)
        axes.plot([before, before], [place - 0.42, place + 0.42], color=INK, linewidth=1.4)
        write(axes, max(before, after) + 0.03, place, f"{before:.0%} → {after:.0%}", fontsize=7.5)
        write(axes, -0.03, place, result.classes[index], ha="right", color=color, fontweight="bold")
    axes.set_title("bar: after, black line: before", fontsize=9, color=INK, pad=5)
    axes.set_xlim(0, 1.3)
    axes.set_ylim(max(len(colors), 2) - 0.4, -0.6)
    axes.set_xticks([0, 0.5, 1], ["0", "50 %", "100 %"])
    axes.set_yticks([])
    strip(axes)


def _short(name: str, most: int = 20) -> str:
    """Return a file's name, its middle left out where it is long; bytes that are no text become question marks."""
    readable = name.encode(errors="replace").decode()
    return readable if len(readable) <= most else f"{readable[: most // 2]}…{readable[-most // 2 + 1 :]}"


# Of the demo's figure, in inches: the corruptions' names, a row, a picture with its words, the chart, the numbers beside it, a letter.
SIDE, HEIGHT, TILE, CHART, NUMBERS, LETTER = 1.15, 0.92, 1.62, 3.6, 1.2, 0.055
LEAST_COLUMNS = 3  # as wide as the caption needs


@dataclass(frozen=True, eq=False)
class Tile:
    """A picture with its true label and what it was taken for."""

    picture: NDArray[np.uint8]
    """Shape (3, H, W)."""
    truth: str
    before: str
    after: str


def demo_figure(
    path: Path, tiles: Mapping[str, Sequence[Tile]], lines: Sequence[Line], title: str, caption: Sequence[str]
) -> None:
    """Draw a row for each line of a table: some pictures with their labels, and accuracy before and after with its interval.

    ``tiles`` are the pictures of each corruption; a line without any, such as the average, has the caption in their place.
    """
    columns = max(LEAST_COLUMNS, *map(len, tiles.values()))
    width, tall = SIDE + TILE * columns + 0.2 + CHART + NUMBERS, HEIGHT * len(lines) + 1.15
    words = "\n".join(textwrap.fill(line, int(TILE * columns / LETTER)) for line in caption)
    figure = new_figure(width, tall)
    wall = figure.add_axes(_inches(figure, 0, 0.6, SIDE + TILE * columns, HEIGHT * len(lines)))
    wall.set(xlim=(-SIDE / HEIGHT, TILE * columns / HEIGHT), ylim=(len(lines), 0))
    wall.set_axis_off()
    for row, line in enumerate(lines):
        write(wall, -0.12, row + 0.5, line.corruption.replace("_", "\n"), ha="right", fontsize=9, fontweight="bold")
        for column, tile in enumerate(tiles.get(line.corruption, ())):
            _tile(wall, tile, column * TILE / HEIGHT, row)
        if line.corruption not in tiles:
            write(wall, 0, row + 0.5, words, fontsize=7.5, color="#555555", linespacing=1.5)
    _chart(figure.add_axes(_inches(figure, width - CHART - NUMBERS, 0.6, CHART, HEIGHT * len(lines))), lines)
    write(wall, 0.16 / HEIGHT - SIDE / HEIGHT, -0.35, title, fontsize=12, fontweight="bold")
    save_figure(figure, path)


def _tile(wall: Any, tile: Tile, left: float, row: int) -> None:
    """Draw a picture and, beside it, its true label, its label before and its label after."""
    wall.imshow(
        tile.picture.transpose(1, 2, 0),
        extent=(left, left + 0.86, row + 0.93, row + 0.07),
        interpolation="nearest",
        aspect="auto",
    )
    write(wall, left + 0.91, row + 0.25, tile.truth, fontweight="bold", fontsize=7.5)
    for place, label in ((0.5, tile.before), (0.75, tile.after)):
        right = label == tile.truth
        write(
            wall,
            left + 0.91,
            row + place,
            f"{'✓' if right else '✗'} {label}",
            color=RIGHT if right else WRONG,
            fontsize=7.5,
        )


def _chart(axes: Any, lines: Sequence[Line]) -> None:
    """Draw accuracy before (open) and after (full) with 95 % intervals, in rows that stand beside the pictures."""
    for row, line in enumerate(lines):
        _dot(axes, line.before, row + 0.36, METHOD_COLOURS["source"], full=False)
        _dot(axes, line.after, row + 0.64, METHOD_COLOURS["ttaps"], full=True)
        numbers = f"{line.before.percent:.1f} → {line.after.percent:.1f} %"
        write(axes, 103, row + 0.5, numbers, fontsize=8, clip_on=False)
        axes.axhline(row + 1, color="#e8e8e8", linewidth=0.6)
    axes.set(xlim=(0, 100), ylim=(len(lines), 0), yticks=[], xticks=range(0, 101, 20))
    axes.set_xlabel("classified right, %, with 95 % interval", fontsize=8, color=INK)
    axes.grid(axis="x", color="#e8e8e8", linewidth=0.6)
    axes.set_axisbelow(True)
    strip(axes, keep=("bottom",))
    for x, words, color in (
        (0, "○ before", METHOD_COLOURS["source"]),
        (24, "● after adaptation", METHOD_COLOURS["ttaps"]),
    ):
        write(axes, x, -0.16, words, color=color, fontsize=8.5, clip_on=False)


def _dot(axes: Any, accuracy: Accuracy, height: float, color: str, full: bool) -> None:
    axes.plot(
        [accuracy.low, accuracy.high], [height, height], color=color, linewidth=1.5, solid_capstyle="butt", alpha=0.75
    )
    inside = color if full else "white"
    axes.plot(accuracy.percent, height, marker="o", markersize=6, color=color, markerfacecolor=inside, clip_on=False)
