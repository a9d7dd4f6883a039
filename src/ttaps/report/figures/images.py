"""Figures with images in them: what adaptation did to a few. They are drawn from arrays alone."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ttaps.report.figures import style
from ttaps.report.figures.style import INK, METHOD_COLORS, despine, new_figure, save_figure, styled

if TYPE_CHECKING:
    import pandas as pd

MOST_ROWS = 20  # images in one figure; a taller one cannot be read
MOST_CLASSES = 4  # per image
PERCENT = ((0, 0.5, 1), ("0", "50 %", "100 %"))
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Tile:
    """An image with its true label and what it was taken for."""

    image: NDArray[np.uint8]
    """Shape (3, H, W)."""
    truth: str
    before: str
    after: str
    corruption: str = ""

    @property
    def fixed(self) -> bool:
        """Whether its label is right after adaptation."""
        return self.after == self.truth


@styled
def adaptation_figure(
    path: Path, names: Sequence[str], images: Sequence[ArrayLike], views: Sequence[ArrayLike], results: Sequence[Any]
) -> None:
    """Draw a row for each image: itself, some of its views, its class probabilities over the steps, and before and after.

    Images are uint8 (3, H, W), views float (V, 3, H, W) in [0, 1], arrays or CPU tensors; a result has a ``trace`` (steps + 1,
    classes) and ``classes``. Only the first 20 images are drawn.
    """
    rows = min(len(names), MOST_ROWS)
    figure = new_figure(11, 2.1 * rows + 0.15)
    grid = figure.subplots(rows, 4, squeeze=False, width_ratios=(1.5, 2.8, 2.6, 2.6))
    colors: dict[int, str] = {}
    for cells, name, image, some_views, result in zip(grid, names, images, views, results, strict=False):
        trace = np.asarray(result.trace, dtype=float)
        for index in most_probable(trace):
            colors.setdefault(index, style.CLASS_COLORS[len(colors) % len(style.CLASS_COLORS)])
        shown = {index: colors[index] for index in most_probable(trace)}
        _image(cells[0], np.asarray(image), name, trace, result.classes)
        _views(cells[1], np.asarray(some_views))
        _steps(cells[2], trace, shown)
        _before_after(cells[3], trace, shown, result.classes)
    save_figure(figure, path)


def most_probable(trace: Floats, count: int = MOST_CLASSES) -> list[int]:
    """Return the classes that matter most before or after adaptation, the most probable one afterwards first."""
    ends = np.nan_to_num(trace[[0, -1]])  # not a number: no prediction
    chosen = np.argsort(-ends.max(0), kind="stable")[:count]
    return sorted(chosen.tolist(), key=lambda index: -float(ends[-1, index]))


def mosaic(views: Floats, columns: int = 4) -> Floats:
    """Lay views (V, 3, H, W) out in a grid with white lines between them, (rows, columns, 3)."""
    count, _, height, width = views.shape
    wall = np.ones((-(-count // columns) * (height + 2) - 2, columns * (width + 2) - 2, 3))
    for place, view in enumerate(views.clip(0, 1).transpose(0, 2, 3, 1)):
        top, left = (height + 2) * (place // columns), (width + 2) * (place % columns)
        wall[top : top + height, left : left + width] = view
    return wall


def _image(axes: Any, image: NDArray[Any], name: str, trace: Floats, classes: Sequence[str]) -> None:
    readable = name.encode(errors="replace").decode()  # bytes that are no text become question marks
    axes.imshow(image.transpose(1, 2, 0))
    axes.set_axis_off()
    axes.set_title(readable if len(readable) <= 20 else f"{readable[:10]}…{readable[-9:]}", fontsize=9)
    for end, height, weight in ((0, -0.03, "normal"), (-1, -0.16, "bold")):
        p = trace[end]
        label = "none" if np.isnan(p).any() else f"{classes[int(p.argmax())]} {p.max():.0%}"
        text = {"ha": "center", "va": "top", "transform": axes.transAxes, "fontsize": 8, "fontweight": weight}
        axes.text(0.5, height, f"{'after' if end else 'before'}: {label}", **text)


def _views(axes: Any, views: Floats) -> None:
    axes.set_axis_off()
    if len(views):
        axes.set_title("some of its views", fontsize=9)
        axes.imshow(mosaic(views))


def _steps(axes: Any, trace: Floats, colors: Mapping[int, str]) -> None:
    for index, color in colors.items():
        axes.plot(trace[:, index], color=color, linewidth=1.6, marker="o", markersize=2.8)
    axes.set_title("probability, step by step", fontsize=9)
    axes.set(ylim=(-0.03, 1.03), xticks=range(0, len(trace), max(1, len(trace) // 10)), xlabel="gradient steps")
    axes.set_yticks(*PERCENT)
    axes.grid(axis="y")


def _before_after(axes: Any, trace: Floats, colors: Mapping[int, str], classes: Sequence[str]) -> None:
    for place, (index, color) in enumerate(colors.items()):
        before, after = np.nan_to_num(trace[[0, -1], index])
        axes.barh(place, after, height=0.62, color=color)
        axes.vlines(before, place - 0.42, place + 0.42, color=INK, linewidth=1.4)
        axes.text(max(before, after) + 0.03, place, f"{before:.0%} → {after:.0%}", fontsize=7.5, va="center")
    axes.set_title("bar: after, black line: before", fontsize=9)
    axes.set(xlim=(0, 1.3), ylim=(max(len(colors), 2) - 0.4, -0.6))
    axes.set_xticks(*PERCENT)
    axes.set_yticks(range(len(colors)), [classes[index] for index in colors], fontsize=8, fontweight="bold")
    for tick, color in zip(axes.get_yticklabels(), colors.values(), strict=True):
        tick.set_color(color)


@styled
def demo_figure(
    path: Path, tiles: Mapping[str, Sequence[Tile]], numbers: pd.DataFrame, title: str, caption: Sequence[str]
) -> None:
    """Draw a row for each line of an accuracy table: some images with their labels, and accuracy before and after.

    ``tiles`` are the images of each corruption; a line without any, such as the average, has the caption in their place.
    """
    columns, rows = max(3, *map(len, tiles.values())), len(numbers)  # as wide as the caption needs
    figure = new_figure(1.8 * columns + 5.6, 0.92 * rows + 1.15)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    grid = figure.add_gridspec(rows, columns + 2, width_ratios=[1.1, *[1.8] * columns, 4.2])
    for row, name in enumerate(numbers.index.get_level_values(0)):
        side = {"fontsize": 9, "fontweight": "bold", "ha": "right", "va": "center"}
        _empty(figure.add_subplot(grid[row, 0])).text(1, 0.5, name.replace("_", "\n"), **side)
        for column, tile in enumerate(tiles.get(name, ())):
            _tile(_empty(figure.add_subplot(grid[row, column + 1])), tile)
        if name not in tiles:
            text = "\n".join(textwrap.fill(line, 27 * columns) for line in caption)
            beside = {"fontsize": 7.5, "color": "#555555", "va": "center", "linespacing": 1.5}
            _empty(figure.add_subplot(grid[row, 1:-1])).text(0, 0.5, text, **beside)
    _chart(figure.add_subplot(grid[:, -1]), numbers)
    save_figure(figure, path)


def _empty(axes: Any) -> Any:
    axes.set_axis_off()
    return axes


def _tile(axes: Any, tile: Tile) -> None:
    """Draw an image and, beside it, its true label, its label before and its label after."""
    axes.imshow(tile.image.transpose(1, 2, 0))
    axes.set_anchor("W")
    text = {"transform": axes.transAxes, "fontsize": 7.5, "va": "center"}
    axes.text(1.06, 0.8, tile.truth, fontweight="bold", **text)
    for height, label in ((0.5, tile.before), (0.2, tile.after)):
        right = label == tile.truth
        axes.text(1.06, height, f"{'✓' if right else '✗'} {label}", color=style.RIGHT if right else style.WRONG, **text)


def _chart(axes: Any, numbers: pd.DataFrame) -> None:
    """Draw accuracy before (open) and after (full) with 95 % intervals, in rows that stand beside the images."""
    places = np.arange(len(numbers)) + 0.5
    for end, aside, color, inside in (
        ("before", -0.14, METHOD_COLORS["source"], "white"),
        ("after", 0.14, METHOD_COLORS["ttaps"], METHOD_COLORS["ttaps"]),
    ):
        axes.hlines(
            places + aside, numbers[f"{end}_low"], numbers[f"{end}_high"], color=color, linewidth=1.5, alpha=0.75
        )
        marker = {"marker": "o", "markersize": 6, "markerfacecolor": inside, "linestyle": "", "clip_on": False}
        axes.plot(numbers[end], places + aside, color=color, label=end, **marker)
    for place, before, after in zip(places, numbers["before"], numbers["after"], strict=True):
        axes.text(103, place, f"{before:.1f} → {after:.1f} %", fontsize=8, va="center")
        axes.axhline(place + 0.5, color="#e8e8e8", linewidth=0.6)
    axes.set(xlim=(0, 100), ylim=(len(numbers), 0), yticks=(), xticks=range(0, 101, 20))
    axes.set_xlabel("accuracy, %, with 95 % interval", fontsize=8)
    axes.grid(axis="x")
    despine(axes, keep=("bottom",))
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=8.5)
