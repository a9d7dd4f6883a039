"""Where combinations of step size and temperatures were tried: the change in accuracy as a map of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ttaps.evaluate import Experiment
from ttaps.evaluate.settings import default_name, settings_name
from ttaps.evaluate.summary import signed
from ttaps.report.grouping import SYMBOLS
from ttaps.report.settings_map import Settings, Tried, colored
from ttaps.report.style import COLUMN, INK, new_figure, strip

ACROSS, DOWN = "lr", ("tau", "epsilon")
LEAST = 2  # values in each direction
CELL = 0.27  # inches, its height
Place = tuple[tuple[float, ...], float]  # row and column
DARK = 0.6  # of the strongest color: white letters from here on


@dataclass(frozen=True, eq=False)
class Grid:
    """Settings that differ only in the step size and the temperatures."""

    columns: tuple[float, ...]
    rows: tuple[tuple[float, ...], ...]
    cells: dict[Place, Tried]
    base: str
    """A name for what they have in common."""


def grids_of(settings: Settings) -> Iterator[Grid]:
    """Yield the grids among some settings, which may differ in others besides: at least two by two, and two thirds of it tried."""
    groups: dict[Experiment, dict[Place, Tried]] = {}
    for one in settings.tried:
        experiment = one.column.runs[0].experiment
        known = json.loads(experiment.settings)
        if {ACROSS, *DOWN} <= known.keys():
            place = tuple(known.pop(name) for name in DOWN), known.pop(ACROSS)
            groups.setdefault(replace(experiment, settings=json.dumps(known)), {})[place] = one
    for rest, cells in groups.items():
        rows, columns = (tuple(sorted(set(side))) for side in zip(*cells, strict=True))
        if min(len(rows), len(columns)) >= LEAST and 3 * len(cells) >= 2 * len(rows) * len(columns):
            yield Grid(columns, rows, cells, settings_name(rest) or default_name(rest.method) or "defaults")


def grid_figure(grid: Grid) -> Any:
    """Draw the change after the last step as color and number, bold where its interval is on one side of zero; fixed and broken below."""
    height = CELL * len(grid.rows) + 0.42
    figure = new_figure(COLUMN, height)
    axes = figure.add_axes((0.72 / COLUMN, 0.36 / height, 1 - 0.78 / COLUMN, CELL * len(grid.rows) / height))
    points = np.full((len(grid.rows), len(grid.columns)), np.nan)
    places = {place: (grid.rows.index(place[0]), grid.columns.index(place[1])) for place in grid.cells}
    for place, one in grid.cells.items():
        points[places[place]] = one.last.difference.points
    strongest = colored(axes, points, (-0.5, len(grid.columns) - 0.5)).get_clim()[1]
    for place, one in grid.cells.items():
        _write_cell(axes, one, *places[place], strongest)
    axes.set_xticks(range(len(grid.columns)), [f"{value:g}" for value in grid.columns])
    names = [
        ", ".join(f"{SYMBOLS[name]} {value:g}" for name, value in zip(DOWN, row, strict=True)) for row in grid.rows
    ]
    axes.set_yticks(range(len(grid.rows)), names)
    axes.set_xlabel("step size, lr", fontsize=7, color=INK, labelpad=2)
    strip(axes, keep=())
    axes.tick_params(labelsize=6.5, length=0)
    return figure


def _write_cell(axes: Any, one: Tried, row: int, column: int, strongest: float) -> None:
    change = one.last.difference.points
    ink = "white" if abs(change) > DARK * strongest else INK
    fixed, broken = one.per_hundred()
    style = {"ha": "center", "va": "center", "color": ink}
    weight = "bold" if one.significant else "normal"
    axes.text(column, row - 0.17, signed(change), fontsize=6.5, fontweight=weight, **style)
    axes.text(column, row + 0.24, f"{fixed:.1f} / {broken:.1f}", fontsize=4.8, **style)
