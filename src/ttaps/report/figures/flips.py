"""Which images changed their label, with the images: for better first, then for worse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ttaps.errors import TtapsError
from ttaps.evaluate.plan import Item
from ttaps.report.figures.style import COLUMN, RIGHT, WRONG, new_figure, styled
from ttaps.report.tables import short_name

if TYPE_CHECKING:
    from ttaps.evaluate.benchmark import Benchmark

ACROSS, MOST = 5, 10  # images in a row, and of each kind
TILE = 0.96  # inches: the height of an image with its text
Opener = Callable[[str, tuple[str, ...], tuple[int, ...], int], "Benchmark"]


def opener(root: Path | None) -> Opener:
    """Return a function that opens each data set once: a folder of images is read whole for its digest."""
    from ttaps.evaluate.benchmark import open_benchmark  # here: it needs torch, and only images do

    @cache
    def open_once(name: str, corruptions: tuple[str, ...], severities: tuple[int, ...], size: int) -> Benchmark:
        return open_benchmark(name, root, corruptions=corruptions, severities=severities, size=size)

    return open_once


@dataclass(frozen=True, eq=False)
class Flip:
    """An image whose label changed."""

    image: NDArray[np.uint8]
    """Shape (3, H, W)."""
    corruption: str
    before: str
    after: str
    fixed: bool


def find_flips(rows: pd.DataFrame, open_data: Opener, size: int) -> tuple[list[Flip], str]:
    """Return some images that were fixed and some that were broken by one experiment, and the reason if there can be none.

    ``size`` is the image size of its network.
    """
    fixed, broken = rows[~rows["correct_before"] & rows["correct_after"]], rows[rows["correct_before"] & ~rows["correct_after"]]
    chosen = pd.concat([spread(fixed, MOST), spread(broken, MOST)])
    if chosen.empty:
        return [], "no image's label became right or wrong"
    try:
        data = _open(rows, open_data, size)
    except TtapsError as error:
        return [], f"its images cannot be read here ({str(error).splitlines()[0]})"
    if (data.labels[chosen["image"]] != chosen["label"]).any():
        return [], "the model has its classes in another order than the data set"
    if chosen[["before", "after"]].max(axis=None) >= len(data.classes):
        return [], "the data set has only some of the model's classes"
    return [_flip(data, row) for row in chosen.itertuples()], ""


def spread(rows: pd.DataFrame, most: int) -> pd.DataFrame:
    """Choose rows from all corruptions in turn, always the same."""
    rows = rows.sort_values(["corruption", "image"])
    return rows.assign(turn=rows.groupby("corruption").cumcount()).sort_values(["turn", "corruption"])[:most]


@styled
def flips_figure(flips: list[Flip]) -> Any:
    """Draw images with their corruption and their labels before and after; text is green where the label was fixed."""
    blocks = [block for block in ([f for f in flips if f.fixed], [f for f in flips if not f.fixed]) if block]
    rows = [-(-len(block) // ACROSS) for block in blocks]
    figure = new_figure(COLUMN, TILE * sum(rows) + 0.2 * len(blocks))
    parts = np.atleast_1d(figure.subfigures(len(blocks), height_ratios=[TILE * count + 0.2 for count in rows]))
    for part, block, count in zip(parts, blocks, rows, strict=True):
        color = RIGHT if block[0].fixed else WRONG
        words = "wrong before, right after" if block[0].fixed else "right before, wrong after"
        part.suptitle(words, x=0.01, ha="left", color=color)
        tiles = part.subplots(count, ACROSS, squeeze=False).flat
        for axes in tiles:
            axes.set_axis_off()
        for axes, flip in zip(tiles, block, strict=False):
            axes.imshow(flip.image.transpose(1, 2, 0))
            text = {"fontsize": 5.6, "transform": axes.transAxes, "va": "top"}
            axes.set_title(short_name(flip.corruption), fontsize=5.6, loc="left")
            axes.text(0, -0.04, flip.before, color="#777777", **text)
            axes.text(0, -0.2, f"→ {flip.after}", color=color, **text)
    return figure


def _open(rows: pd.DataFrame, open_data: Opener, size: int) -> Benchmark:
    """Open the data set by its stored name; one that has changed since is refused."""
    first = rows.iloc[0]
    corrupted = first["severity"] > 0
    names = tuple(sorted(rows["corruption"].unique())) if corrupted else ()
    data = open_data(first["data"], names, (int(first["severity"]),) if corrupted else (), size)
    if data.digest != first["digest"]:
        raise TtapsError(f"{first['data']} is another data set now than when it was evaluated")
    return data


def _flip(data: Benchmark, row: Any) -> Flip:
    before, after = (data.classes[label] if label >= 0 else "none" for label in (row.before, row.after))
    item = Item(str(row.corruption), int(row.severity), int(row.image))
    return Flip(data.pixels(item), item.corruption, before, after, fixed=bool(row.correct_after))
