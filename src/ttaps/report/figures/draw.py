"""Which figures a report has: all that its rows can be drawn as."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ttaps.errors import DataError
from ttaps.report.columns import RUN, Results
from ttaps.report.figures import charts
from ttaps.report.figures.images import find_flips, flips_figure
from ttaps.report.figures.style import save_figure
from ttaps.report.tables import Table, highest_severity

MANY = 12  # columns that adapt: figures of more cannot be told apart
BANDS = "bands (lines on the right, where there are many methods) are 95 % intervals over images."
CAPTIONS = {
    "severities": "{table.data}: accuracy at each severity, averaged over corruptions (above), and what adaptation changed, paired "
    f"(below); {BANDS}",
    "steps": "{table.images}: accuracy against gradient steps, averaged over corruptions (above), and its paired change since step 0 "
    f"(below), of the methods that take at least two; {BANDS}",
    "steps-k": "{table.images}: {label} with different numbers K of prototypes; lines and bands as in the figure of all methods.",
    "bars": "{table.images}: accuracy under each corruption before and after {label}; on the right the difference in points.",
    "reliability": "{table.images}: calibration before and after {label}; a bar that reaches the dashed line is as often right as the "
    "model is confident. ECE: expected calibration error, 15 bins. Below: the share of images.",
    "flips": "{table.images}: images whose label {label} changed for better or worse, a few of each corruption, chosen without looking: "
    "corruption, label before, label after.",
}


class ReportFigure(NamedTuple):
    """A figure with its name, which is its file's, its caption and the table that it draws; a map of projections draws none."""

    name: str
    caption: str
    figure: Any
    table: Table | None = None


def draw_all(results: Results, tables: Sequence[Table], root: Path | None) -> tuple[list[ReportFigure], list[str]]:
    """Return all figures of some tables, of several severities the highest in detail, and a note about each that could not be drawn."""
    figures = [_captioned("severities", it, charts.severity_figure(it)) for it in tables if it.severity is None]
    notes: list[str] = []
    for table in highest_severity(tables):
        adapting = len(table.adapting)
        if not adapting:
            notes.append(f"No figures of {table.images}: nothing was adapted there.")
        elif adapting > MANY:
            notes.append(f"No figures of {adapting} columns on {table.images}: more than {MANY} are too many.")
        else:
            figures += [*_over_steps(table, results), *_of_columns(table, results, root, notes)]
    # The same model and data set in several folders counts once.
    stored = {path.name: path for folder in results.folders for path in sorted(folder.glob("projections/*.npz"))}
    for path in stored.values():
        try:
            name, caption, figure = charts.projection_map(path)
            figures.append(ReportFigure(file_name("projections", name), caption, figure))
        except DataError as error:
            notes.append(f"No map of projections: {error}")
    names = [figure.name for figure in figures]
    twice = [names[:place].count(name) for place, name in enumerate(names)]  # names are shorter than labels
    return [f._replace(name=f"{f.name}-{n + 1}") if n else f for f, n in zip(figures, twice, strict=True)], notes


def save_all(figures: Sequence[ReportFigure], folder: Path) -> None:
    """Write every figure as PDF and PNG."""
    for figure in figures:
        for suffix in ("pdf", "png"):
            save_figure(figure.figure, folder / f"{figure.name}.{suffix}")


def file_name(*parts: str) -> str:
    """Return words as a file's name: at most 120 letters, digits, dots, plus signs and dashes."""
    return re.sub(r"[^a-z0-9.+]+", "-", "-".join(parts).lower()).strip("-.")[:120]


def _captioned(kind: str, table: Table, figure: Any, label: str = "") -> ReportFigure:
    where = f"{table.data}-{table.severity}" if table.severity else table.data
    return ReportFigure(file_name(where, kind, label), CAPTIONS[kind].format(table=table, label=label), figure, table)


def _over_steps(table: Table, results: Results) -> Iterator[ReportFigure]:
    """Draw columns that take at least two steps: one step is before and after, which bars show."""
    changes = {each.label: charts.step_changes(each.at(table.severity), results.traces) for each in table.adapting}
    columns = [column for column in table.adapting if len(changes[column.label]) > 2]
    if columns:
        series = {column.label: (column.style, changes[column.label]) for column in columns}
        yield _captioned("steps", table, charts.lines_figure(series, "gradient steps"))
    for group in charts.by_prototypes(columns):
        series = {f"K={column.num_prototypes}": (column.style, changes[column.label]) for column in group}
        yield _captioned("steps-k", table, charts.lines_figure(series, "gradient steps"), group[0].spec)


def _of_columns(table: Table, results: Results, root: Path | None, notes: list[str]) -> Iterator[ReportFigure]:
    opened: dict[Any, Any] = {}  # data sets, for a folder of images is read whole for its digest
    problems: dict[str, list[str]] = {}
    for column in table.adapting:
        rows, label = column.at(table.severity), column.label
        yield _captioned("bars", table, charts.bars_figure(table, column), label)
        yield _captioned("reliability", table, charts.reliability_figure(column, rows), label)
        own = rows[(rows[RUN] == rows[RUN].iloc[0]).all(axis=1)]  # of one seed
        size = results.models.get(str(own["fingerprint"].iat[0]), {}).get("model", {}).get("image_size", 32)
        tiles, problem = find_flips(own, root, size, opened)
        if tiles:
            yield _captioned("flips", table, flips_figure(tiles), label)
        else:
            problems.setdefault(problem, []).append(label)
    notes += [f"No images of {', '.join(labels)} on {table.images}: {why}." for why, labels in problems.items()]
