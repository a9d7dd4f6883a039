"""What a run spends its time on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Literal


@dataclass
class Spent:
    """Seconds of a run, added up while it goes on."""

    whole: float = 0.0
    adapting: float = 0.0
    reading: float = 0.0
    storing: float = 0.0

    @property
    def bookkeeping(self) -> float:
        """The rest: looking up what is stored, the order of images, making rows, and showing how it goes."""
        return self.whole - self.adapting - self.reading - self.storing

    def parts(self) -> dict[str, float]:
        """Return the seconds by what they were spent on; together they are the whole."""
        names = ("adapting", "reading", "storing", "bookkeeping")
        return {name: getattr(self, name) for name in names}

    @contextmanager
    def on(self, work: Literal["whole", "adapting", "reading", "storing"]) -> Iterator[None]:
        """Add the time of a block."""
        began = perf_counter()
        try:
            yield
        finally:
            setattr(self, work, getattr(self, work) + perf_counter() - began)
