"""Charts of a table: accuracy over gradient steps (the paper's figure 3), over severities and by corruption, and calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ttaps.evaluate.frame import IDENTITY, ITEM
from ttaps.evaluate.statistics import AVERAGE, measure, signed
from ttaps.report.columns import TableColumn
from ttaps.report.figures.style import (
    FAINT,
    INK,
    WIDTH,
    SeriesStyle,
    despine,
    legend_above,
    new_figure,
    styled,
    two_panels,
)
from ttaps.report.tables import SEVERITY, Table, in_metric

MANY = 4  # lines: with more of them bands hide each other, and only the last point has its interval
Series = Mapping[str, tuple[SeriesStyle, pd.DataFrame]]
"""By label: how a line is drawn, and the statistics of its points by place."""
BAR = 0.38  # of a row's height
BINS = 15
BEFORE = "#bfbfbf"
ENDS = ("before", "after")


def step_changes(rows: pd.DataFrame, traces: pd.DataFrame) -> pd.DataFrame:
    """Return, by step from 0 on, accuracy before adaptation and after that step, averaged over corruptions and seeds."""
    key = [*IDENTITY, *ITEM]
    own = traces.merge(rows[key])
    first = own.loc[own["step"] == 0, [*key, "correct"]].rename(columns={"correct": "correct_before"})
    pairs = own.rename(columns={"correct": "correct_after"}).merge(first, on=key)
    found = pd.DataFrame({step: measure(part) for step, part in pairs.groupby("step")}).T
    found.loc[0, ["change_low", "change_high"]] = 0.0  # nothing has changed before the first step
    return found


def steps_figure(series: Series) -> Any:
    """Draw accuracy over gradient steps, and its paired change since step 0."""
    most = max(int(numbers.index[-1]) for _, numbers in series.values())
    return lines_figure(series, "gradient steps", range(0, most + 1, max(1, most // 10)))


def severity_figure(table: Table) -> Any:
    """Draw accuracy at each severity of a table by severity, and its paired change; of very many columns those that adapt."""
    shown = table.columns if len(table.columns) <= 2 * MANY else table.adapting or table.columns
    series = {}
    for column in shown:
        numbers = table.of(column).drop(index=AVERAGE)
        numbers = in_metric(numbers, table.metric)  # an error of an error is an accuracy
        numbers = numbers.set_axis([int(name.removeprefix(SEVERITY)) for name in numbers.index])
        series[column.label] = column.style, numbers if column.adapts else numbers.assign(change=float("nan"))
    places = sorted({place for _, numbers in series.values() for place in numbers.index})
    return lines_figure(series, "severity", places)


@styled
def lines_figure(series: Series, x_label: str, ticks: Sequence[int]) -> Any:
    """Draw accuracies above, and below them what adaptation changed, paired; bands are 95 % intervals.

    The change has the narrower band: most images keep their label, and only those that do not can make a difference.
    """
    figure, above, below = two_panels(list(series), "accuracy, %", "change, points", x_label)
    for number, (label, (style, numbers)) in enumerate(series.items()):
        beside = number / len(series) if len(series) > MANY else None
        _line(above, label, style, numbers[["after", "after_low", "after_high"]], beside)
        _line(below, label, style, numbers[["change", "change_low", "change_high"]].dropna(), beside)
    below.axhline(0, color=FAINT, linewidth=0.8, zorder=0)
    below.set_xticks(list(ticks))
    legend_above(figure, above)
    return figure


def by_prototypes(columns: Sequence[TableColumn]) -> list[list[TableColumn]]:
    """Return groups of columns that differ in K only, from small to large."""
    groups: dict[tuple[str, str, str], list[TableColumn]] = {}
    for column in columns:
        groups.setdefault((column.training, column.spec, column.protocol), []).append(column)
    several = [group for group in groups.values() if len({column.num_prototypes for column in group}) > 1]
    return [sorted(group, key=lambda column: column.num_prototypes) for group in several]


def _line(axes: Any, label: str, style: SeriesStyle, values: pd.DataFrame, beside: float | None) -> None:
    """Draw a line with its band; or, where ``beside`` is given, with the interval of its last point only, that far to the right."""
    if values.empty:
        return
    middle, low, high = (values[name].to_numpy() for name in values)
    last = values.index[-1]
    if beside is None:
        axes.fill_between(values.index, low, high, color=style.color, alpha=0.15, linewidth=0)
    else:
        x = last + max(last, 4) * (0.02 + 0.08 * beside)
        axes.plot([x, x], [low[-1], high[-1]], color=style.color, linewidth=1.1)
    axes.plot(values.index, middle, color=style.color, linestyle=style.dashes, marker=style.marker, label=label)


@styled
def bars_figure(table: Table, column: TableColumn) -> Any:
    """Draw two bars for each corruption with their 95 % intervals; the average is last."""
    numbers = in_metric(table.of(column), table.metric)  # an error of an error is an accuracy
    places = np.arange(len(numbers))
    figure = new_figure(WIDTH, 0.27 * len(numbers) + 0.85)
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
    figure = new_figure(WIDTH, 2.45)
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
