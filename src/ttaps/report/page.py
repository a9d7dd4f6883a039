"""One HTML page with everything; ``page.html.j2`` says how it looks. All text is escaped by the template engine."""

import base64
import io
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader

from ttaps import __version__
from ttaps.evaluation.statistics import significant
from ttaps.files import make_room, write_text
from ttaps.progress import log_info
from ttaps.report.columns import Results
from ttaps.report.figures.draw import ReportFigure, draw_all, save_all
from ttaps.report.figures.style import check_figure, styled
from ttaps.report.render import TextTable, change_text, text_tables
from ttaps.report.tables import Table, highest_severity


def check_places(html: Path | None, figures: Path | None) -> None:
    """Refuse a page or figures that could not be written in the end, before any work is done for them."""
    for place in filter(None, (figures and figures / "figure.png", html)):
        check_figure(Path("figure.png"))
        make_room(place)


def write_report(
    results: Results, tables: Sequence[Table], html: Path | None, figures: Path | None, data_root: Path | None
) -> None:
    """Draw the figures of some tables into a folder, as PDF and PNG, and write the page, where they are wanted."""
    if figures is None and html is None:
        return
    drawn, notes = draw_all(results, tables, data_root)
    for note in notes:
        log_info(note)
    if figures is not None:
        save_all(drawn, figures)
        log_info(f"Figures, as PDF and PNG, are in {figures}: {len(drawn)}.")
    if html is not None:
        write_text(html, page(tables, drawn, notes))
        log_info(f"The page is {html}.")


def page(tables: Sequence[Table], figures: Sequence[ReportFigure], notes: Sequence[str]) -> str:
    """Return a report as HTML: a summary, then tables, those of lower severities folded up, with protocol, figures, intervals, tests."""
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
