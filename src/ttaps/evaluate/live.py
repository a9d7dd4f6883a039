"""What a run has found so far, shown while it goes on: a bar and, on a terminal, a table below it; elsewhere a line now and then."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from time import perf_counter

from rich.text import Text

from ttaps.evaluate.coverage import Tally, found
from ttaps.evaluate.plan import Plan
from ttaps.evaluate.summary import Line, signed
from ttaps.progress import Bar, log_info

LOOK_EVERY, SAY_EVERY = 5.0, 60.0  # seconds, on a terminal and elsewhere
SELDOM = 200  # a look takes at most one part in so many of the time; 0.2 s for 150,000 images, so every 40 s then
NUMBERS = 61  # letters of a table's line after the method's name


class Live:
    """Shows how many results of a plan there are, and what they say of each method over its seeds."""

    def __init__(
        self,
        progress: Bar,
        title: str,
        tallies: Mapping[str, Sequence[Tally]],
        plan: Plan,
        catch_up: Callable[[], None] | None = None,
    ) -> None:
        """Begin a bar. ``catch_up`` brings the tallies up to what other processes have stored, where these belong to the same job."""
        self._progress, self._title, self._tallies, self._catch_up = progress, title, tallies, catch_up
        self._grid, self._several = plan.grid(), len(plan.places) > 1
        experiments = sum(map(len, tallies.values()))
        self._total, self._done = len(plan) * experiments, self._count()
        self._task = progress.add_task(title, total=self._total, completed=self._done, note="")
        terminal = progress.console.is_terminal
        self._every = inf if progress.console.quiet else LOOK_EVERY if terminal else SAY_EVERY
        self._look_at = 0.0 if terminal else perf_counter() + self._every

    def more(self, results: int) -> None:
        """Move the bar on by results that were just added to the tallies; look at all of them every few seconds."""
        self._done += results
        if self._every < inf and perf_counter() > self._look_at:
            self._look()
        self._progress.update(self._task, completed=self._done)

    def end(self) -> None:
        """Leave the bar, with everybody's results, and take the table away: a better one comes."""
        if self._catch_up and self._every < inf:
            self._catch_up()
            self._done = self._count()
        self._progress.below = None
        self._progress.update(self._task, completed=self._done)

    def _look(self) -> None:
        began = perf_counter()
        if self._catch_up:
            self._catch_up()
            self._done = self._count()
        lines = {name: line for name, tallies in self._tallies.items() if (line := found(tallies))}
        if self._progress.console.is_terminal:
            width = self._progress.console.width - NUMBERS
            self._progress.below = Text(live_table(lines, width, self._several), no_wrap=True, overflow="ellipsis")
        else:
            log_info(
                f"{self._title}: {self._done:,} of {self._total:,} results; {'; '.join(map(_words, lines.items()))}"
            )
        self._look_at = began + max(self._every, SELDOM * (perf_counter() - began))

    def _count(self) -> int:
        return sum(tally.count(self._grid) for tallies in self._tallies.values() for tally in tallies)


def live_table(lines: Mapping[str, Line], width: int, several: bool) -> str:
    """Write what is known of each method, its name in ``width`` letters: accuracy in %, the change in points, 95 % intervals."""
    width = max(8, min(width, max(map(len, (*lines, "average so far")))))
    head = ("average so far" if several else "so far", "n", "before", "after", "95 %", "change", "95 %")
    return "\n".join(_aligned(cells, width) for cells in (head, *map(_cells, lines.items())))


def _aligned(cells: Sequence[str], width: int) -> str:
    name, n, before, after, share, change, interval = cells
    short = name if len(name) <= width else f"{name[: width - 1]}…"
    return f"{short:<{width}}{n:>10}{before:>8}{after:>7}{share:>12}{change:>7}{interval:>17}"


def _cells(entry: tuple[str, Line]) -> tuple[str, ...]:
    name, line = entry
    before, after, change = line.before, line.after, line.difference
    known = name, f"{line.n:,}", f"{before.percent:.1f}", f"{after.percent:.1f}", f"{after.low:.1f}-{after.high:.1f}"
    if name == "source":
        return *known, "", ""
    return *known, signed(change.points), change.interval


def _words(entry: tuple[str, Line]) -> str:
    name, _, before, after, share, change, interval = _cells(entry)
    return (
        f"{name} {before} to {after} % ({change}, 95 %: {interval})" if change else f"{name} {after} % (95 %: {share})"
    )
