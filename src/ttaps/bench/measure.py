"""Functions timed in turns, and their operations by count."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from torch.utils.flop_counter import FlopCounterMode

Rounds = NDArray[np.float64]
"""A number measured in several rounds. Divide round by round, when the machine was as busy, and take the median last."""


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
    return {name: np.array(seconds) for name, seconds in taken.items()}


def quartiles(values: Rounds) -> list[float]:
    """Return the two numbers between which half of the rounds lie."""
    return np.quantile(values, (0.25, 0.75)).tolist()


def operations(function: Callable[[], object]) -> int:
    """Count the floating-point operations of all matrix products and convolutions in a call, backward included, on this thread."""
    with FlopCounterMode(display=False) as counter:
        function()
    return int(counter.get_total_flops())
