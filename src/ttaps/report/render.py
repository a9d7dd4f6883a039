"""Tables for people and programs: Markdown, LaTeX, terminal, CSV, JSON. All have the same numbers, rounded here and nowhere else."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from ttaps.evaluate.statistics import AVERAGE, STATISTICS, signed
from ttaps.report.columns import TableColumn
from ttaps.report.load import RUN
from ttaps.report.protocol import column_protocol, protocol
from ttaps.report.tables import Table

MISSING = "-"
INTERVAL = "95 %"
MOST_NAME, MOST_HEAD = 20, 14  # characters in a line, where there is not room for more
CHANGE_HEAD = ("difference", INTERVAL, "fixed", "broken", "p")
BEFORE_AFTER_HEAD = ("before", INTERVAL, "after", INTERVAL, *CHANGE_HEAD)
TEX = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "→": r"$\to$",
    "†": r"$^\dagger$",
}
CSV_COLUMNS = [
    *("data", "severity", "corruption", "column", "paper_column", "against", "origin", "metric", "value", "std"),
    *("low", "high", "best", "n", "p", "fixed", "broken", "protocol"),
]
"""A line is a number (``against`` is empty) or a paired difference against ``before`` or another column."""


@dataclass(frozen=True)
class TextTable:
    """A table as text in cells, the same for every format: the first column is names, the others are numbers."""

    title: str
    head: tuple[str, ...]
    """A column's spec, and on a second line the paper's name of it."""
    rows: tuple[tuple[str, ...], ...]
    bold: frozenset[tuple[int, int]] = frozenset()
    """Row and column of what is best."""
    average: bool = False
    """Whether the last row is an average."""
    notes: tuple[str, ...] = ()


def text_tables(table: Table) -> list[TextTable]:
    """Return all that a table has to say: its numbers, how certain they are, and which differences are significant."""
    found = [main_table(table), _interval_table(table)]
    found += [_change_table(table, column) for column in table.adapting]
    return found + ([_comparison_table(table)] if len(table.comparisons) else [])


def main_table(table: Table) -> TextTable:
    """Return the paper's layout: ours, then the published columns; the best of each block is bold."""
    every = pd.concat([table.numbers[["value", "std", "best"]], table.published.rename("{}†".format, level="column")])
    names = list(every.index.unique("column"))
    texts = every.apply(
        lambda cell: f"{cell['value']:.1f}" + ("" if pd.isna(cell["std"]) else f" ± {cell['std']:.2f}"), axis=1
    )
    for column in table.columns:
        if AVERAGE in table.rows and table.partial(column):
            texts[column.label, AVERAGE] += "*"
    images = table.numbers.groupby("row").agg({"n_min": "min", "n_max": "max"})
    counts = [f"{low}" if low == high else f"{low}-{high}" for low, high in images.loc[list(table.rows)].to_numpy()]
    body = [(row, n, *cells) for (row, *cells), n in zip(_body(texts, table.rows, names), counts, strict=True)]
    bold = frozenset(
        (table.rows.index(row), names.index(name) + 2) for name, row in every.index[every["best"].astype(bool)]
    )
    by = f"{table.data}, by severity" if table.severity is None else table.images
    head = ("", "n", *map(two_lines, table.columns), *names[len(table.columns) :])
    notes = tuple(protocol(table))
    return TextTable(f"{by}: {table.metric} in %", head, tuple(body), bold, AVERAGE in table.rows, notes)


def two_lines(column: TableColumn) -> str:
    """Return a column's label and, on a second line, the paper's name of it."""
    return "\n".join(filter(None, (column.label, column.paper_name)))


def before_after_text(line: Any) -> list[str]:
    """Return accuracy before and after adaptation with its intervals, and the difference."""
    intervals = ((line.before, line.before_low, line.before_high), (line.after, line.after_low, line.after_high))
    accuracies = [text for middle, low, high in intervals for text in (f"{middle:.1f}", f"{low:.1f}-{high:.1f}")]
    return [*accuracies, *change_text(line)]


def change_text(line: Any) -> list[str]:
    """Return a difference, its interval, how many labels were fixed and broken, and p."""
    interval = f"{signed(line.change_low)} to {signed(line.change_high)}"
    return [signed(line.change), interval, f"{line.fixed:.0f}", f"{line.broken:.0f}", f"{line.p:.2g}"]


def _body(texts: pd.Series[str], rows: Sequence[str], columns: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return texts by (column, row) as lines that begin with the row's name."""
    return tuple((row, *(texts.get((column, row), MISSING) for column in columns)) for row in rows)


def _interval_table(table: Table) -> TextTable:
    texts = table.numbers.apply(lambda line: f"{line.after_low:.1f}-{line.after_high:.1f}", axis=1)
    rows = _body(texts, table.rows, [column.label for column in table.columns])
    head = ("", *map(two_lines, table.columns))
    return TextTable(f"95 % intervals of the {table.metric}, in %", head, rows, average=AVERAGE in table.rows)


def _change_table(table: Table, column: TableColumn) -> TextTable:
    """Return what adaptation changed: before, after, and a paired test of the difference."""
    rows = [(str(line.Index), f"{line.n:.0f}", *before_after_text(line)) for line in table.of(column).itertuples()]
    head = ("", _images(column), *BEFORE_AFTER_HEAD)
    title = f"{column.label}: {table.metric} before and after adaptation, in %"
    return TextTable(title, head, tuple(rows), average=AVERAGE in table.rows)


def _comparison_table(table: Table) -> TextTable:
    """Return the paired difference between every two of our columns, over all rows that both have."""
    lines = table.comparisons.groupby(["first", "second"], sort=False).tail(1).reset_index()
    rows = tuple(
        (f"{line['first']} → {line['second']}", f"{line.n:.0f}", *change_text(line)) for _, line in lines.iterrows()
    )
    head = ("from → to", _images(*table.columns), *CHANGE_HEAD)
    over = f"averaged over {'corruptions' if table.severity else 'severities'}, " if AVERAGE in table.rows else ""
    title = f"Differences between columns: {table.metric}, {over}on the images both have, in points"
    return TextTable(title, head, rows)


def _images(*columns: TableColumn) -> str:
    several = any(len(column.rows.drop_duplicates(RUN)) > 1 for column in columns)
    return "n, all seeds" if several else "n"


def markdown(tables: Sequence[Table]) -> str:
    """Return tables in Markdown, aligned so that they can be read as they are."""
    return "\n\n".join(_markdown(text) for table in tables for text in text_tables(table)) + "\n"


def _markdown(text: TextTable) -> str:
    body = [
        [f"**{cell}**" if (y, x) in text.bold else cell for x, cell in enumerate(row)]
        for y, row in enumerate(text.rows)
    ]
    lines = [[cell.replace("|", "\\|").replace("\n", "<br>") for cell in row] for row in (text.head, *body)]
    widths = [max(3, *map(len, column)) for column in zip(*lines, strict=True)]
    rule = ["-" * width if not place else f"{'-' * (width - 1)}:" for place, width in enumerate(widths)]
    aligned = (
        [
            cell.rjust(width) if x else cell.ljust(width)
            for x, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        for line in (lines[0], rule, *lines[1:])
    )
    notes = "".join(f"\n- {note}" for note in text.notes)
    return (
        f"**{text.title}**\n\n"
        + "\n".join(f"| {' | '.join(line)} |" for line in aligned)
        + (f"\n{notes}" if notes else "")
    )


def latex(tables: Sequence[Table]) -> str:
    """Return tables in LaTeX, for the package ``booktabs``."""
    return "\n\n".join(_latex(text) for table in tables for text in text_tables(table)) + "\n"


def _latex(text: TextTable) -> str:
    rows = [
        " & ".join(rf"\textbf{{{tex(cell)}}}" if (y, x) in text.bold else tex(cell) for x, cell in enumerate(row))
        for y, row in enumerate(text.rows)
    ]
    if text.average:
        rows[-1] = f"\\midrule\n{rows[-1]}"
    head = " & ".join(rf"\shortstack{{{tex(cell)}}}" if "\n" in cell else tex(cell) for cell in text.head)
    notes = "".join(f"\n\n{{\\footnotesize {tex(note)}\\par}}" for note in text.notes)
    body = "\n".join(f"{row} \\\\" for row in rows)
    return (
        f"\\begin{{table*}}\n\\centering\n\\caption{{{tex(text.title)}}}\n\\begin{{tabular}}{{l{'r' * (len(text.head) - 1)}}}\n"
        f"\\toprule\n{head} \\\\\n\\midrule\n{body}\n\\bottomrule\n\\end{{tabular}}{notes}\n\\end{{table*}}"
    )


def tex(text: str) -> str:
    """Return text as LaTeX prints it."""
    return "".join(TEX.get(sign, sign) for sign in text).replace("\n", r"\\")


def print_tables(tables: Sequence[Table], form: str = "auto") -> None:
    """Print tables as ``md``, ``tex``, ``csv`` or ``text``; ``auto`` is text on a terminal, else Markdown."""
    if form == "text" or (form == "auto" and sys.stdout.isatty()):
        room = terminal_width()
        console = Console(width=room, highlight=False)
        for text in (text for table in tables for text in text_tables(table)):
            notes = (Text(f"- {note}", style="dim") for note in text.notes)
            console.print(Text(text.title, style="italic"), *_rich(text, room), *notes, "", sep="\n")
    else:
        print({"tex": latex, "csv": to_csv}.get(form, markdown)(tables), end="")


def _rich(text: TextTable, room: int) -> list[RichTable]:
    """Return a table in blocks that fit a terminal: names may take several lines, numbers never."""
    names, *numbers = ([len(cell) for cell in cells] for cells in zip(*text.rows, strict=True))
    heads = [max(map(len, name.split("\n"))) for name in text.head[1:]]
    widths = [min(max(names), max(room // 3, MOST_NAME))]
    widths += [max(*cells, min(head, MOST_HEAD)) for cells, head in zip(numbers, heads, strict=True)]
    blocks: list[RichTable] = []
    for block in column_blocks(text.head, widths, room):
        shown = RichTable(box=None, pad_edge=False, title="" if blocks else None)  # an empty line between blocks
        for x in block:
            shown.add_column(Text(text.head[x]), justify="right" if x else "left", overflow="fold", width=widths[x])
        for y, row in enumerate(text.rows):
            shown.add_row(*(Text(row[x], style="bold" if (y, x) in text.bold else "") for x in block))
        blocks.append(shown)
    return blocks


def terminal_width() -> int:
    """Return how many characters a line may have; a file has room for all."""
    return shutil.get_terminal_size(fallback=(10_000, 0)).columns


def column_blocks(head: Sequence[str], widths: Sequence[int], room: int) -> list[list[int]]:
    """Return the columns to show side by side, in so many characters; each block begins with the names, in column 0.

    An interval stays beside its number.
    """
    units: list[list[int]] = []
    for place, name in list(enumerate(head))[1:]:
        if name == INTERVAL:
            units[-1].append(place)
        else:
            units.append([place])
    blocks = [[0]]
    for unit in units:
        if len(blocks[-1]) > 1 and sum(widths[place] + 2 for place in blocks[-1] + unit) - 2 > room:
            blocks.append([0])
        blocks[-1] += unit
    return blocks


def to_csv(tables: Sequence[Table]) -> str:
    """Return all numbers and differences as one tidy table, each line with its protocol."""
    lines = pd.concat([_csv_lines(table) for table in tables])
    numbers = ["value", "std", "low", "high"]
    lines[numbers] = lines[numbers].astype(float).round(4)
    lines["p"] = lines["p"].map("{:.3g}".format, na_action="ignore")
    counts = ["best", "n", "fixed", "broken"]
    lines[counts] = lines[counts].astype("Int64")
    return lines.reindex(columns=CSV_COLUMNS).to_csv(index=False, lineterminator="\n")


def _csv_lines(table: Table) -> pd.DataFrame:
    names = {column.label: column.paper_name for column in table.columns}
    about = {column.label: column_protocol(column, table) for column in table.columns}
    ours = table.numbers.drop(columns="n").rename(columns={"after_low": "low", "after_high": "high", "n_min": "n"})
    ours = ours[["value", "std", "low", "high", "best", "n"]].reset_index().assign(origin="ours")
    ours["protocol"] = ours["column"].map(about)
    printed = table.published.reset_index().assign(origin="published", protocol="published")
    adapting = table.numbers[table.numbers.index.isin([column.label for column in table.adapting], level="column")]
    changes = adapting[STATISTICS].reset_index().assign(against="before")
    pairs = table.comparisons.reset_index().rename(columns={"first": "against", "second": "column"})
    differences = pd.concat([changes, pairs]).rename(
        columns={"change": "value", "change_low": "low", "change_high": "high"}
    )
    lines = pd.concat([ours, printed, differences.assign(origin="ours")]).rename(columns={"row": "corruption"})
    severity = "all" if table.severity is None else table.severity
    lines["paper_column"] = lines["column"].map(names)
    return lines.assign(data=table.data, severity=severity, metric=table.metric)


def to_records(tables: Sequence[Table]) -> list[dict[str, Any]]:
    """Return tables as plain values for JSON; numbers, published ones and comparisons are lists of records."""
    return [
        {
            **{"data": table.data, "digest": table.digest, "severity": table.severity, "metric": table.metric},
            "rows": list(table.rows),
            "protocol": protocol(table),
            "columns": [_column_record(column, table) for column in table.columns],
            **{
                name: json.loads(frame.reset_index().to_json(orient="records", double_precision=15))
                for name, frame in (
                    ("numbers", table.numbers),
                    ("published", table.published),
                    ("comparisons", table.comparisons),
                )
            },
        }
        for table in tables
    ]


def _column_record(column: TableColumn, table: Table) -> dict[str, Any]:
    names = ["model", "fingerprint", "objective", "training_seed", "num_prototypes", "spec", "protocol", "seed"]
    experiments = column.rows[names].drop_duplicates().to_json(orient="records")
    about = {"label": column.label, "spec": column.spec, "paper_column": column.paper_name}
    return {**about, "protocol": column_protocol(column, table), "experiments": json.loads(experiments)}
