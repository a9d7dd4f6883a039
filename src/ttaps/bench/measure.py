"""Functions timed in turns, and their operations by count."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch.utils.flop_counter import FlopCounterMode


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


def interleaved(
    functions: Mapping[str, Callable[[], object]],
    rounds: int,
    done: Callable[[], object] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Rounds]:
    """Return the seconds of all functions, run in turn ``rounds`` times: other load on the machine slows all of them alike."""
    taken: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            start = clock()
            function()
            taken[name].append(clock() - start)
            done()
    return {name: Rounds(tuple(seconds)) for name, seconds in taken.items()}


def operations(function: Callable[[], object]) -> int:
    """Count the floating-point operations of all matrix products and convolutions in a call, backward included, on this thread."""
    with FlopCounterMode(display=False) as counter:
        function()
    return int(counter.get_total_flops())
