"""One trial of a part: what is disturbed, how, and what was wrong afterwards."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import NamedTuple


class Failed(Exception):
    """What was promised was not kept."""


class Skipped(Exception):
    """This machine cannot try it; says why."""


class Case(NamedTuple):
    """A trial; ``run`` raises :class:`Failed` or :class:`Skipped`, and returns how many times something was tried."""

    what: str
    run: Callable[[], int]
    of: int = 0  # how many there are to try, where that is known


@dataclass
class Place:
    """Where a part works: its random numbers, its scratch folder, and whether it is the short form."""

    rng: random.Random
    scratch: Path
    part: str = ""
    short: bool = False
    inputs: Path = field(init=False)

    def __post_init__(self) -> None:
        self.inputs, self._logs = self.scratch / "inputs", count()
        for folder in (self.inputs, self.scratch / "logs"):
            folder.mkdir(parents=True, exist_ok=True)

    def log(self) -> Path:
        """Return a new file for what a command prints."""
        return self.scratch / "logs" / str(next(self._logs))

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """Yield a new folder, and remove it."""
        made = Path(tempfile.mkdtemp(dir=self.scratch))
        try:
            yield made
        finally:
            shutil.rmtree(made, ignore_errors=True)


Part = Callable[[Place], Iterator[Case]]
"""Yields trials without end, or until there are no more."""
