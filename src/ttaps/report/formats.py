"""Tables for people and programs: Markdown, LaTeX, HTML, CSV, JSON. All say the same numbers."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from ttaps.evaluate.summary import Line
from ttaps.report.grids import Grid, grids
from ttaps.report.protocol import column_protocol, protocol
from ttaps.report.tables import Shown, Table

TEX = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "→": r"$\to$",
    "…": r"\dots{}",
    "†": r"$^\dagger$",
}
COLUMNS = (
    *("data", "severity", "corruption", "column", "against", "origin", "metric", "value", "std", "low", "high", "best"),
    *("n", "p", "fixed", "broken", "protocol"),
)
"""Of the CSV: a line is a number (``against`` is empty) or a paired difference against ``before`` or another column."""


def markdown(tables: Sequence[Table]) -> str:
    """Return tables in Markdown, aligned so that they can be read as they are."""
    return "\n\n".join(_markdown(grid) for table in tables for grid in grids(table)) + "\n"


def _markdown(grid: Grid) -> str:
    cells = [
        [f"**{cell}**" if (place, column) in grid.bold else cell for column, cell in enumerate(row)]
        for place, row in enumerate(grid.rows)
    ]
    lines = [[cell.replace("|", "\\|") for cell in row] for row in ([*grid.head], *cells)]
    widths = [max(3, *map(len, column)) for column in zip(*lines, strict=True)]
    rule = ["-" * width if not place else f"{'-' * (width - 1)}:" for place, width in enumerate(widths)]
    aligned = (
        [
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        for line in (lines[0], rule, *lines[1:])
    )
    body = "\n".join(f"| {' | '.join(line)} |" for line in aligned)
    notes = "".join(f"\n- {note}" for note in grid.notes)
    return f"**{grid.title}**\n\n{body}" + (f"\n{notes}" if notes else "")


def latex(tables: Sequence[Table]) -> str:
    """Return tables in LaTeX, for the package ``booktabs``."""
    return "\n\n".join(_latex(grid) for table in tables for grid in grids(table)) + "\n"


def _latex(grid: Grid) -> str:
    rows = [
        " & ".join(
            rf"\textbf{{{tex(cell)}}}" if (place, column) in grid.bold else tex(cell) for column, cell in enumerate(row)
        )
        for place, row in enumerate(grid.rows)
    ]
    if grid.average:
        rows[-1] = rf"\midrule{chr(10)}{rows[-1]}"
    head = " & ".join(map(tex, grid.head))
    notes = "".join(f"\n\n{{\\footnotesize {tex(note)}\\par}}" for note in grid.notes)
    body = "\n".join(f"{row} \\\\" for row in rows)
    return (
        f"\\begin{{table*}}\n\\centering\n\\caption{{{tex(grid.title)}}}\n\\begin{{tabular}}{{l{'r' * (len(grid.head) - 1)}}}\n"
        f"\\toprule\n{head} \\\\\n\\midrule\n{body}\n\\bottomrule\n\\end{{tabular}}{notes}\n\\end{{table*}}"
    )


def tex(words: str) -> str:
    """Return words as LaTeX prints them."""
    return "".join(TEX.get(sign, sign) for sign in words)


def html_table(grid: Grid) -> str:
    """Return a table in HTML, without its notes."""
    head = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in grid.head)
    rows = []
    for place, row in enumerate(grid.rows):
        cells = [f'<th scope="row">{html.escape(row[0])}</th>']
        for column, cell in enumerate(row[1:], 1):
            words = html.escape(cell)
            cells.append(f"<td><b>{words}</b></td>" if (place, column) in grid.bold else f"<td>{words}</td>")
        last = ' class="average"' if grid.average and place == len(grid.rows) - 1 else ""
        rows.append(f"<tr{last}>{''.join(cells)}</tr>")
    body = "\n".join(rows)
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def comma_separated(tables: Sequence[Table]) -> str:
    """Return all numbers and differences as one tidy table, each line with its protocol."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, COLUMNS, lineterminator="\n", restval="")
    writer.writeheader()
    for table in tables:
        severity = "all" if table.severity is None else table.severity
        common = {"data": table.data, "severity": severity, "metric": table.metric}
        writer.writerows({**common, **line} for line in _lines(table))
    return buffer.getvalue()


def _lines(table: Table) -> Iterator[dict[str, object]]:
    for shown in (*table.ours, *table.published):
        words = column_protocol(shown, table)
        origin = "ours" if shown.column else "published"
        for row, cell in shown.cells.items():
            known = {} if cell.line is None else _numbers(low=cell.line.after.low, high=cell.line.after.high)
            numbers = _numbers(value=cell.value, std=cell.std) | known
            yield {
                "corruption": row,
                "column": shown.label,
                "origin": origin,
                "protocol": words,
                "best": int(cell.best),
                "n": (cell.n or ("",))[0],
                **numbers,
            }
    for shown in table.adapting:
        lines = [cell.line for cell in shown.cells.values() if cell.line]
        yield from (_difference(line, shown.label, "before") for line in lines)
    for pair in table.comparisons:
        yield from (_difference(line, pair.second, pair.first) for line in pair.lines)


def _difference(line: Line, label: str, against: str) -> dict[str, object]:
    d = line.difference
    numbers = _numbers(value=d.points, low=d.low, high=d.high)
    names = {"corruption": line.corruption, "column": label, "against": against, "origin": "ours"}
    return {**names, **numbers, "n": line.n, "p": f"{d.p:.3g}", "fixed": d.fixed, "broken": d.broken}


def _numbers(**values: float | None) -> dict[str, object]:
    return {name: "" if value is None else round(value, 4) for name, value in values.items()}


def plain(tables: Sequence[Table]) -> list[dict[str, Any]]:
    """Return tables as values that JSON can say."""
    return [
        {
            **{name: getattr(table, name) for name in ("data", "digest", "severity", "metric", "rows")},
            "protocol": protocol(table),
            "ours": [_plain_column(shown, table) for shown in table.ours],
            "published": [_plain_column(shown, table) for shown in table.published],
            "comparisons": [asdict(pair) for pair in table.comparisons],
        }
        for table in tables
    ]


def _plain_column(shown: Shown, table: Table) -> dict[str, Any]:
    found: dict[str, Any] = {"label": shown.label, "cells": {row: asdict(cell) for row, cell in shown.cells.items()}}
    if shown.column:
        experiments = [asdict(run.experiment) for run in shown.column.runs]
        found |= {"protocol": column_protocol(shown, table), "experiments": experiments}
    return found
