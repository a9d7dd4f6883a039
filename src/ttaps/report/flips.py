"""Which images changed their label, as pictures: for better first, then for worse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ttaps.errors import TtapsError
from ttaps.evaluate import Benchmark, Item, open_benchmark
from ttaps.report.grids import short
from ttaps.report.outcomes import Outcomes, Run
from ttaps.report.pairs import select
from ttaps.report.style import COLUMN, INK, RIGHT, WRONG, new_figure, write

ACROSS, MOST = 5, 10  # pictures in a row, and of each kind
TILE, WORDS = 0.66, 0.3  # inches: a picture with its words below


Opener = Callable[..., Benchmark]


def opener(root: Path | None) -> Opener:
    """Return an ``open_benchmark`` that opens each data set once: a folder is read whole for its digest."""
    return cache(partial(open_benchmark, root=root))


@dataclass(frozen=True, eq=False)
class Flip:
    """A picture whose label changed."""

    picture: NDArray[np.uint8]
    """Shape (3, H, W)."""
    corruption: str
    before: str
    after: str
    fixed: bool


def find_flips(run: Run, severity: int, opened: Opener) -> tuple[list[Flip], str]:
    """Return some images that were put right and some that were put wrong, with their pictures, and a word if there can be none."""
    rows = select(run.rows, severity)
    right = rows["right"]
    fixed, broken = rows[~right[:, 0] & right[:, -1]], rows[right[:, 0] & ~right[:, -1]]
    chosen = [*spread(fixed, MOST), *spread(broken, MOST)]
    if not chosen:
        return [], "no image's label became right or wrong"
    try:
        data = _pictures(run, severity, opened)
    except TtapsError as error:
        return [], f"its pictures cannot be read here ({str(error).splitlines()[0]})"
    if any(data.labels[row["image"]] != row["label"] for row in chosen):
        return [], "the model has its classes in another order than the data set"
    if any(max(row["predictions"]) >= len(data.classes) for row in chosen):
        return [], "the data set has only some of the model's classes"
    return [_flip(data, row) for row in chosen], ""


def spread(rows: Outcomes, most: int) -> list[Any]:
    """Choose rows from all corruptions in turn, always the same."""
    turn = np.zeros(len(rows), dtype=np.int64)
    for name in np.unique(rows["corruption"]):
        members = np.flatnonzero(rows["corruption"] == name)
        turn[members] = np.arange(len(members))
    return list(rows[np.lexsort((rows["corruption"], turn))][:most])


def flips_figure(flips: list[Flip]) -> Any:
    """Draw pictures with their corruption and their labels before and after; those put right have green words."""
    blocks = [block for block in ([f for f in flips if f.fixed], [f for f in flips if not f.fixed]) if block]
    rows = sum(-(-len(block) // ACROSS) for block in blocks)
    height = rows * (TILE + WORDS) + 0.22 * len(blocks)
    figure = new_figure(COLUMN, height)
    wall = figure.add_axes((0, 0, 1, 1))
    wall.set(xlim=(0, COLUMN), ylim=(height, 0))
    wall.set_axis_off()
    top = 0.0
    for block in blocks:
        good = block[0].fixed
        words = "wrong before, right after" if good else "right before, wrong after"
        write(wall, 0.05, top + 0.12, words, fontsize=7.5, fontweight="bold", color=RIGHT if good else WRONG)
        top += 0.22
        for place, flip in enumerate(block):
            _tile(wall, flip, 0.05 + (TILE + 0.005) * (place % ACROSS), top + (TILE + WORDS) * (place // ACROSS))
        top += (TILE + WORDS) * -(-len(block) // ACROSS)
    return figure


def _tile(wall: Any, flip: Flip, left: float, top: float) -> None:
    extent = (left, left + TILE - 0.05, top + TILE - 0.05, top)
    wall.imshow(flip.picture.transpose(1, 2, 0), extent=extent, interpolation="nearest", aspect="auto")
    color = RIGHT if flip.fixed else WRONG
    for place, (words, ink) in enumerate(
        ((short(flip.corruption), INK), (flip.before, "#777777"), (f"→ {flip.after}", color))
    ):
        write(wall, left, top + TILE + 0.005 + 0.085 * place, words, fontsize=5.6, color=ink)


def _pictures(run: Run, severity: int, opened: Opener) -> Benchmark:
    """Open the data set by its stored name, at the size the network takes; one that is not the same any more is refused."""
    experiment = run.experiment
    names = map(str, np.unique(select(run.rows, severity)["corruption"])) if severity > 0 else ()
    severities = (severity,) if severity > 0 else ()
    size = run.facts.get("model", {}).get("image_size", 32)
    data = opened(experiment.data, corruptions=tuple(names), severities=severities, size=size)
    if data.digest != experiment.digest:
        raise TtapsError(f"{experiment.data} is another data set now than when it was evaluated")
    return data


def _flip(data: Benchmark, row: Any) -> Flip:
    before, after = (data.classes[label] if label >= 0 else "none" for label in row["predictions"])
    item = Item(str(row["corruption"]), int(row["severity"]), int(row["image"]))
    return Flip(data.pixels(item), item.corruption, before, after, fixed=bool(row["right"][-1]))
