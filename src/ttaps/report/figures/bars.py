"""Accuracy under each corruption before and after adaptation, as bars; and how well confidence predicts it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ttaps.evaluate.statistics import AVERAGE, signed
from ttaps.report.columns import TableColumn
from ttaps.report.figures.style import COLUMN, FAINT, INK, despine, legend_above, new_figure, styled
from ttaps.report.tables import Table, in_metric

BAR = 0.38  # of a row's height
BINS = 15
BEFORE = "#bfbfbf"
ENDS = ("before", "after")


@styled
def bars_figure(table: Table, column: TableColumn) -> Any:
    """Draw two bars for each corruption with their 95 % intervals; the average is last."""
    numbers = in_metric(table.numbers.loc[column.label], table.metric)  # an error of an error is an accuracy
    places = np.arange(len(numbers))
    figure = new_figure(COLUMN, 0.27 * len(numbers) + 0.85)
    axes = figure.subplots()
    names = {"before": "before", "after": f"after {column.label}"}
    for end, aside, color in (("before", -BAR / 2, BEFORE), ("after", BAR / 2, column.style.color)):
        axes.barh(places + aside, numbers[end], BAR, color=color, linewidth=0, label=names[end])
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


def calibration(confidence: pd.Series, correct: pd.Series, bins: int = BINS) -> pd.DataFrame:
    """Return mean confidence, accuracy and number of images by bin ((k - 1) / bins, k / bins]; 0 belongs to the first."""
    place = np.clip(np.ceil(confidence.astype(float) * bins) - 1, 0, bins - 1).astype(int)
    frame = pd.DataFrame({"confidence": confidence.astype(float), "accuracy": correct.astype(float)})
    grouped = frame.groupby(place)
    return grouped.mean().assign(count=grouped.size()).reindex(range(bins)).fillna({"count": 0})


def calibration_error(bins: pd.DataFrame) -> float:
    """Return the expected calibration error in %: the mean gap of confidence and accuracy, weighted by the number of images."""
    gaps = (bins["confidence"] - bins["accuracy"]).abs().fillna(0)
    return float(100 * (gaps * bins["count"]).sum() / bins["count"].sum())


@styled
def reliability_figure(column: TableColumn, rows: pd.DataFrame) -> Any:
    """Draw accuracy against confidence before and after adaptation, with the share of images in each bin below."""
    figure = new_figure(COLUMN, 2.45)
    axes = figure.subplots(2, 2, sharex=True, sharey="row", height_ratios=(3, 1))
    centers = (np.arange(BINS) + 0.5) / BINS
    for end, (above, below) in zip(ENDS, axes.T, strict=True):
        color = BEFORE if end == "before" else column.style.color
        bins = calibration(rows[f"confidence_{end}"], rows[f"correct_{end}"])
        above.bar(centers, bins["accuracy"].fillna(0), width=0.9 / BINS, color=color, alpha=0.75, linewidth=0)
        above.plot([0, 1], [0, 1], color=FAINT, linewidth=0.8, linestyle="--")
        above.plot(bins["confidence"], bins["accuracy"], linestyle="", marker="_", markersize=4, color=INK)
        above.set(xlim=(-0.02, 1.02), ylim=(0, 1.03), title=f"{end}: ECE {calibration_error(bins):.1f} %")
        above.set_yticks((0, 0.5, 1), ("0", "0.5", "1"))
        below.bar(centers, bins["count"] / bins["count"].sum(), width=0.9 / BINS, color=color)
        below.set(xlabel="confidence", yticks=())
        below.set_xticks((0, 0.5, 1), ("0", "0.5", "1"))
        despine(below, keep=("bottom",))
    axes[0, 0].set_ylabel("accuracy")
    axes[1, 0].set_ylabel("images")
    return figure
