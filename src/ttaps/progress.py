"""Progress bars with time left, on stderr, quiet when nobody is watching."""

from __future__ import annotations

import os
from collections.abc import Iterable

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column

# Under torchrun the first process speaks for all.
stderr = Console(stderr=True, quiet=os.environ.get("RANK", "0") != "0")


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

    On a narrow terminal only the note at the end is cut: how much is done and how long it takes always stay in sight.
    """
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
    """Write one line for the person watching; results go to stdout, this does not."""
    stderr.print(text, highlight=False, markup=False, soft_wrap=True)
