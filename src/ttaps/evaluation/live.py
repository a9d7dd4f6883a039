"""Results so far, shown during a run: a progress bar and, on a terminal, a table below it; elsewhere occasional lines."""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, starmap
from math import inf
from time import perf_counter

import pandas as pd
from rich.table import Table
from rich.text import Text

from ttaps.evaluation.plan import Coverage, Plan
from ttaps.evaluation.statistics import measure, signed
from ttaps.progress import Bar, log_info

LOOK_EVERY, LOG_EVERY = 5.0, 60.0  # seconds, on a terminal and elsewhere
SHARE = 200  # a look takes at most one part in so many of the time
Line = Mapping[str, float]
Methods = Mapping[str, Sequence[Coverage]]  # the coverage of each seed of each method


class Live:
    """Shows how many results of a plan exist, and the accuracy of each method over its seeds."""

    def __init__(
        self, progress: Bar, title: str, methods: Methods, plan: Plan, catch_up: Sequence[Callable[[], None]] = ()
    ) -> None:
        """Start a bar; ``catch_up`` bring coverages up to what other processes of the same job have stored."""
        self._progress, self._title, self._methods, self._catch_up = progress, title, methods, catch_up
        self._grid, self._several = plan.grid, len(plan.conditions) > 1
        self._total, self._done = len(plan) * sum(map(len, methods.values())), self._count()
        self._task = progress.add_task(title, total=self._total, completed=self._done, note="")
        terminal = progress.console.is_terminal
        self._every = inf if progress.console.quiet else LOOK_EVERY if terminal else LOG_EVERY
        self._look_at = 0.0 if terminal else perf_counter() + self._every

    def update(self, results: int) -> None:
        """Advance the bar by results that were just added to the coverage; look at all of them every few seconds."""
        self._done += results
        if self._every < inf and perf_counter() > self._look_at:
            self._look()
        self._progress.update(self._task, completed=self._done)

    def finish(self) -> None:
        """Keep the bar, with the results of all processes, and remove the table: the final one follows."""
        if self._every < inf:
            self._done = self._count()
        self._progress.below = None
        self._progress.update(self._task, completed=self._done)

    def _look(self) -> None:
        began = perf_counter()
        self._done = self._count()
        lines = {spec: line for spec, coverages in self._methods.items() if (line := measure_so_far(coverages))}
        if self._progress.console.is_terminal:
            self._progress.below = live_table(lines, self._several)
        else:
            counts = f"{self._title}: {self._done:,} of {self._total:,} results"
            log_info("; ".join([counts, *starmap(_words, lines.items())]))
        self._look_at = began + max(self._every, SHARE * (perf_counter() - began))

    def _count(self) -> int:
        for catch_up in self._catch_up:
            catch_up()
        return sum(coverage.count(self._grid) for coverage in chain(*self._methods.values()))


def measure_so_far(coverages: Sequence[Coverage]) -> Line | None:
    """Return the last line of an accuracy table over the seeds of a method; None if there is no image yet."""
    rows = pd.concat([pd.DataFrame(coverage.columns()).assign(seed=seed) for seed, coverage in enumerate(coverages)])
    return measure(rows) if len(rows) else None


def live_table(lines: Mapping[str, Line], several: bool) -> Table:
    """Return for each method accuracy in %, its change in points, and 95 % intervals; long specs are cut."""
    table = Table("average so far" if several else "so far", box=None, pad_edge=False)
    for name in ("n", "before", "after", "95 %", "change", "95 %"):
        table.add_column(name, justify="right", no_wrap=True)
    for spec, line in lines.items():
        n, *cells = f"{line['n']:,}", f"{line['before']:.1f}", f"{line['after']:.1f}", *_intervals(line)
        table.add_row(Text(spec, no_wrap=True, overflow="ellipsis"), n, *(cells[:3] if spec == "source" else cells))
    return table


def _intervals(line: Line) -> tuple[str, str, str]:
    share = f"{line['after_low']:.1f}-{line['after_high']:.1f}"
    return share, signed(line["change"]), f"{signed(line['change_low'])} to {signed(line['change_high'])}"


def _words(spec: str, line: Line) -> str:
    share, change, interval = _intervals(line)
    if spec == "source":
        return f"{spec} {line['after']:.1f} % (95 %: {share})"
    return f"{spec} {line['before']:.1f} to {line['after']:.1f} % ({change}, 95 %: {interval})"
