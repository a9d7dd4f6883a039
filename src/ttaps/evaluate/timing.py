"""What a run spends its time on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Literal


class Timing:
    """Seconds of a run, added up while it works."""

    def __init__(self) -> None:
        self._seconds = {"total": 0.0, "adapting": 0.0, "reading": 0.0, "storing": 0.0}

    @contextmanager
    def measure(self, work: Literal["total", "adapting", "reading", "storing"]) -> Iterator[None]:
        """Add the time of a block."""
        began = perf_counter()
        try:
            yield
        finally:
            self._seconds[work] += perf_counter() - began

    def parts(self) -> dict[str, float]:
        """Return the seconds by what they were spent on; bookkeeping is all else."""
        parts = {name: seconds for name, seconds in self._seconds.items() if name != "total"}
        return {**parts, "bookkeeping": self._seconds["total"] - sum(parts.values())}
