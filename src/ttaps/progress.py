"""Terminal output: progress bars with time left, on stderr if it is a terminal; tables as plain text."""

import os
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import Literal

from rich.box import HORIZONTALS
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column, Table
from rich.text import Text

Rows = Sequence[Sequence[str]]
Cells = Collection[tuple[int, int]]  # by row and column
INTERVAL = "95 %"  # head of a column that stays beside the one before it
MOST_NAME, MOST_HEAD = 20, 14  # characters in a line, where there is not room for more


def process_rank() -> int:
    """Return this process's number among those that ``torchrun`` started; 0 without it."""
    return int(os.environ.get("RANK", "0"))


stderr = Console(stderr=True, quiet=process_rank() > 0)  # the first process speaks for all


class Bar(Progress):
    """A progress bar with room for a text below it."""

    below: RenderableType | None = None

    def get_renderables(self) -> Iterable[RenderableType]:
        """Return what is shown."""
        yield from super().get_renderables()
        if self.below is not None:
            yield self.below


def bar(console: Console = stderr, shown: bool = True) -> Bar:
    """Return a rich progress bar for ``with bar() as progress: task = progress.add_task("what", total=n, note="")``.
    On a narrow terminal only the note at the end is cut: progress and time left always stay visible."""
    return Bar(
        TextColumn("{task.description}", table_column=Column(no_wrap=True, max_width=18)),
        BarColumn(bar_width=12),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TimeElapsedColumn(table_column=Column(no_wrap=True)),
        TextColumn("left", table_column=Column(no_wrap=True)),
        TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[note]}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
        console=console,
        disable=not shown,
        refresh_per_second=2,  # drawing takes 1 to 2 ms
        expand=True,
        speed_estimate_period=3600,  # the default forgets after 30 s, which one slow step may take
    )


def log_info(text: str) -> None:
    """Write one line to stderr for the user; results go to stdout."""
    stderr.print(text, highlight=False, markup=False, soft_wrap=True)


def table_blocks(
    head: Sequence[str], rows: Rows, room: int, left: int = 1, rule_before_last: bool = False, bold: Cells = ()
) -> list[RenderableType]:
    """Return a table in blocks that fit so many characters, with an empty line between, each with the names in column 0. The first
    ``left`` columns are left-aligned; ``bold`` marks some. Where room is short, names and heads fold, numbers never."""
    cells = [max(len(row[x]) for row in rows) for x in range(len(head))]
    heads = [max(map(len, name.split("\n"))) for name in head]
    widths = list(map(max, cells, heads))
    if sum(widths) + 2 * len(widths) - 2 > room:
        widths = [max(cell, min(name, MOST_HEAD)) for cell, name in zip(cells, heads, strict=True)]
        widths[0] = min(widths[0], max(room // 3, MOST_NAME))
    blocks: list[RenderableType] = []
    for block in _column_blocks(head, widths, room):
        made = Table(box=HORIZONTALS, show_edge=False, pad_edge=False, collapse_padding=True)
        for x in block:
            side: Literal["left", "right"] = "left" if x < left else "right"
            made.add_column(Text(head[x]), justify=side, overflow="fold", width=widths[x])
        for y, row in enumerate(rows):
            texts = (Text(row[x], style="bold" if (y, x) in bold else "") for x in block)
            made.add_row(*texts, end_section=rule_before_last and y == len(rows) - 2)
        blocks += ["", made] if blocks else [made]
    return blocks


def _column_blocks(head: Sequence[str], widths: Sequence[int], room: int) -> list[list[int]]:
    """Return the columns to show side by side in so many characters, the names (0) in each block; an interval stays by its number."""
    starts = [place for place, name in enumerate(head) if place and name != INTERVAL]
    blocks = [[0]]
    for start, end in pairwise([*starts, len(head)]):
        if len(blocks[-1]) > 1 and sum(widths[place] + 2 for place in (*blocks[-1], *range(start, end))) - 2 > room:
            blocks.append([0])
        blocks[-1] += range(start, end)
    return blocks


def text_table(
    head: Sequence[str], rows: Rows, room: int = 10_000, left: int = 1, rule_before_last: bool = False
) -> str:
    """Return a table as plain text, in blocks as of :func:`table_blocks`."""
    # Never narrower than its content; rich would also show an empty output in a notebook.
    console = Console(width=10_000, color_system=None, markup=False, highlight=False, force_jupyter=False)
    with console.capture() as captured:
        console.print(*table_blocks(head, rows, room, left, rule_before_last), sep="\n")
    return "\n".join(line.rstrip() for line in captured.get().splitlines())
