"""Which figures a report has: all that its rows can be drawn as."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ttaps.errors import DataError
from ttaps.report.bars import bars_figure
from ttaps.report.cost import costs_figure, table_costs
from ttaps.report.curves import by_prototypes, severity_figure, steps_figure
from ttaps.report.flips import Opener, find_flips, flips_figure, opener
from ttaps.report.grids import place_of
from ttaps.report.projection import projection_files, projection_map
from ttaps.report.reliability import reliability_figure
from ttaps.report.settings_grid import grid_figure, grids_of
from ttaps.report.settings_map import map_figure, table_settings
from ttaps.report.style import save_figure
from ttaps.report.tables import Shown, Table, severest

MANY = 12  # columns that adapt: with more of them, the map of settings says more than figures of each


@dataclass(frozen=True, eq=False)
class Drawing:
    """A figure with its name, which is its file's, and its caption."""

    name: str
    caption: str
    figure: Any
    table: Table | None = None
    """What it is of."""


def draw_all(
    tables: Sequence[Table], folders: Sequence[Path], root: Path | None = None
) -> tuple[list[Drawing], list[str]]:
    """Return all figures of some tables, and a word about each that could not be drawn.

    Of several severities the highest is drawn in detail, and accuracy against severity.
    """
    drawings: list[Drawing] = []
    notes: list[str] = []
    for table in tables:
        if table.severity is None:
            drawings.append(_by_severity(table))
    for table in severest(tables):
        if not table.adapting:
            notes.append(f"No figures of {place_of(table)}: nothing was adapted there.")
            continue
        drawings += _costs(table)
        drawings += _settings(table)
        if len(table.adapting) > MANY:
            notes.append(f"No figure of each of {len(table.adapting)} columns of {place_of(table)}: they are too many.")
            continue
        drawings += _of_table(table)
        opened = opener(root)
        for shown in table.adapting:
            drawings += _of_column(table, shown)
            drawings += _flips(table, shown, opened, notes)
    drawings += _projections(folders, notes)
    return _numbered(drawings), notes


def save_all(drawings: Sequence[Drawing], folder: Path) -> None:
    """Write every figure as PDF and PNG."""
    for drawing in drawings:
        for suffix in ("pdf", "png"):
            save_figure(drawing.figure, folder / f"{drawing.name}.{suffix}")


def file_name(*parts: str) -> str:
    """Return words as a file's name: letters, digits, dots and dashes."""
    return re.sub(r"[^a-z0-9.+]+", "-", "-".join(parts).lower()).strip("-.")


def _numbered(drawings: Sequence[Drawing]) -> list[Drawing]:
    """Number figures whose names are the same, so that none takes another's place: long labels are cut short."""
    seen: Counter[str] = Counter()
    found = []
    for drawing in drawings:
        seen[drawing.name] += 1
        count = seen[drawing.name]
        found.append(drawing if count == 1 else replace(drawing, name=f"{drawing.name}-{count}"))
    return found


def _by_severity(table: Table) -> Drawing:
    caption = (
        f"{table.data}: accuracy at each severity, averaged over corruptions (above), and what adaptation changed, paired (below); "
        "bands (lines on the right, where there are many methods) are 95 % intervals over images."
    )
    return Drawing(file_name(table.data, "severities"), caption, severity_figure(table), table)


def _of_table(table: Table) -> Iterator[Drawing]:
    columns = [shown.column for shown in table.adapting if shown.column and shown.column.learns]
    if not columns:
        return
    where, prefix = place_of(table), _prefix(table)
    caption = (
        f"{where}: accuracy against gradient steps, averaged over corruptions (above), and its paired change since step 0 (below); "
        "bands (lines on the right, where there are many methods) are 95 % intervals over images."
    )
    figure = steps_figure(table, columns, [column.label for column in columns])
    yield Drawing(file_name(prefix, "steps"), caption, figure, table)
    for group in by_prototypes(columns):
        name = group[0].label.partition(", K=")[0]
        words = (
            f"{where}: {name} with different numbers K of prototypes; lines and bands as in the figure of all methods."
        )
        figure = steps_figure(table, group, [f"K={column.prototypes}" for column in group])
        yield Drawing(file_name(prefix, "steps-k", name), words, figure, table)


def _costs(table: Table) -> Iterator[Drawing]:
    for costs in table_costs(table):
        time = "relative to a prediction without adaptation" if costs.unit else "in seconds"
        caption = (
            f"{place_of(table)}, model {costs.model}: accuracy with its 95 % interval against the time per image, {time} "
            f"(median of what was stored), on the same {costs.n} images; the line joins what nothing cheaper reaches.{_beside(costs.base)}"
        )
        yield Drawing(file_name(_prefix(table), "cost", costs.model), caption, costs_figure(costs), table)


def _settings(table: Table) -> Iterator[Drawing]:
    for settings in table_settings(table):
        what = (
            f"{place_of(table)}, model {settings.model}: settings of {settings.method} on the same {settings.n} images"
        )
        caption = (
            f"{what}, the best first. Change in accuracy after the last step with its paired 95 % interval, a full dot where that is on "
            f"one side of zero; labels put wrong and put right per 100 images; change after every step.{_beside(settings.base)}"
        )
        name = file_name(_prefix(table), "settings", settings.method, settings.model)
        yield Drawing(name, caption, map_figure(settings), table)
        for number, grid in enumerate(grids_of(settings), 1):
            caption = (
                f"{what}: change in accuracy in points by step size and temperatures, bold where its paired 95 % interval is on one side "
                f"of zero; below it labels put right / put wrong per 100 images. Other settings: {grid.base}."
            )
            yield Drawing(f"{name}-grid-{number}", caption, grid_figure(grid), table)


def _beside(base: str) -> str:
    return f" Names say what differs from {base}." if base else ""


def _of_column(table: Table, shown: Shown) -> Iterator[Drawing]:
    if shown.column is None:
        return
    where, prefix = place_of(table), _prefix(table)
    caption = f"{where}: accuracy under each corruption before and after {shown.label}; on the right the difference in points."
    yield Drawing(file_name(prefix, "bars", shown.label), caption, bars_figure(table, shown), table)
    caption = (
        f"{where}: is the model right as often as it is sure? Before and after {shown.label}; bars that reach the dashed line are perfect. "
        "ECE: expected calibration error, 15 bins. Below: the share of images."
    )
    figure = reliability_figure(shown.column, table.severity)
    yield Drawing(file_name(prefix, "reliability", shown.label), caption, figure, table)


def _flips(table: Table, shown: Shown, opened: Opener, notes: list[str]) -> Iterator[Drawing]:
    if shown.column is None:
        return
    where = place_of(table)
    flips, problem = find_flips(shown.column.runs[0], table.severity or 0, opened)
    if problem:
        notes.append(f"No pictures of {shown.label} on {where}: {problem}.")
        return
    caption = (
        f"{where}: images whose label {shown.label} changed for better or worse, a few of each corruption, chosen without looking: "
        "corruption, label before, label after."
    )
    yield Drawing(file_name(_prefix(table), "flips", shown.label), caption, flips_figure(flips), table)


def _projections(folders: Sequence[Path], notes: list[str]) -> Iterator[Drawing]:
    for path in projection_files(folders):
        try:
            name, caption, figure = projection_map(path)
        except DataError as error:
            notes.append(f"No map of projections: {error}")
        else:
            yield Drawing(file_name("projections", name), caption, figure)


def _prefix(table: Table) -> str:
    return f"{table.data}-{table.severity}" if table.severity else table.data
