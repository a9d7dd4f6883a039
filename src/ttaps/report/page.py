"""One page with everything, in one file: it needs no other file, no script and no network."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from importlib.resources import files

from ttaps import __version__
from ttaps.report.figures import Drawing
from ttaps.report.formats import html_table
from ttaps.report.grids import grids, place_of
from ttaps.report.style import png_bytes
from ttaps.report.tables import Shown, Table

SURE = 0.05


def page(tables: Sequence[Table], drawings: Sequence[Drawing], notes: Sequence[str]) -> str:
    """Return a report as HTML: in short, tables, how sure they are, figures, protocol."""
    css = (files("ttaps.report") / "page.css").read_text()
    title = f"Test-time adaptation on {', '.join(dict.fromkeys(table.data for table in tables))}"
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        f'<p class="soft">Made by ttaps {__version__} from stored results, image by image.</p>',
        _short(tables),
        *(_section(table, [drawing for drawing in drawings if drawing.table is table]) for table in tables),
        _figures([drawing for drawing in drawings if drawing.table is None]),
        _listed("What is not shown", notes),
    ]
    body = "\n".join(filter(None, parts))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{html.escape(title)}</title>\n'
        f"<style>\n{css}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def verdict(table: Table, shown: Shown) -> str:
    """Say in a sentence what adaptation changed, and whether chance explains it."""
    cell = shown.cells[table.rows[-1]] if table.rows[-1] in shown.cells else next(iter(shown.cells.values()))
    if cell.line is None:
        return ""
    before, after, d = cell.line.before.percent, cell.line.after.percent, cell.line.difference
    sure = d.p < SURE and (
        d.low > 0 or d.high < 0
    )  # the test counts pictures, the interval weighs them: both must agree
    real = "more than chance explains" if sure else "no more than chance explains"
    return (
        f"{shown.label} on {place_of(table)}: {table.metric} {before:.1f} → {after:.1f} %, {d.points:+.1f} points "
        f"(95 % interval {d.low:+.1f} to {d.high:+.1f}, p = {d.p:.2g}); {d.fixed} labels put right, {d.broken} put wrong: {real}."
    )


def _short(tables: Sequence[Table]) -> str:
    sentences = [verdict(table, shown) for table in tables for shown in table.adapting]
    if not sentences:
        return ""
    lines = "\n".join(f"<li>{html.escape(sentence)}</li>" for sentence in sentences)
    return f'<ul class="short">\n{lines}\n</ul>'


def _section(table: Table, drawings: Sequence[Drawing]) -> str:
    """Return a table with its protocol, its figures, and the tables that say how sure it is."""
    first, *others = grids(table)
    protocol = "\n".join(f"<li>{html.escape(note)}</li>" for note in first.notes)
    details = "\n".join(
        f'<h3>{html.escape(grid.title)}</h3>\n<div class="wide">\n{html_table(grid)}\n</div>' for grid in others
    )
    bold = '<p class="soft">The best of ours and the best of the published numbers in bold.</p>' if first.bold else ""
    return (
        f'<h2>{html.escape(first.title)}</h2>\n{bold}\n<div class="wide">\n{html_table(first)}\n</div>\n'
        f'<h3>Protocol</h3>\n<ul class="protocol">\n{protocol}\n</ul>\n{_figures(drawings)}\n'
        f"<details open>\n<summary>Intervals and paired tests</summary>\n{details}\n</details>"
    )


def _figures(drawings: Sequence[Drawing]) -> str:
    if not drawings:
        return ""
    shown = []
    for drawing in drawings:
        picture = base64.b64encode(png_bytes(drawing.figure)).decode()
        caption = html.escape(drawing.caption)
        shown.append(
            f'<figure>\n<img src="data:image/png;base64,{picture}" alt="{caption}">\n<figcaption>{caption}</figcaption>\n</figure>'
        )
    joined = "\n".join(shown)
    return f'<h3>Figures</h3>\n<div class="figures">\n{joined}\n</div>'


def _listed(title: str, notes: Sequence[str]) -> str:
    lines = "\n".join(f"<li>{html.escape(note)}</li>" for note in notes)
    return f'<h2>{title}</h2>\n<ul class="soft">\n{lines}\n</ul>' if notes else ""
