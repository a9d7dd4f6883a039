"""Which images changed their label, with the images: for better first, then for worse."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ttaps.errors import TtapsError
from ttaps.evaluate.plan import Item
from ttaps.report.figures.images import Tile
from ttaps.report.figures.style import RIGHT, WIDTH, WRONG, new_figure, styled

if TYPE_CHECKING:
    from ttaps.evaluate.benchmark import Benchmark

ACROSS, MOST = 5, 10  # images in a row, and of each kind
HEIGHT = 0.96  # inches of an image with its text
Opener = Callable[[str, tuple[str, ...], tuple[int, ...], int], "Benchmark"]


def opener(root: Path | None) -> Opener:
    """Return a function that opens each data set once: a folder of images is read whole for its digest."""

    @cache
    def open_once(name: str, corruptions: tuple[str, ...], severities: tuple[int, ...], size: int) -> Benchmark:
        from ttaps.evaluate.benchmark import open_benchmark  # needs torch, which a report without images does not

        return open_benchmark(name, root, corruptions=corruptions, severities=severities, size=size)

    return open_once


def find_flips(rows: pd.DataFrame, open_data: Opener, size: int) -> tuple[list[Tile], str]:
    """Return some images that one experiment fixed and some that it broke, and the reason if there can be none.

    ``size`` is the image size of its network.
    """
    changed = rows[rows["correct_before"] != rows["correct_after"]]
    chosen = pd.concat([spread(changed[changed[end]], MOST) for end in ("correct_after", "correct_before")])
    if chosen.empty:
        return [], "no image's label became right or wrong"
    try:
        data = _open(rows, open_data, size)
    except TtapsError as error:
        return [], f"the images cannot be read here ({str(error).splitlines()[0].rstrip('.')})"
    if (data.labels[chosen["image"]] != chosen["label"]).any():
        return [], "the model has its classes in another order than the data set"
    if (chosen[["before", "after"]] >= len(data.classes)).any(axis=None):
        return [], "the data set has only some of the model's classes"
    return [make_tile(data, row) for _, row in chosen.iterrows()], ""


def spread(rows: pd.DataFrame, most: int) -> pd.DataFrame:
    """Choose rows from all corruptions in turn, always the same."""
    rows = rows.sort_values(["corruption", "image"])
    return rows.assign(turn=rows.groupby("corruption").cumcount()).sort_values(["turn", "corruption"])[:most]


def _open(rows: pd.DataFrame, open_data: Opener, size: int) -> Benchmark:
    """Open the data set by its stored name; one that has changed since is refused."""
    first = rows.iloc[0]
    corrupted = first["severity"] > 0
    names = tuple(sorted(rows["corruption"].unique())) if corrupted else ()
    data = open_data(first["data"], names, (int(first["severity"]),) if corrupted else (), size)
    if data.digest != first["digest"]:
        raise TtapsError(f"{first['data']} is another data set now than when it was evaluated")
    return data


def make_tile(data: Benchmark, row: Any) -> Tile:
    """Return the image of a stored row with its labels; one that has none any more (not a number) says so."""
    before, after = (data.classes[label] if label >= 0 else "none" for label in (row.before, row.after))
    item = Item(str(row.corruption), int(row.severity), int(row.image))
    return Tile(data.pixels(item), data.classes[row.label], before, after, item.corruption)


@styled
def flips_figure(tiles: list[Tile]) -> Any:
    """Draw images with their corruption and their labels before and after; the text is green where the label was fixed."""
    fixed, broken = ([tile for tile in tiles if tile.fixed is good] for good in (True, False))
    blocks = [block for block in (fixed, broken) if block]
    heights = [HEIGHT * -(-len(block) // ACROSS) + 0.2 for block in blocks]
    figure = new_figure(WIDTH, sum(heights))
    for part, block in zip(np.atleast_1d(figure.subfigures(len(blocks), height_ratios=heights)), blocks, strict=True):
        color, words = (RIGHT, "wrong before, right after") if block is fixed else (WRONG, "right before, wrong after")
        part.suptitle(words, x=0.01, ha="left", color=color)
        grid = part.subplots(-(-len(block) // ACROSS), ACROSS, squeeze=False).ravel()
        for axes, tile in zip(grid, block, strict=False):
            axes.imshow(tile.image.transpose(1, 2, 0))
            axes.set_title(tile.corruption, fontsize=4.6, loc="left")
            text = {"fontsize": 5.6, "transform": axes.transAxes, "va": "top"}
            axes.text(0, -0.04, tile.before, color="#777777", **text)
            axes.text(0, -0.2, f"→ {tile.after}", color=color, **text)
        for axes in grid:
            axes.set_axis_off()
    return figure
