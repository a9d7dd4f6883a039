"""One page with everything, in one file: it needs no other file, no script and no network."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from importlib.resources import files

from ttaps import __version__
from ttaps.evaluate.summary import Line
from ttaps.report.figures import Drawing
from ttaps.report.formats import html_table
from ttaps.report.grids import Grid, change_words, grids, place_of
from ttaps.report.style import png_bytes
from ttaps.report.tables import Table, severest

SHORT = ("", "before", "after", "points", "95 %", "put right", "put wrong", "p", "")


def page(tables: Sequence[Table], drawings: Sequence[Drawing], notes: Sequence[str]) -> str:
    """Return a report as HTML: in short, tables, how sure they are, figures, protocol."""
    css = (files("ttaps.report") / "page.css").read_text("utf-8")
    title = f"Test-time adaptation on {', '.join(dict.fromkeys(table.data for table in tables))}"
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        f'<p class="soft">Made by ttaps {__version__} from stored results, image by image.</p>',
        *map(_short, severest(tables)),
        *(_data_set(tables, table, drawings) for table in severest(tables)),
        _figures([drawing for drawing in drawings if drawing.table is None], "h2"),
        _listed("What is not shown", notes),
    ]
    body = "\n".join(filter(None, parts))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{html.escape(title)}</title>\n'
        f"<style>\n{css}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _short(table: Table) -> str:
    """Return in a few lines what adaptation changed, and whether chance explains it."""
    lines = [(shown.label, shown.cells.get(table.rows[-1])) for shown in table.adapting]
    rows = tuple(_verdict(label, cell.line) for label, cell in lines if cell and cell.line)
    if not rows:
        return ""
    over = ", averaged over corruptions" if len(table.rows) > 1 else ""
    title = f"In short: {table.metric} in % on {place_of(table)}{over}, before and after adaptation"
    return f'<div class="short wide">\n<h2>{html.escape(title)}</h2>\n{html_table(Grid(title, SHORT, rows))}\n</div>'


def _verdict(label: str, line: Line) -> tuple[str, ...]:
    d = line.difference
    changed = "more than chance explains" if d.significant else "no more than chance explains"
    real = changed if d.fixed or d.broken else "no label became right or wrong"
    before, after = (f"{accuracy.percent:.1f}" for accuracy in (line.before, line.after))
    return label, before, after, *change_words(d), real


def _data_set(tables: Sequence[Table], severe: Table, drawings: Sequence[Drawing]) -> str:
    """Return all tables of a data set: by severity, then the severest, then the others folded up."""
    own = [table for table in tables if (table.data, table.digest) == (severe.data, severe.digest)]
    shown = [_section(table, drawings) for table in own if table.severity is None or table is severe]
    folded = [_section(table, drawings) for table in own if table.severity is not None and table is not severe]
    others = "\n".join(folded)
    fold = f"<details>\n<summary>Tables of the other severities</summary>\n{others}\n</details>" if folded else ""
    return "\n".join(filter(None, [*shown, fold]))


def _section(table: Table, drawings: Sequence[Drawing]) -> str:
    """Return a table with its protocol, its figures, and the tables that say how sure it is."""
    first, *others = grids(table)
    protocol = "\n".join(f"<li>{html.escape(note)}</li>" for note in first.notes)
    details = "\n".join(
        f'<h3>{html.escape(grid.title)}</h3>\n<div class="wide">\n{html_table(grid)}\n</div>' for grid in others
    )
    best = "The best of ours and the best of the published numbers" if table.published else "The best of every row"
    bold = f'<p class="soft">{best} in bold.</p>' if first.bold else ""
    figures = _figures([drawing for drawing in drawings if drawing.table is table])
    return (
        f'<h2>{html.escape(first.title)}</h2>\n{bold}\n<div class="wide">\n{html_table(first)}\n</div>\n'
        f'<h3>Protocol</h3>\n<ul class="protocol">\n{protocol}\n</ul>\n{figures}\n'
        f"<details>\n<summary>Intervals and paired tests</summary>\n{details}\n</details>"
    )


def _figures(drawings: Sequence[Drawing], level: str = "h3") -> str:
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
    return f'<{level}>Figures</{level}>\n<div class="figures">\n{joined}\n</div>'


def _listed(title: str, notes: Sequence[str]) -> str:
    lines = "\n".join(f"<li>{html.escape(note)}</li>" for note in notes)
    return f'<h2>{title}</h2>\n<ul class="soft">\n{lines}\n</ul>' if notes else ""
