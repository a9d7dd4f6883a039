"""Contents of a report: all figures that its rows allow, and one HTML page with everything (``page.html.j2``)."""

import base64
import io
import re
from collections.abc import Iterator, Sequence
from itertools import groupby, product
from pathlib import Path
from typing import Any, NamedTuple

from ttaps import __version__
from ttaps.errors import DataError
from ttaps.evaluation.statistics import significant
from ttaps.files import make_room, write_text
from ttaps.progress import log_info
from ttaps.report.columns import RUN, TEXTS, Results
from ttaps.report.figures import charts
from ttaps.report.figures.images import find_flips, flips_figure
from ttaps.report.figures.style import check_figure, save_figure, styled
from ttaps.report.render import TextTable, change_text, text_tables
from ttaps.report.tables import Table, highest_severity

MANY = 12  # columns that adapt: lines of more cannot be told apart, and nobody looks at more figures of one kind


class ReportFigure(NamedTuple):
    """A figure with its (file) name, its caption and the table that it shows; a projection map shows none."""

    name: str
    caption: str
    figure: Any
    table: Table | None = None


def check_places(html: Path | None, figures: Path | None) -> None:
    """Refuse a page or figures that could not be written, before any work is done."""
    for place in filter(None, (figures and figures / "figure.png", html and html.with_name("figure.png"))):
        check_figure(place)
    if html:
        make_room(html)


def write_report(
    results: Results, tables: Sequence[Table], html: Path | None, figures: Path | None, data_root: Path | None
) -> None:
    """Draw the figures of some tables into a folder, as PDF and PNG, and write the page, if requested."""
    if figures is None and html is None:
        return
    drawn, notes = draw_all(results, tables, data_root)
    for note in notes:
        log_info(note)
    if figures is not None:
        for figure, suffix in product(drawn, ("pdf", "png")):
            save_figure(figure.figure, figures / f"{figure.name}.{suffix}")
        log_info(f"Figures, as PDF and PNG, are in {figures}: {len(drawn)}.")
    if html is not None:
        write_text(html, page(tables, drawn, notes))
        log_info(f"The page is {html}.")


def page(tables: Sequence[Table], figures: Sequence[ReportFigure], notes: Sequence[str]) -> str:
    """Return a report as HTML: a summary, then tables, those of lower severities folded up, with protocol, figures, intervals, tests."""
    from jinja2 import Environment, FileSystemLoader  # here: tables in a terminal need none of it

    loader = FileSystemLoader(Path(__file__).parent)
    engine = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    engine.filters["png"] = _png
    engine.globals |= {"text_tables": text_tables, "figures": figures}
    data_sets = []
    for _, group in groupby(tables, key=lambda table: (table.data, table.digest)):
        own = list(group)  # of several the first is by severity, the last of the highest severity
        data_sets.append((own[:1] + own[1:][-1:], own[1:-1]))
    title = f"Test-time adaptation on {', '.join(dict.fromkeys(table.data for table in tables))}"
    summaries = [_summary(table) for table in highest_severity(tables) if table.adapting]
    about = {"title": title, "version": __version__, "notes": notes}
    return engine.get_template("page.html.j2").render(**about, summaries=summaries, data_sets=data_sets)


def _png(figure: Any) -> str:
    buffer = io.BytesIO()
    with styled():
        figure.savefig(buffer, format="png", dpi=220)  # sharp on screens with two pixels for one
    return base64.b64encode(buffer.getvalue()).decode()


def _summary(table: Table) -> TextTable:
    """Return in a few lines what adaptation changed, and whether chance explains it."""
    over = ", averaged over corruptions" if len(table.rows) > 1 else ""
    title = f"In short: {table.metric} in % on {table.images}{over}, before and after adaptation"
    rows = []
    for column in table.adapting:
        line: Any = table.of(column).iloc[-1]
        chance = "more than chance explains" if significant(line) else "no more than chance explains"
        verdict = chance if line.fixed or line.broken else "no label became right or wrong"
        rows.append((column.label, f"{line.before:.1f}", f"{line.after:.1f}", *change_text(line), verdict))
    return TextTable(title, ("", "before", "after", "points", "95 %", "fixed", "broken", "p", ""), tuple(rows))


def draw_all(results: Results, tables: Sequence[Table], root: Path | None) -> tuple[list[ReportFigure], list[str]]:
    """Return all figures of some tables, of several severities the highest in detail, and a note about each that could not be drawn."""
    figures = [_captioned("severities", it, charts.severity_figure(it)) for it in tables if it.severity is None]
    notes: list[str] = []
    for table in highest_severity(tables):
        adapting = len(table.adapting)
        if not adapting:
            notes.append(f"No figures of {table.images}: nothing was adapted there.")
        else:
            figures += _over_steps(table, results)
        if adapting > MANY:
            notes.append(f"No figures of each of {adapting} columns on {table.images}: more than {MANY} are too many.")
        elif adapting:
            figures += _of_columns(table, results, root, notes)
    # The same model and data set in several folders counts once.
    stored = {path.name: path for folder in results.folders for path in sorted(folder.glob("projections/*.npz"))}
    for path in stored.values():
        try:
            name, caption, figure = charts.projection_map(path)
            figures.append(ReportFigure(file_name("projections", name), caption, figure))
        except DataError as error:
            notes.append(f"No projection map: {error}")
    names = [figure.name for figure in figures]
    twice = [names[:place].count(name) for place, name in enumerate(names)]  # names are shorter than labels
    return [f._replace(name=f"{f.name}-{n + 1}") if n else f for f, n in zip(figures, twice, strict=True)], notes


def file_name(*parts: str) -> str:
    """Turn words into a file name: at most 120 letters, digits, dots, plus signs and dashes."""
    return re.sub(r"[^a-z0-9.+]+", "-", "-".join(parts).lower()).strip("-.")[:120]


def _captioned(kind: str, table: Table, figure: Any, label: str = "") -> ReportFigure:
    where = f"{table.data}-{table.severity}" if table.severity else table.data
    caption = TEXTS["captions"][kind].format(table=table, label=label)
    return ReportFigure(file_name(where, kind, label), caption, figure, table)


def _over_steps(table: Table, results: Results) -> Iterator[ReportFigure]:
    """Draw columns that take at least two steps: one step is before and after, which bars show."""
    changes = {each.label: charts.step_changes(each.at(table.severity), results.traces) for each in table.adapting}
    columns = [column for column in table.adapting if len(changes[column.label]) > 2]
    if 0 < len(columns) <= MANY:
        series = {column.head: (column.style, changes[column.label]) for column in columns}
        yield _captioned("steps", table, charts.lines_figure(series, "gradient steps"))
    for group in charts.by_prototypes(columns):
        series = {
            f"{column.spec}\nK={column.num_prototypes}": (column.style, changes[column.label]) for column in group
        }
        yield _captioned("steps-k", table, charts.lines_figure(series, "gradient steps"), group[0].spec)


def _of_columns(table: Table, results: Results, root: Path | None, notes: list[str]) -> Iterator[ReportFigure]:
    opened: dict[Any, Any] = {}  # data sets, for a folder of images is read whole for its digest
    problems: dict[str, list[str]] = {}
    for column in table.adapting:
        rows, label = column.at(table.severity), column.label
        yield _captioned("bars", table, charts.bars_figure(table, column), label)
        yield _captioned("reliability", table, charts.reliability_figure(column, rows), label)
        own = rows[(rows[RUN] == rows[RUN].iloc[0]).all(axis=1)]  # of one seed
        tiles, problem = find_flips(own, results, root, opened)
        if tiles:
            yield _captioned("flips", table, flips_figure(tiles), label)
        else:
            problems.setdefault(problem, []).append(label)
    notes += [f"No images of {', '.join(labels)} on {table.images}: {why}." for why, labels in problems.items()]
