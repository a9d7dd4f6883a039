"""One HTML page with everything; ``page.html.j2`` says how it looks. All text is escaped by the template engine."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup, escape

from ttaps import __version__
from ttaps.evaluate.statistics import significant
from ttaps.report.figures.draw import ReportFigure
from ttaps.report.figures.style import png_bytes
from ttaps.report.render import TextTable, change_text, text_tables
from ttaps.report.tables import Table, highest_severity


def page(tables: Sequence[Table], figures: Sequence[ReportFigure], notes: Sequence[str]) -> str:
    """Return a report as HTML: a summary, tables with their protocol and figures, intervals and tests.

    Of several severities the tables of all but the highest are folded up.
    """
    loader = FileSystemLoader(Path(__file__).parent)
    engine = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    engine.filters["png"] = lambda figure: base64.b64encode(png_bytes(figure)).decode()
    engine.filters["breakable"] = lambda label: Markup(re.sub(r"([:,\[])", r"\1<wbr>", str(escape(label))))
    engine.globals |= {"text_tables": text_tables, "figures": figures}
    data_sets = []
    for main in highest_severity(tables):
        own = [table for table in tables if (table.data, table.digest) == (main.data, main.digest)]
        first = [table for table in own if table.severity is None or table is main]
        data_sets.append((first, [table for table in own if table not in first]))
    return engine.get_template("page.html.j2").render(
        title=f"Test-time adaptation on {', '.join(dict.fromkeys(table.data for table in tables))}",
        version=__version__,
        summaries=[_summary(table) for table in highest_severity(tables) if table.adapting],
        data_sets=data_sets,
        notes=notes,
    )


def _summary(table: Table) -> TextTable:
    """Return in a few lines what adaptation changed, and whether chance explains it."""
    numbers = table.numbers.xs(table.rows[-1], level="row")
    labels = [column.label for column in table.adapting if column.label in numbers.index]
    over = ", averaged over corruptions" if len(table.rows) > 1 else ""
    title = f"In short: {table.metric} in % on {table.images}{over}, before and after adaptation"
    head = ("", "before", "after", "points", "95 %", "fixed", "broken", "p", "")
    return TextTable(title, head, tuple((label, *_verdict(numbers.loc[label])) for label in labels))


def _verdict(line: Any) -> list[str]:
    chance = "more than chance explains" if significant(line) else "no more than chance explains"
    verdict = chance if line.fixed or line.broken else "no label became right or wrong"
    return [f"{line.before:.1f}", f"{line.after:.1f}", *change_text(line), verdict]
