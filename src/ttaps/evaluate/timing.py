"""What a run spends its time on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Literal


class Timing:
    """Seconds of a run, added up while it works."""

    def __init__(self) -> None:
        self.total = 0.0
        self._parts = {"adapting": 0.0, "reading": 0.0, "storing": 0.0}

    def parts(self) -> dict[str, float]:
        """Return the seconds by what they were spent on, which add up to the total; bookkeeping is all that was not measured."""
        return {**self._parts, "bookkeeping": self.total - sum(self._parts.values())}

    @contextmanager
    def measure(self, work: Literal["total", "adapting", "reading", "storing"]) -> Iterator[None]:
        """Add the time of a block."""
        began = perf_counter()
        try:
            yield
        finally:
            seconds = perf_counter() - began
            if work == "total":
                self.total += seconds
            else:
                self._parts[work] += seconds
