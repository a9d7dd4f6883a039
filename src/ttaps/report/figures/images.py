"""Figures with images: the effect of adaptation on a few. They are drawn from arrays only."""

import textwrap
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from ttaps.errors import TtapsError
from ttaps.evaluation.plan import Item
from ttaps.report.columns import Results
from ttaps.report.figures.style import CLASS_COLORS, INK, METHOD_COLORS, RIGHT, WRONG, new_figure, save_figure, styled

MOST_ROWS = 20  # images in one figure; a taller one cannot be read
PERCENT = ((0, 0.5, 1), ("0", "50 %", "100 %"))
ACROSS, MOST_FLIPS = 5, 10  # images in a row, and of each kind
FILE_NAME = 20  # characters that fit above one of them
Floats = NDArray[np.float64]
Arrays = Sequence[ArrayLike]


class Tile(NamedTuple):
    """An image, uint8 (3, H, W), with its true and predicted labels."""

    image: NDArray[np.uint8]
    truth: str
    before: str
    after: str
    corruption: str = ""
    file: str = ""


def make_tile(data: Any, row: Any) -> Tile:
    """Return the image of a stored row of a benchmark with its labels; one that has none any more (not a number) says so."""
    before, after = (data.classes[label] if label >= 0 else "none" for label in (row.before, row.after))
    item = Item(str(row.corruption), int(row.severity), int(row.image))
    return Tile(data.pixels(item), data.classes[row.label], before, after, item.corruption, str(row.file))


def find_flips(
    rows: pd.DataFrame, results: Results, root: Path | None, opened: dict[Any, Any]
) -> tuple[list[Tile], str]:
    """Return images that an experiment fixed or broke, or why there are none."""
    changed = rows[rows["correct_before"] != rows["correct_after"]]
    chosen = pd.concat([spread(changed[changed[end]], MOST_FLIPS) for end in ("correct_after", "correct_before")])
    if chosen.empty:
        return [], "no image's label became right or wrong"
    try:
        data = open_images(rows, results, root, opened)
    except TtapsError as error:
        return [], f"the images cannot be read here ({str(error).splitlines()[0].rstrip('.')})"
    if classes := results.classes.get(str(rows["fingerprint"].iat[0]), ()):
        data = data.numbered_as(classes) or data
    if (data.labels[chosen["image"]] != chosen["label"]).any():
        return [], "the model's classes are in another order than the data set's"
    if (chosen[["before", "after"]] >= len(data.classes)).any(axis=None):
        return [], "the data set has only some of the model's classes"
    return [make_tile(data, row) for _, row in chosen.iterrows()], ""


def open_images(rows: pd.DataFrame, results: Results, root: Path | None, opened: dict[Any, Any]) -> Any:
    """Open the images of an experiment, at their location when it was evaluated or in ``root``."""
    from ttaps.evaluation.benchmark import open_benchmark  # needs torch, which a report without images does not

    fingerprint, name, digest, severity = rows.iloc[0][["fingerprint", "data", "digest", "severity"]]
    size = results.models.get(fingerprint, {}).get("model", {}).get("image_size", 32)
    corruptions = tuple(sorted(rows["corruption"].unique()))
    conditions = {"corruptions": corruptions, "severities": (int(severity),)} if severity else {}
    source, kept = results.sources.get((name, digest), (name, ""))
    folder = root or (Path(kept) if kept else None)
    problem = TtapsError(f"{name} is not the data set that was evaluated")
    moved = [root / Path(source).name] if root else []
    for place in (source, *(str(path) for path in moved if path.exists())):
        key = (place, size, *conditions.values())
        try:
            data = opened[key] = opened.get(key) or open_benchmark(place, folder, size=size, **conditions)
        except TtapsError as error:
            problem = error
            continue
        if data.digest == digest:
            return data
    raise problem


def spread(rows: pd.DataFrame, most: int) -> pd.DataFrame:
    """Choose rows from all corruptions in turn, always the same."""
    rows = rows.sort_values(["corruption", "image"])
    return rows.assign(turn=rows.groupby("corruption").cumcount()).sort_values(["turn", "corruption"])[:most]


@styled()
def flips_figure(tiles: Sequence[Tile]) -> Any:
    """Draw images, fixed ones first, with their file, corruption and labels before and after (green if fixed)."""
    blocks = [(fixed, list(own)) for fixed, own in groupby(tiles, key=lambda tile: tile.after == tile.truth)]
    rows = [-(-len(block) // ACROSS) for _, block in blocks]
    heights = [0.96 * count + 0.2 for count in rows]
    figure = new_figure(sum(heights))
    parts = np.atleast_1d(figure.subfigures(len(blocks), height_ratios=heights))
    for part, count, (fixed, block) in zip(parts, rows, blocks, strict=True):
        color, words = (RIGHT, "wrong before, right after") if fixed else (WRONG, "right before, wrong after")
        part.suptitle(words, x=0.01, ha="left", color=color)
        grid = part.subplots(count, ACROSS, squeeze=False).ravel()
        for axes, tile in zip(grid, block, strict=False):
            axes.imshow(tile.image.transpose(1, 2, 0))
            head = "\n".join(filter(None, (shortened(tile.file, FILE_NAME), tile.corruption)))
            axes.set_title(head, fontsize=4.6, loc="left")
            text = {"fontsize": 5.6, "transform": axes.transAxes, "va": "top"}
            axes.text(0, -0.04, tile.before, color="#777777", **text)
            axes.text(0, -0.2, f"→ {tile.after}", color=color, **text)
        for axes in grid:
            axes.set_axis_off()
    return figure


@styled()
def adaptation_figure(path: Path, names: Sequence[str], images: Arrays, views: Arrays, results: Sequence[Any]) -> None:
    """Draw a row for each of the first 20 images: itself, some views, class probabilities over the steps, and before and after.
    Images are uint8 (3, H, W), views float (V, 3, H, W) in [0, 1]; a result has a ``trace`` (steps + 1, classes) and ``classes``."""
    rows = min(len(names), MOST_ROWS)
    figure = new_figure(2.1 * rows + 0.15, 11)
    grid = figure.subplots(rows, 4, squeeze=False, width_ratios=(1.5, 2.8, 2.6, 2.6))
    colors: dict[int, str] = {}
    drawn = zip(grid, names, images, views, results, strict=False)
    for (itself, wall, steps, bars), name, image, some_views, result in drawn:
        trace = np.asarray(result.trace, dtype=float)
        ends = np.nan_to_num(trace[[0, -1]])  # not a number: no prediction
        most = np.argsort(-ends.max(0), kind="stable")[:4]  # that matter most before or after adaptation
        shown = sorted(most.tolist(), key=lambda index: -float(ends[-1, index]))
        for index in shown:
            colors.setdefault(index, CLASS_COLORS[len(colors) % len(CLASS_COLORS)])
        _image(itself, np.asarray(image), name, trace, result.classes)
        wall.set_axis_off()
        if len(array := np.asarray(some_views)):
            wall.set_title("some of its views", fontsize=9)
            wall.imshow(mosaic(array))
        if (trace != trace[0]).any():
            _steps(steps, trace, {index: colors[index] for index in shown})
        else:
            steps.set_axis_off()
            steps.text(0.5, 0.5, "left unchanged", ha="center", va="center", transform=steps.transAxes, fontsize=9)
        _before_after(bars, trace, {index: colors[index] for index in shown}, result.classes)
    save_figure(figure, path)


def mosaic(views: Floats, columns: int = 4) -> Floats:
    """Lay views (V, 3, H, W) out in a grid with white lines between them, (rows, columns, 3)."""
    count, _, height, width = views.shape
    apart = np.pad(views.astype(float).clip(0, 1), ((0, -count % columns), (0, 0), (0, 2), (0, 2)), constant_values=1)
    rows = apart.reshape(-1, columns, 3, height + 2, width + 2).transpose(0, 3, 1, 4, 2)
    return rows.reshape(-1, columns * (width + 2), 3)[:-2, :-2]


def shortened(name: str, most: int) -> str:
    """Shorten a file's name to its beginning and end; bytes that are not text become question marks."""
    readable = name.encode(errors="replace").decode()
    return readable if len(readable) <= most else f"{readable[: most // 2]}…{readable[-(most // 2 - 1) :]}"


def _image(axes: Any, image: NDArray[Any], name: str, trace: Floats, classes: Sequence[str]) -> None:
    axes.imshow(image.transpose(1, 2, 0))
    axes.set_axis_off()
    axes.set_title(shortened(name, 20), fontsize=9)
    for end, p, height, weight in (("before", trace[0], -0.03, "normal"), ("after", trace[-1], -0.16, "bold")):
        label = "none" if np.isnan(p).any() else f"{classes[int(p.argmax())]} {p.max():.0%}"
        text = {"ha": "center", "va": "top", "transform": axes.transAxes, "fontsize": 8, "fontweight": weight}
        axes.text(0.5, height, f"{end}: {label}", **text)


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


@styled()
def demo_figure(
    path: Path, tiles: Mapping[str, Sequence[Tile]], numbers: pd.DataFrame, title: str, caption: Sequence[str]
) -> None:
    """Draw a row for each line of an accuracy table: images of that corruption, or the caption, and accuracy before and after."""
    columns, rows = max(3, *map(len, tiles.values())), len(numbers)  # as wide as the caption needs
    figure = new_figure(0.92 * rows + 1.15, 1.8 * columns + 5.6)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    grid = figure.add_gridspec(rows, columns + 2, width_ratios=[1.1, *[1.8] * columns, 4.2])
    for row, name in enumerate(numbers.index.get_level_values(0)):
        side = {"fontsize": 9, "fontweight": "bold", "ha": "right", "va": "center"}
        figure.add_subplot(grid[row, 0]).text(1, 0.5, name.replace("_", "\n"), **side)
        for column, tile in enumerate(tiles.get(name, ())):
            axes = figure.add_subplot(grid[row, column + 1])
            axes.imshow(tile.image.transpose(1, 2, 0))
            axes.set_anchor("W")
            text = {"transform": axes.transAxes, "fontsize": 7.5, "va": "center"}
            axes.text(1.06, 0.8, tile.truth, fontweight="bold", **text)
            for height, label in ((0.5, tile.before), (0.2, tile.after)):
                mark, color = ("✓", RIGHT) if label == tile.truth else ("✗", WRONG)
                axes.text(1.06, height, f"{mark} {label}", color=color, **text)
        if name not in tiles:
            words = "\n".join(textwrap.fill(line, 27 * columns) for line in caption)
            beside = {"fontsize": 7.5, "color": "#555555", "va": "center", "linespacing": 1.5}
            figure.add_subplot(grid[row, 1:-1]).text(0, 0.5, words, **beside)
    for axes in figure.axes:
        axes.set_axis_off()
    _chart(figure.add_subplot(grid[:, -1]), numbers)
    save_figure(figure, path)


def _chart(axes: Any, numbers: pd.DataFrame) -> None:
    """Draw accuracy before (open) and after (full) with 95 % intervals, in rows that stand beside the images."""
    places = np.arange(len(numbers)) + 0.5
    gray, blue = METHOD_COLORS["source"], METHOD_COLORS["ttaps"]
    for end, y, color, inside in (("before", places - 0.14, gray, "white"), ("after", places + 0.14, blue, blue)):
        axes.hlines(y, numbers[f"{end}_low"], numbers[f"{end}_high"], color=color, linewidth=1.5, alpha=0.75)
        marker = {"marker": "o", "markersize": 6, "markerfacecolor": inside, "linestyle": "", "clip_on": False}
        axes.plot(numbers[end], y, color=color, label=end, **marker)
    for place, before, after in zip(places, numbers["before"], numbers["after"], strict=True):
        axes.text(103, place, f"{before:.1f} → {after:.1f} %", fontsize=8, va="center")
        axes.axhline(place + 0.5, color="#e8e8e8", linewidth=0.6)
    axes.set(xlim=(0, 100), ylim=(len(numbers), 0), yticks=(), xticks=range(0, 101, 20))
    axes.set_xlabel("accuracy, %, with 95 % interval", fontsize=8)
    axes.grid(axis="x")
    axes.spines.left.set_visible(False)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=8.5)
