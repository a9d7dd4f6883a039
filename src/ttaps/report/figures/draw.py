"""Which figures a report has: all that its rows can be drawn as."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ttaps.errors import DataError
from ttaps.report.columns import TableColumn
from ttaps.report.figures import charts
from ttaps.report.figures.flips import Opener, find_flips, flips_figure, opener
from ttaps.report.figures.projections import projection_files, projection_map
from ttaps.report.figures.style import save_figure
from ttaps.report.load import RUN, Results
from ttaps.report.tables import Table, highest_severity

MANY = 12  # columns that adapt: figures of more cannot be told apart
BANDS = "bands (lines on the right, where there are many methods) are 95 % intervals over images."


@dataclass(frozen=True, eq=False)
class ReportFigure:
    """A figure with its name, which is its file's, and its caption."""

    name: str
    caption: str
    figure: Any
    table: Table | None = None
    """The table that it draws; None for the map of a model's projections."""


def draw_all(
    results: Results, tables: Sequence[Table], root: Path | None = None
) -> tuple[list[ReportFigure], list[str]]:
    """Return all figures of some tables, and a note about each that could not be drawn.

    Of several severities the highest is drawn in detail, and accuracy against severity. ``root`` is the folder of the data sets.
    """
    figures = [_by_severity(table) for table in tables if table.severity is None]
    notes: list[str] = []
    for table in highest_severity(tables):
        adapting = table.adapting
        if not adapting:
            notes.append(f"No figures of {table.images}: nothing was adapted there.")
        elif len(adapting) > MANY:
            notes.append(f"No figures of {len(adapting)} columns on {table.images}: more than {MANY} are too many.")
        else:
            figures += _over_steps(table, results)
            open_data = opener(root)
            problems: dict[str, list[str]] = {}
            for column in adapting:
                figures += _of_column(table, column)
                figures += _flips(table, column, results, open_data, problems)
            notes += [f"No images of {', '.join(of)} on {table.images}: {why}." for why, of in problems.items()]
    figures += _projections(results.folders, notes)
    names = [figure.name for figure in figures]
    twice = [names[:place].count(name) for place, name in enumerate(names)]  # names are shorter than labels
    return [replace(f, name=f"{f.name}-{n + 1}" if n else f.name) for f, n in zip(figures, twice, strict=True)], notes


def save_all(figures: Sequence[ReportFigure], folder: Path) -> None:
    """Write every figure as PDF and PNG."""
    for figure in figures:
        for suffix in ("pdf", "png"):
            save_figure(figure.figure, folder / f"{figure.name}.{suffix}")


def file_name(*parts: str) -> str:
    """Return words as a file's name: at most 120 letters, digits, dots, plus signs and dashes."""
    return re.sub(r"[^a-z0-9.+]+", "-", "-".join(parts).lower()).strip("-.")[:120]


def _prefix(table: Table) -> str:
    return f"{table.data}-{table.severity}" if table.severity else table.data


def _by_severity(table: Table) -> ReportFigure:
    what = "accuracy at each severity, averaged over corruptions (above), and what adaptation changed, paired (below)"
    caption = f"{table.data}: {what}; {BANDS}"
    return ReportFigure(file_name(table.data, "severities"), caption, charts.severity_figure(table), table)


def _over_steps(table: Table, results: Results) -> Iterator[ReportFigure]:
    """Draw columns that take at least two steps: one step is before and after, which bars show."""
    changes = {
        column.label: charts.step_changes(column.at(table.severity), results.traces) for column in table.adapting
    }
    columns = {column.label: column for column in table.adapting if len(changes[column.label]) > 2}
    if not columns:
        return
    caption = (
        f"{table.images}: accuracy against gradient steps, averaged over corruptions (above), and its paired change since step 0 "
        f"(below), of the methods that take at least two; {BANDS}"
    )
    figure = charts.steps_figure({label: (column.style, changes[label]) for label, column in columns.items()})
    yield ReportFigure(file_name(_prefix(table), "steps"), caption, figure, table)
    for group in charts.by_prototypes(list(columns.values())):
        spec = group[0].spec
        series = {f"K={column.num_prototypes}": (column.style, changes[column.label]) for column in group}
        caption = f"{table.images}: {spec} with different numbers K of prototypes; lines and bands as in the figure of all methods."
        yield ReportFigure(file_name(_prefix(table), "steps-k", spec), caption, charts.steps_figure(series), table)


def _of_column(table: Table, column: TableColumn) -> Iterator[ReportFigure]:
    where, label = table.images, column.label
    caption = (
        f"{where}: accuracy under each corruption before and after {label}; on the right the difference in points."
    )
    yield ReportFigure(file_name(_prefix(table), "bars", label), caption, charts.bars_figure(table, column), table)
    caption = (
        f"{where}: calibration before and after {label}; a bar that reaches the dashed line is as often right as the model is "
        "confident. ECE: expected calibration error, 15 bins. Below: the share of images."
    )
    figure = charts.reliability_figure(column, column.at(table.severity))
    yield ReportFigure(file_name(_prefix(table), "reliability", label), caption, figure, table)


def _flips(
    table: Table, column: TableColumn, results: Results, open_data: Opener, problems: dict[str, list[str]]
) -> Iterator[ReportFigure]:
    rows = column.at(table.severity)
    own = rows[(rows[RUN] == rows[RUN].iloc[0]).all(axis=1)]  # of one seed
    size = results.models.get(str(own["fingerprint"].iat[0]), {}).get("model", {}).get("image_size", 32)
    flips, problem = find_flips(own, open_data, size)
    if problem:
        problems.setdefault(problem, []).append(column.label)
        return
    caption = (
        f"{table.images}: images whose label {column.label} changed for better or worse, a few of each corruption, chosen without "
        "looking: corruption, label before, label after."
    )
    yield ReportFigure(file_name(_prefix(table), "flips", column.label), caption, flips_figure(flips), table)


def _projections(folders: Sequence[Path], notes: list[str]) -> Iterator[ReportFigure]:
    for path in projection_files(folders):
        try:
            name, caption, figure = projection_map(path)
        except DataError as error:
            notes.append(f"No map of projections: {error}")
        else:
            yield ReportFigure(file_name("projections", name), caption, figure)
