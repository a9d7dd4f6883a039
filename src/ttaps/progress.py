"""Progress bars with time left, on stderr, quiet when nobody is watching."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

stderr = Console(stderr=True)


def bar() -> Progress:
    """Return a rich progress bar for ``with bar() as progress: task = progress.add_task("what", total=n)``."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=stderr,
        speed_estimate_period=3600,  # the default forgets after 30 s, which one slow step may take
        transient=False,
    )


def say(text: str) -> None:
    """Write one line for the person watching; results go to stdout, this does not."""
    stderr.print(text, highlight=False, markup=False, soft_wrap=True)
