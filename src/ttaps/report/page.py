"""One HTML page with everything; ``page.html.j2`` says how it looks. All text is escaped by the template engine."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader

from ttaps import __version__
from ttaps.evaluate.statistics import significant
from ttaps.report.figures.draw import ReportFigure
from ttaps.report.figures.style import png_bytes
from ttaps.report.render import TextTable, change_text, text_tables
from ttaps.report.tables import Table, highest_severity

SUMMARY_HEAD = ("", "before", "after", "points", "95 %", "fixed", "broken", "p", "")


def page(tables: Sequence[Table], figures: Sequence[ReportFigure], notes: Sequence[str]) -> str:
    """Return a report as HTML: a summary, tables with their protocol and figures, intervals and tests."""
    engine = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    main = highest_severity(tables)
    return engine.get_template("page.html.j2").render(
        title=f"Test-time adaptation on {', '.join(dict.fromkeys(table.data for table in tables))}",
        version=__version__,
        summaries=[_summary(table) for table in main if table.adapting],
        sections=[_data_set(tables, table, figures) for table in main],
        figures=[_encoded(figure) for figure in figures if figure.table is None],
        notes=notes,
    )


def _summary(table: Table) -> TextTable:
    """Return in a few lines what adaptation changed, and whether chance explains it."""
    numbers = table.numbers.xs(table.rows[-1], level="row")
    shown = [(column.label, numbers.loc[column.label]) for column in table.adapting if column.label in numbers.index]
    rows = tuple((label, *_verdict(line)) for label, line in shown)
    over = ", averaged over corruptions" if len(table.rows) > 1 else ""
    title = f"In short: {table.metric} in % on {table.images}{over}, before and after adaptation"
    return TextTable(title, SUMMARY_HEAD, rows)


def _verdict(line: Any) -> list[str]:
    changed = "more than chance explains" if significant(line) else "no more than chance explains"
    verdict = changed if line.fixed or line.broken else "no label became right or wrong"
    return [f"{line.before:.1f}", f"{line.after:.1f}", *change_text(line), verdict]


def _data_set(tables: Sequence[Table], main: Table, figures: Sequence[ReportFigure]) -> dict[str, Any]:
    """Return all tables of a data set: by severity, then the highest; the others are folded up."""
    own = [table for table in tables if (table.data, table.digest) == (main.data, main.digest)]
    folded = [table for table in own if table.severity is not None and table is not main]
    return {
        "shown": [_section(table, figures) for table in own if table not in folded],
        "folded": [_section(table, figures) for table in folded],
    }


def _section(table: Table, figures: Sequence[ReportFigure]) -> dict[str, Any]:
    main, *details = text_tables(table)
    own = [_encoded(figure) for figure in figures if figure.table is table]
    return {"main": main, "details": details, "published": len(table.published) > 0, "figures": own}


def _encoded(figure: ReportFigure) -> dict[str, str]:
    return {"caption": figure.caption, "png": base64.b64encode(png_bytes(figure.figure)).decode()}
