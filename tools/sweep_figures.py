"""Figures of a sweep over settings, for docs/results.md: what each setting changes, and what it costs.

    python tools/sweep_figures.py OUT FOLDER...

For every model with enough methods or settings on the same images it writes OUT/DATA-settings-METHOD-MODEL.png (change in accuracy,
labels fixed and broken, change after every step, the best first) and OUT/DATA-cost-MODEL.png (accuracy against time per image).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ttaps.evaluation.statistics import CONDITION, measure
from ttaps.report.columns import TableColumn, load_results
from ttaps.report.figures.charts import step_changes
from ttaps.report.figures.style import FAINT, INK, METHOD_COLORS, RIGHT, WRONG, new_figure, save_figure, styled
from ttaps.report.page import file_name
from ttaps.report.tables import Table, highest_severity, make_tables

WIDTH = 8.0  # inches: specs are long
LEAST_SETTINGS, LEAST_COSTS = 4, 3  # fewer are not worth a figure
MANY = 8  # points: the intervals of more hide each other
USUAL = 0.9  # of the numbers that are drawn as colors
TICKS = tuple(digit * 10.0**power for power in range(-4, 6) for digit in (1, 3))
Sweep = dict[str, pd.DataFrame]
"""The rows of each spec, on the same images."""


def by_model(columns: Sequence[TableColumn]) -> list[list[TableColumn]]:
    """Return groups of columns of the same model, or of the same seeds of one."""
    groups: dict[frozenset[str], list[TableColumn]] = {}
    for column in columns:
        groups.setdefault(frozenset(column.rows["fingerprint"]), []).append(column)
    return list(groups.values())


def on_same_images(columns: Sequence[TableColumn], severity: int | None, least: int) -> Sweep:
    """Return at least so many columns with only the images that all of them have, or none.

    There may be several choices: many columns on few images, or few on many. The one with the most outcomes is taken, so that a column
    that has only begun is left out.
    """
    key = [*CONDITION, "image"]
    rows = {column.spec: column.at(severity) for column in columns}
    known = {}
    for spec, own in rows.items():
        seeds = own.groupby(key)["fingerprint"].size()
        known[spec] = frozenset(seeds.index[seeds == seeds.max()])  # images that all its seeds have
    choices = [([spec for spec in known if known[spec] >= images], images) for images in set(known.values())]
    choices = [(members, images) for members, images in choices if len(members) >= least and images]
    if not choices:
        return {}
    members, images = max(choices, key=lambda choice: len(choice[0]) * len(choice[1]))
    common = pd.DataFrame(sorted(images), columns=key)
    return {spec: rows[spec].merge(common) for spec in rows if spec in members}


def settings_table(sweep: Sweep, traces: pd.DataFrame) -> pd.DataFrame:
    """Return the statistics of each spec after every step, by (spec, step), the best spec first."""
    changes = {spec: step_changes(rows, traces) for spec, rows in sweep.items()}
    order = sorted(changes, key=lambda spec: -changes[spec]["change"].iloc[-1])
    return pd.concat({spec: changes[spec] for spec in order}, names=["spec", "step"])


@styled()
def settings_figure(numbers: pd.DataFrame) -> Any:
    """Draw a row for each spec: the change after the last step, labels broken and fixed, and the change after every step."""
    last = numbers.groupby("spec", sort=False).tail(1)
    places = np.arange(len(last))
    figure = new_figure(0.15 * len(last) + 0.9, WIDTH)
    change, labels, steps = figure.subplots(1, 3, sharey=True, width_ratios=(3, 2, 2))
    change.set(ylim=(len(last) - 0.5, -0.5), title="change,\npoints")
    change.set_yticks(places, [spec for spec, _ in last.index], fontsize=6)
    _draw_changes(change, last, places)
    _draw_labels(labels, last, places)
    by_step = numbers["change"].unstack("step").reindex([spec for spec, _ in last.index]).drop(columns=0)
    most = by_step.shape[1]
    image = colored(steps, by_step.to_numpy(dtype=float), (0.5, most + 0.5))
    steps.set(title="by step", xticks=sorted({1, most}))
    steps.tick_params(left=False)
    steps.spines[:].set_visible(False)
    scale = figure.colorbar(image, ax=steps, orientation="horizontal", aspect=30, pad=0.02)
    scale.outline.set_visible(False)
    end = image.get_clim()[1]
    low, high = ("≤", "≥") if np.nanmax(np.abs(by_step)) > end else ("", "")
    scale.set_ticks([-end, end], labels=[f"{low}{-end:+.1f}", f"{high}{end:+.1f}"], fontsize=6)
    return figure


def _draw_changes(axes: Any, last: pd.DataFrame, places: Any) -> None:
    """Draw each change with its interval; a full dot where that is on one side of zero."""
    color = METHOD_COLORS.get(last.index[0][0].split(":")[0].split("[")[0], INK)
    axes.axvline(0, color=FAINT, linewidth=0.8, zorder=0)
    axes.hlines(places, last["change_low"], last["change_high"], color=color, linewidth=0.9)
    clear = (last["change_low"] > 0) | (last["change_high"] < 0)
    inside = [color if one_side else "white" for one_side in clear]
    axes.scatter(last["change"], places, s=10, c=inside, edgecolors=color, linewidths=0.8, zorder=3)
    axes.grid(axis="x")
    axes.tick_params(left=False)
    axes.spines.left.set_visible(False)


def _draw_labels(axes: Any, last: pd.DataFrame, places: Any) -> None:
    """Draw labels broken to the left and labels fixed to the right, of a hundred images."""
    fixed, broken = (100 * last[name] / last["n"] for name in ("fixed", "broken"))
    axes.barh(places, fixed, height=0.62, color=RIGHT, linewidth=0)
    axes.barh(places, -broken, height=0.62, color=WRONG, linewidth=0)
    axes.axvline(0, color=FAINT, linewidth=0.8)
    most = max(*fixed, *broken, 0.1)
    axes.set_xticks([-most, 0, most], [f"{most:.2g}", "0", f"{most:.2g}"])
    axes.set(title="broken, fixed\nper 100 images", xlim=(-1.1 * most, 1.1 * most))
    axes.tick_params(left=False)
    axes.spines.left.set_visible(False)


def colored(axes: Any, points: Any, across: tuple[float, float]) -> Any:
    """Draw numbers as colors around zero, row by row from the top; a few that are far greater than the others have the last color."""
    sizes = np.abs(points)
    usual, most = float(np.nanquantile(sizes, USUAL)), float(np.nanmax(sizes))
    most = max(usual if most > 2 * usual else most, 0.1)
    extent = (*across, len(points) - 0.5, -0.5)  # worse is red, better is blue: distinguishable for color-blind readers
    return axes.imshow(points, cmap="RdBu", vmin=-most, vmax=most, aspect="auto", extent=extent)


def cost_table(sweep: Sweep) -> pd.DataFrame:
    """Return accuracy and ``cost`` by spec: the median time per image, as a multiple of the source model's where that was timed."""
    numbers = pd.DataFrame({spec: measure(rows) for spec, rows in sweep.items()}).T
    seconds = pd.Series({spec: rows["seconds"].median() for spec, rows in sweep.items()})
    return numbers.assign(cost=seconds / seconds.get("source", 1.0))


def frontier(numbers: pd.DataFrame) -> pd.DataFrame:
    """Return the lines that no cheaper one reaches, from the cheapest to the most accurate."""
    ordered = numbers.sort_values(["cost", "after"], ascending=[True, False])
    return ordered[ordered["after"] > ordered["after"].cummax().shift(fill_value=-1.0)]


def spread_out(wanted: Sequence[float], gap: float) -> list[float]:
    """Move sorted places within 0 and 1 so far apart that there is a gap between neighbors, as near to where they were as is easy."""
    placed: list[float] = []
    for place in wanted:
        placed.append(max(place, placed[-1] + gap if placed else 0.0))
    limit = 1.0
    for index in reversed(range(len(placed))):
        placed[index] = min(placed[index], limit)
        limit = placed[index] - gap
    return placed


@styled()
def cost_figure(numbers: pd.DataFrame, styles: dict[str, Any]) -> Any:
    """Draw accuracy with its 95 % interval against the time per image; specs are on the right, in the order of accuracy."""
    figure = new_figure(max(2.3, 0.13 * len(numbers) + 0.75), WIDTH)
    axes = figure.subplots()
    axes.set_xscale("log")
    best = frontier(numbers)
    axes.plot(best["cost"], best["after"], color="#cccccc", linewidth=1, zorder=0)
    faint = 0.55 if len(numbers) <= MANY else 0.2
    for line in numbers.itertuples():
        style = styles[str(line.Index)]
        axes.vlines(line.cost, line.after_low, line.after_high, color=style.color, linewidth=0.8, alpha=faint)
        axes.plot([line.cost], [line.after], linestyle="", marker=style.marker, markersize=3.6, color=style.color)
    low, high = numbers["cost"].min() / 1.6, numbers["cost"].max() * 1.6
    ticks = [tick for tick in TICKS if low <= tick <= high]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xticks([], minor=True)
    x_label = "time per image / source" if "source" in numbers.index else "seconds per image"
    axes.set(xlim=(low, high), xlabel=x_label, ylabel="accuracy, %")
    axes.grid()
    _write_specs(axes, numbers.sort_values(["after", "cost"], ascending=[True, False]), styles)
    return figure


def _write_specs(axes: Any, ordered: pd.DataFrame, styles: dict[str, Any]) -> None:
    """Write the specs beside the axes, each with its marker and a line to its point."""
    low, high = axes.get_ylim()
    wanted = ((ordered["after"] - low) / (high - low)).tolist()
    gap = min(0.055, 1 / max(len(wanted), 1))
    for line, place in zip(ordered.itertuples(), spread_out(wanted, gap), strict=True):
        style = styles[str(line.Index)]
        link = {"arrowstyle": "-", "color": FAINT, "linewidth": 0.35, "shrinkA": 0, "shrinkB": 2.5}
        axes.annotate("", (line.cost, line.after), (1.03, place), textcoords="axes fraction", arrowprops=link)
        beside = {"transform": axes.transAxes, "clip_on": False}
        axes.plot([1.03], [place], marker=style.marker, markersize=3, color=style.color, **beside)
        axes.text(1.05, place, str(line.Index), fontsize=6, va="center", **beside)


def draw_sweeps(table: Table, traces: pd.DataFrame) -> Iterator[tuple[str, Any]]:
    """Yield name and figure of everything that can be drawn of a table."""
    for group in by_model(table.columns):
        styles = {column.spec: column.style for column in group}
        model = str(group[0].rows["model"].iat[0])
        where = f"{table.data}-{table.severity}" if table.severity else table.data
        if sweep := on_same_images(group, table.severity, LEAST_COSTS):
            yield file_name(where, "cost", model), cost_figure(cost_table(sweep), styles)
        for method in dict.fromkeys(column.method for column in group if column.adapts):
            own = [column for column in group if column.method == method]
            if sweep := on_same_images(own, table.severity, LEAST_SETTINGS):
                figure = settings_figure(settings_table(sweep, traces))
                yield file_name(where, "settings", method, model), figure


def main(out: str, *folders: str) -> None:
    """Draw all sweeps of some folders of results."""
    results = load_results([Path(folder) for folder in folders])
    for table in highest_severity(make_tables(results, published=False)):
        for name, figure in draw_sweeps(table, results.traces):
            save_figure(figure, Path(out) / f"{name}.png")
            print(Path(out) / f"{name}.png")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("Name a folder for the figures and folders of results: python tools/sweep_figures.py OUT results/...")
    main(*sys.argv[1:])
