"""Charts: accuracy over gradient steps (the paper's Fig. 3), severities and corruptions, effects of settings, calibration, projections."""

import warnings
import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ttaps.errors import DataError
from ttaps.evaluation.frame import IDENTITY, ITEM, beside_first
from ttaps.evaluation.statistics import AVERAGE, BINS, calibration_error, confidence_bins, measure, signed
from ttaps.report.columns import RUN, TableColumn
from ttaps.report.figures import style
from ttaps.report.figures.style import FAINT, INK, legend_above, new_figure, styled, two_panels
from ttaps.report.tables import SEVERITY, Table, in_metric

MANY = 4  # lines: with more of them bands hide each other, and only the last point has its interval
Series = Mapping[str, tuple[style.SeriesStyle, pd.DataFrame]]  # by label: its look, and statistics of its points
BAR = 0.38  # of a row's height
BEFORE = "#bfbfbf"
PROJECTIONS = ("z", "labels", "prototypes", "prototype_labels", "classes", "model", "fingerprint", "data")


def step_changes(rows: pd.DataFrame, traces: pd.DataFrame) -> pd.DataFrame:
    """Return, by step from 0 on, accuracy before adaptation and after that step, averaged over corruptions and seeds. With several seeds
    ``low`` and ``high`` are a standard deviation over them away, as in the paper; with one they are the interval over images."""
    pairs = beside_first(traces.merge(rows[[*IDENTITY, *ITEM]]))
    found = pd.DataFrame({step: measure(part) for step, part in pairs.groupby("step")}).T
    each = pd.DataFrame({run: measure(part) for run, part in pairs.groupby(["step", *RUN])}).T
    deviation = each.groupby(level=0).std()
    for name in ("after", "change") if deviation["after"].notna().all() else ():
        found[f"{name}_low"] = found[name] - deviation[name]
        found[f"{name}_high"] = found[name] + deviation[name]
    found.loc[0, ["change_low", "change_high"]] = 0.0  # nothing has changed before the first step
    return found


def by_prototypes(columns: Sequence[TableColumn]) -> list[list[TableColumn]]:
    """Return groups of columns that differ in K only, in the order of a table: from small to large."""
    groups = defaultdict(list)
    for column in columns:
        groups[column.training, column.spec, column.protocol].append(column)
    return [group for group in groups.values() if len({column.num_prototypes for column in group}) > 1]


def severity_figure(table: Table) -> Any:
    """Draw accuracy at each severity of a table by severity, and its paired change; of very many columns those that adapt."""
    series = {}
    for column in table.columns if len(table.columns) <= 2 * MANY else table.adapting or table.columns:
        numbers = in_metric(table.of(column).drop(index=AVERAGE), table.metric)  # an error of an error is an accuracy
        numbers = numbers.set_axis([int(name.removeprefix(SEVERITY)) for name in numbers.index])
        series[column.head] = column.style, numbers if column.adapts else numbers.assign(change=float("nan"))
    return lines_figure(series, "severity")


@styled()
def lines_figure(series: Series, x_label: str) -> Any:
    """Draw accuracies above, and the paired change below, with narrower 95 % intervals since most images keep their label."""
    figure, above, below = two_panels(list(series), "accuracy, %", "change, points", x_label)
    for number, (label, (look, numbers)) in enumerate(series.items()):
        for axes, name in ((above, "after"), (below, "change")):
            values = numbers[[name, f"{name}_low", f"{name}_high"]].dropna()
            if values.empty:
                continue
            places, (middle, low, high) = values.index, values.to_numpy().T
            if len(series) <= MANY:
                axes.fill_between(places, low, high, color=look.color, alpha=0.15, linewidth=0)
            else:
                x = places[-1] + max(places[-1], 4) * (0.02 + 0.08 * number / len(series))
                axes.plot([x, x], [low[-1], high[-1]], color=look.color, linewidth=1.1)
            axes.plot(places, middle, color=look.color, linestyle=look.dashes, marker=look.marker, label=label)
    below.axhline(0, color=FAINT, linewidth=0.8, zorder=0)
    every = sorted({place for _, numbers in series.values() for place in numbers.index})
    below.set_xticks(every[:: max(1, (len(every) - 1) // 10)])
    legend_above(figure, above)
    return figure


@styled()
def bars_figure(table: Table, column: TableColumn) -> Any:
    """Draw two bars for each corruption with their 95 % intervals; the average is last."""
    numbers = in_metric(table.of(column), table.metric)  # an error of an error is an accuracy
    places = np.arange(len(numbers))
    figure = new_figure(0.27 * len(numbers) + 0.12 * column.head.count("\n") + 0.85)
    axes = figure.subplots()
    for end, aside, color in (("before", -BAR / 2, BEFORE), ("after", BAR / 2, column.style.color)):
        label = f"after {column.head}" if end == "after" else end
        axes.barh(places + aside, numbers[end], BAR, color=color, linewidth=0, label=label)
        axes.hlines(places + aside, numbers[f"{end}_low"], numbers[f"{end}_high"], color=INK, linewidth=0.7)
    for place, change in zip(places, numbers["change"], strict=True):
        axes.text(101, place, signed(change), fontsize=6.5, va="center")
    axes.set_yticks(places, list(numbers.index))
    axes.set(xlim=(0, 100), ylim=(len(numbers) - 0.4, -0.6), xlabel="accuracy, %, with 95 % interval")
    if numbers.index[-1] == AVERAGE:
        axes.axhline(len(numbers) - 1.5, color=INK, linewidth=0.6)
    axes.grid(axis="x")
    legend_above(figure, axes)
    return figure


@styled()
def tuning_figure(effects: pd.DataFrame) -> Any:
    """Draw, for every value of every setting, the best gain of each candidate that had it as a dot, and their mean as a line."""
    groups = list(effects.groupby(["method", "setting", "value"], sort=True))
    figure = new_figure(0.14 * len(groups) + 0.7, width=5.0)
    axes = figure.subplots()
    for place, ((method, _, _), own) in enumerate(groups):
        heights, color = np.full(len(own), place), style.METHOD_COLORS[method]
        axes.scatter(own["gain"], heights, s=5, color=color, alpha=0.5, linewidths=0)
        axes.vlines(own["gain"].mean(), place - 0.4, place + 0.4, color=INK, linewidth=1)
    for place in [place for place in range(1, len(groups)) if groups[place][0][:2] != groups[place - 1][0][:2]]:
        axes.axhline(place - 0.5, color=FAINT, linewidth=0.3)
    axes.axvline(0, color=FAINT, linewidth=0.8, zorder=0)
    axes.set_yticks(range(len(groups)), [f"{method}: {setting} = {value}" for (method, setting, value), _ in groups])
    axes.tick_params(axis="y", labelsize=5)
    axes.set(ylim=(len(groups) - 0.5, -0.5), xlabel="gain over the source model, points (mean over severities 0 to 5)")
    axes.grid(axis="x")
    return figure


def calibration(confidence: pd.Series, correct: pd.Series) -> pd.DataFrame:
    """Return mean confidence, accuracy and number of images by bin, as :func:`confidence_bins` numbers them."""
    frame = pd.DataFrame({"confidence": confidence, "accuracy": correct}, dtype=float)
    grouped = frame.groupby(confidence_bins(frame["confidence"].to_numpy()))
    return grouped.mean().assign(count=grouped.size()).reindex(range(BINS)).fillna({"count": 0})


@styled()
def reliability_figure(column: TableColumn, rows: pd.DataFrame) -> Any:
    """Draw accuracy against confidence before and after adaptation, with the share of images in each bin below."""
    figure = new_figure(2.45)
    axes = figure.subplots(2, 2, sharex=True, sharey="row", height_ratios=(3, 1))
    centers = (np.arange(BINS) + 0.5) / BINS
    for end, color, (above, below) in zip(("before", "after"), (BEFORE, column.style.color), axes.T, strict=True):
        confidence, right = rows[f"confidence_{end}"], rows[f"correct_{end}"]
        bins, error = calibration(confidence, right), calibration_error(confidence, right)
        above.bar(centers, bins["accuracy"].fillna(0), width=0.9 / BINS, color=color, alpha=0.75, linewidth=0)
        above.plot([0, 1], [0, 1], color=FAINT, linewidth=0.8, linestyle="--")
        above.plot(bins["confidence"], bins["accuracy"], linestyle="", marker="_", markersize=4, color=INK)
        above.set(ylim=(0, 1.03), title=f"{end}: ECE {error:.1f} %")
        above.set_yticks((0, 0.5, 1), ("0", "0.5", "1"))
        below.bar(centers, bins["count"] / bins["count"].sum(), width=0.9 / BINS, color=color)
        below.set(xlim=(-0.02, 1.02), xlabel="confidence", yticks=())
        below.set_xticks((0, 0.5, 1), ("0", "0.5", "1"))
        below.spines.left.set_visible(False)
    axes[0, 0].set_ylabel("accuracy")
    axes[1, 0].set_ylabel("images")
    return figure


@styled()
def projection_map(path: Path) -> tuple[str, str, Any]:
    """Return name, caption and figure of the map of stored projections: images as dots, prototypes as squares."""
    arrays = read_projections(path)
    labels, classes = arrays["labels"], arrays["classes"]
    points, way = to_plane(np.concatenate([arrays["z"], arrays["prototypes"]]))
    images, squares = points[: len(labels)], points[len(labels) :]
    figure = new_figure(2.6)
    axes = figure.subplots()
    for label, (name, color) in enumerate(zip(classes, style.class_colors(len(classes)), strict=True)):
        dots = {"alpha": 0.55, "linewidths": 0, "label": str(name), "rasterized": True}
        axes.scatter(*images[labels == label].T, s=2, color=color, **dots)
        own = squares[arrays["prototype_labels"] == label]
        axes.scatter(*own.T, s=9, marker="s", color=color, edgecolors=INK, linewidths=0.4)
    axes.set_axis_off()
    if len(classes) <= 20:
        figure.legend(loc="outside right center", markerscale=2.5, handletextpad=0.1)
    data, model, fingerprint = (str(arrays[name]) for name in ("data", "model", "fingerprint"))
    caption = f"{data}: projections z of {len(images)} images before adaptation, colored by class ({way}), model {model} ({fingerprint}); "
    caption += "squares are prototypes, colored by the class the classifier gives them."
    return f"{data}-{model}-{fingerprint}", caption, figure


def read_projections(path: Path) -> dict[str, NDArray[Any]]:
    """Read stored projections; refuse a file without them or with only a part."""
    remedy = "Remove it, or write it again with ttaps evaluate --projections."
    damaged = DataError(f"{path} is damaged or holds no projections.\n{remedy}")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in PROJECTIONS}
    except (OSError, EOFError, ValueError, KeyError, TypeError, BadZipFile, zlib.error) as error:
        raise damaged from error
    z, prototypes = arrays["z"], arrays["prototypes"]
    labeled = (len(z), len(prototypes)) == (len(arrays["labels"]), len(arrays["prototype_labels"]))
    if not labeled or z.ndim != 2 or z.shape[1:] != prototypes.shape[1:] or len(z) + len(prototypes) < 3:
        raise damaged  # fewer than three points make no map
    return arrays


def to_plane(z: NDArray[Any]) -> tuple[NDArray[np.float64], str]:
    """Project vectors (N, Z) to the plane by UMAP if installed, else by PCA; return the points and the method."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # umap warns of its own choices
        try:
            import umap
        except ImportError:
            centered = z.astype(np.float64) - z.mean(0, dtype=np.float64)
            return centered @ np.linalg.svd(centered, full_matrices=False)[2][:2].T, "PCA"
        return umap.UMAP(n_neighbors=min(15, len(z) - 1), metric="cosine", random_state=0).fit_transform(z), "UMAP"
