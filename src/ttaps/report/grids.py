"""Tables as text in cells, the same for every format: numbers are rounded here and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass

from ttaps.evaluate.summary import AVERAGE, Accuracy, Difference, signed
from ttaps.report.protocol import protocol
from ttaps.report.tables import Cell, Shown, Table

SHORT = {
    "brightness": "brit",
    "contrast": "contr",
    "defocus_blur": "defoc",
    "elastic_transform": "elast",
    "gaussian_noise": "gauss",
    "glass_blur": "glass",
    "impulse_noise": "impul",
    "jpeg_compression": "jpeg",
    "motion_blur": "motn",
    "pixelate": "pixel",
    "shot_noise": "shot",
    "zoom_blur": "zoom",
    "speckle_noise": "speck",
    "gaussian_blur": "gblur",
    "spatter": "spatt",
    "saturate": "satur",
}
"""The paper's short names, and like them the extra ones; others stay as they are."""
NOTHING = "-"


@dataclass(frozen=True)
class Grid:
    """A table of words: the first column is names, the others are numbers."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    bold: frozenset[tuple[int, int]] = frozenset()
    """Row and column of what is best."""
    average: bool = False
    """The last row is an average."""
    notes: tuple[str, ...] = ()


def grids(table: Table) -> list[Grid]:
    """Return all that is to be said about a table: its numbers, how sure they are, and which differences are real."""
    found = [main_grid(table), interval_grid(table)]
    found += [change_grid(table, shown) for shown in table.adapting]
    return found + ([comparison_grid(table)] if table.comparisons else [])


def main_grid(table: Table) -> Grid:
    """Return the paper's layout: ours, then the published columns; the best of each block is bold."""
    columns = (*table.ours, *table.published)
    labels = (*(shown.label for shown in table.ours), *(f"{shown.label}†" for shown in table.published))
    rows = tuple(
        (short(row), _count(table, row), *(_text(shown, row, table) for shown in columns)) for row in table.rows
    )
    bold = {
        (place, number + 2)
        for place, row in enumerate(table.rows)
        for number, shown in enumerate(columns)
        if row in shown.cells and shown.cells[row].best
    }
    head = ("", "n", *labels)
    return Grid(heading(table), head, rows, frozenset(bold), AVERAGE in table.rows, tuple(protocol(table)))


def interval_grid(table: Table) -> Grid:
    """Return the 95 % interval of each of our numbers."""
    rows = tuple((short(row), *(_range(shown.cells.get(row)) for shown in table.ours)) for row in table.rows)
    head = ("", *(shown.label for shown in table.ours))
    return Grid(f"95 % intervals of the {table.metric}, in %", head, rows, average=AVERAGE in table.rows)


def change_grid(table: Table, shown: Shown) -> Grid:
    """Return what adaptation changed: before, after, and a paired test of the difference."""
    head = ("", _n(shown), "before", "95 %", "after", "95 %", "difference", "95 %", "fixed", "broken", "p")
    rows = []
    for row in table.rows:
        cell = shown.cells.get(row)
        if cell and cell.line:
            line = cell.line
            rows.append(
                (short(row), str(line.n), *_pair(line.before), *_pair(line.after), *change_words(line.difference))
            )
    return Grid(
        f"{shown.label}: {table.metric} before and after adaptation, in %",
        head,
        tuple(rows),
        average=AVERAGE in table.rows,
    )


def comparison_grid(table: Table) -> Grid:
    """Return the paired difference between every two of our columns, over all rows that both have."""
    head = ("from → to", _n(*table.ours), "difference", "95 %", "fixed", "broken", "p")
    rows = tuple(
        (f"{pair.first} → {pair.second}", str(pair.lines[-1].n), *change_words(pair.lines[-1].difference))
        for pair in table.comparisons
    )
    over = f"averaged over {'corruptions' if table.severity else 'severities'}, " if AVERAGE in table.rows else ""
    return Grid(f"Differences between columns: {table.metric}, {over}on the images both have, in points", head, rows)


def heading(table: Table) -> str:
    """Name a table."""
    by = f"{table.data}, by severity" if table.severity is None else place_of(table)
    return f"{by}: {table.metric} in %"


def place_of(table: Table) -> str:
    """Name the images of a table."""
    if table.severity is None:
        return f"{table.data}, all severities"
    return f"{table.data}, severity {table.severity}" if table.severity else table.data


def short(row: str) -> str:
    """Return the paper's short name of a corruption."""
    return SHORT.get(row, row)


def _n(*columns: Shown) -> str:
    """Say what is counted: images, and where a column has several seeds, those of all."""
    return "n, all seeds" if any(shown.column and len(shown.column.runs) > 1 for shown in columns) else "n"


def _text(shown: Shown, row: str, table: Table) -> str:
    cell = shown.cells.get(row)
    if cell is None:
        return NOTHING
    spread = "" if cell.std is None else f" ± {cell.std:.2f}"
    partial = "" if row != AVERAGE or shown.complete(table.rows) else "*"
    return f"{cell.value:.1f}{spread}{partial}"


def _count(table: Table, row: str) -> str:
    """Return how many images our columns have, from the fewest to the most."""
    counts = [count for shown in table.ours if row in shown.cells for count in shown.cells[row].n or ()]
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low}-{high}"


def _range(cell: Cell | None) -> str:
    return _pair(cell.line.after)[1] if cell and cell.line else NOTHING


def _pair(accuracy: Accuracy) -> tuple[str, str]:
    return f"{accuracy.percent:.1f}", f"{accuracy.low:.1f}-{accuracy.high:.1f}"


def change_words(difference: Difference) -> tuple[str, ...]:
    """Return a difference, its interval, how many labels were fixed and broken, and p."""
    change = signed(difference.points), difference.interval
    return *change, str(difference.fixed), str(difference.broken), f"{difference.p:.2g}"
