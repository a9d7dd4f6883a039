"""Times taken in turns, operations by count, and memory in processes of their own."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode


@dataclass(frozen=True)
class Times:
    """Seconds of several rounds."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle one."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """Distance between the quartiles, as a share of the median."""
        low, _, high = statistics.quantiles(self.seconds, n=4) if len(self.seconds) > 1 else (self.median,) * 3
        return (high - low) / self.median


def interleaved(
    functions: Mapping[str, Callable[[], object]],
    rounds: int,
    done: Callable[[], object] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Times]:
    """Run all functions in turn, ``rounds`` times, so that whatever else the machine does slows all of them alike."""
    taken: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            start = clock()
            function()
            taken[name].append(clock() - start)
            done()
    return {name: Times(tuple(seconds)) for name, seconds in taken.items()}


def ratio(above: Times, below: Times) -> float:
    """Median over rounds of one time over the other, round by round."""
    return statistics.median(a / b for a, b in zip(above.seconds, below.seconds, strict=True))


def operations(function: Callable[[], object]) -> int:
    """Floating-point operations of all matrix products and convolutions in a call, backward included, by count."""
    with FlopCounterMode(display=False) as counter:
        function()
    return int(counter.get_total_flops())


def multiply(size: int = 2048) -> Callable[[], object]:
    """Return a float32 matrix product of 2 * size³ operations: the yardstick of utilisation."""
    a, b = torch.rand(size, size), torch.rand(size, size)
    return lambda: a @ b


def peak_memory(function: Callable[..., object], *arguments: Any) -> float:
    """Peak memory in MB that a call needs beyond what a process holds that has only loaded its arguments."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak, (function, arguments))


def _peak(function: Callable[..., object], arguments: tuple[Any, ...]) -> float:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    function(*arguments)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
