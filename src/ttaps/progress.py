"""Terminal output: progress bars with time left, on stderr if it is a terminal; tables as plain text."""

import os
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal

from rich.box import HORIZONTALS
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column, Table
from rich.text import Text


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


def make_table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: int = 1,
    rule_before_last: bool = False,
    bold: Collection[tuple[int, int]] = (),
    widths: Sequence[int] | None = None,
) -> Table:
    """Return a table for a terminal: the first ``left`` columns are left-aligned, the others right-aligned; ``bold`` are cells by row
    and column. Longer names are folded to ``widths``, if given."""
    made = Table(box=HORIZONTALS, show_edge=False, pad_edge=False, collapse_padding=True)
    for x, name in enumerate(head):
        side: Literal["left", "right"] = "left" if x < left else "right"
        made.add_column(
            Text(name), justify=side, overflow="fold", width=widths[x] if widths else None, no_wrap=not widths
        )
    for y, row in enumerate(rows):
        cells = (Text(cell, style="bold" if (y, x) in bold else "") for x, cell in enumerate(row))
        made.add_row(*cells, end_section=rule_before_last and y == len(rows) - 2)
    return made


def plain_text(table: Table) -> str:
    """Return a table as plain text."""
    # Never narrower than its content; rich would also show an empty output in a notebook.
    console = Console(width=10_000, color_system=None, markup=False, highlight=False, force_jupyter=False)
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def text_table(head: Sequence[str], rows: Sequence[Sequence[str]], **options: Any) -> str:
    """Return a table as plain text; ``options`` are those of :func:`make_table`."""
    return plain_text(make_table(head, rows, **options))
