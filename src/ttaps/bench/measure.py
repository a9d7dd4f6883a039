"""Times taken in turns, operations by count, and memory in processes of their own."""

from __future__ import annotations

import re
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class Rounds:
    """A number measured in several rounds: seconds, or what is computed from them round by round."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle one."""
        return statistics.median(self.values)

    @property
    def quartiles(self) -> tuple[float, float]:
        """Half of the rounds lie between these two."""
        if len(self.values) == 1:
            return self.values[0], self.values[0]
        low, _, high = statistics.quantiles(self.values, n=4, method="inclusive")
        return low, high

    def times(self, factor: float) -> Rounds:
        """Every round's number multiplied."""
        return Rounds(tuple(factor * value for value in self.values))

    def over(self, other: Rounds) -> Rounds:
        """Every round's number divided by the other's of that round, when the machine was as busy."""
        return Rounds(tuple(own / its for own, its in zip(self.values, other.values, strict=True)))

    def plain(self) -> dict[str, float | list[float]]:
        """For machines."""
        return {"median": self.median, "quartiles": list(self.quartiles)}


def interleaved(
    functions: Mapping[str, Callable[[], object]],
    rounds: int,
    done: Callable[[], object] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Rounds]:
    """Return the seconds of all functions, run in turn ``rounds`` times: whatever else the machine does slows all of them alike."""
    taken: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            start = clock()
            function()
            taken[name].append(clock() - start)
            done()
    return {name: Rounds(tuple(seconds)) for name, seconds in taken.items()}


def operations(function: Callable[[], object]) -> int:
    """Floating-point operations of all matrix products and convolutions in a call, backward included, by count.

    Only this thread's: what a call leaves to other threads is not seen.
    """
    with FlopCounterMode(display=False) as counter:
        function()
    return int(counter.get_total_flops())


def multiply(size: int) -> Callable[[], object]:
    """Return a float32 matrix product of 2 * size³ operations: the yardstick of utilisation."""
    a, b = torch.rand(size, size), torch.rand(size, size)
    return lambda: a @ b


def peak_memory(function: Callable[..., object], *arguments: Any) -> float:
    """Peak memory in MB that a call adds to a new process, which has imported what it needs and done nothing else."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak, (function, arguments))


def _peak(function: Callable[..., object], arguments: tuple[Any, ...]) -> float:
    before = peak_so_far()
    function(*arguments)
    return peak_so_far() - before


def peak_so_far() -> float:
    """Return the most memory in MB that this process has held.

    Linux counts what a process held before its exec to its ru_maxrss, so that a child begins with its parent's; VmHWM begins anew.
    """
    known = re.search(r"VmHWM:\s*(\d+) kB", STATUS.read_text()) if STATUS.exists() else None
    if known:
        return int(known[1]) / 1024
    import resource

    unit = 2**20 if sys.platform == "darwin" else 2**10  # bytes there, kB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
