"""Calibration: how often the model is right when it is so sure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ttaps.report.columns import Column
from ttaps.report.pairs import select
from ttaps.report.style import COLUMN, FAINT, INK, METHOD_COLOURS, new_figure, strip

BINS = 15


@dataclass(frozen=True, eq=False)
class Calibration:
    """Confidence and accuracy of the images in each of some bins of equal width; bins without images are nan."""

    confidence: NDArray[np.float64]
    accuracy: NDArray[np.float64]
    count: NDArray[np.int64]

    @property
    def ece(self) -> float:
        """Expected calibration error in %: the mean gap between confidence and accuracy, weighted by the number of images."""
        gaps = np.nan_to_num(abs(self.confidence - self.accuracy))
        return float(100 * (gaps * self.count).sum() / self.count.sum())


def calibrate(confidence: NDArray[np.float32], right: NDArray[np.bool_], bins: int = BINS) -> Calibration:
    """Sort images into bins ((k - 1) / bins, k / bins] of confidence; a confidence of 0 goes into the first."""
    place = np.clip(np.ceil(confidence.astype(np.float64) * bins).astype(np.int64) - 1, 0, bins - 1)
    count = np.bincount(place, minlength=bins)
    with np.errstate(invalid="ignore"):
        means = [
            np.bincount(place, values.astype(np.float64), minlength=bins) / count for values in (confidence, right)
        ]
    return Calibration(means[0], means[1], count)


def calibration_of(column: Column, severity: int | None, end: int) -> Calibration:
    """Return a column's calibration before adaptation (end 0) or after it (end -1), all corruptions and seeds together."""
    rows = [select(run.rows, severity) for run in column.runs]
    confidence = np.concatenate([part["confidence"][:, end] for part in rows])
    return calibrate(confidence, np.concatenate([part["right"][:, end] for part in rows]))


def reliability_figure(column: Column, severity: int | None) -> Any:
    """Draw accuracy against confidence before and after adaptation, with the share of images in each bin below."""
    figure = new_figure(COLUMN, 2.45)
    for place, (words, end, color) in enumerate((("before", 0, METHOD_COLOURS["source"]), ("after", -1, column.color))):
        found = calibration_of(column, severity, end)
        left = 0.13 + 0.44 * place
        above = figure.add_axes((left, 0.38, 0.39, 0.5))
        below = figure.add_axes((left, 0.17, 0.39, 0.15))
        _diagram(above, found, color)
        above.set_title(f"{words}: ECE {found.ece:.1f} %", fontsize=7.5, color=INK, pad=3)
        centres = (np.arange(BINS) + 0.5) / BINS
        below.bar(centres, found.count / found.count.sum(), width=0.9 / BINS, color=color)
        below.set(xlim=(0, 1), yticks=())
        below.set_xticks((0, 0.5, 1), ("0", "0.5", "1"))
        below.set_xlabel("confidence", fontsize=7, color=INK, labelpad=1)
        strip(below, keep=("bottom",))
        if place:
            above.tick_params(labelleft=False)
        else:
            above.set_ylabel("accuracy", fontsize=7, color=INK, labelpad=1)
            below.set_ylabel("images", fontsize=7, color=INK, labelpad=10)
    return figure


def _diagram(axes: Any, found: Calibration, color: str) -> None:
    centres = (np.arange(BINS) + 0.5) / BINS
    axes.bar(centres, np.nan_to_num(found.accuracy), width=0.9 / BINS, color=color, alpha=0.75, linewidth=0)
    axes.plot([0, 1], [0, 1], color=FAINT, linewidth=0.8, linestyle="--")
    axes.plot(found.confidence, found.accuracy, linestyle="", marker="_", markersize=4, color=INK)
    axes.set(xlim=(0, 1), ylim=(0, 1), xticks=(0, 0.5, 1))
    axes.set_yticks((0, 0.5, 1), ("0", "0.5", "1"))
    axes.tick_params(labelbottom=False)
    strip(axes)
