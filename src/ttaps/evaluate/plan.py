"""Which images to evaluate, and in which order: whatever is done when a run is stopped is a fair sample of the whole."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ttaps.errors import UsageError
from ttaps.rng import derive_seed


class Item(NamedTuple):
    """One image under one corruption."""

    corruption: str
    severity: int
    image: int


@dataclass(frozen=True)
class Shard:
    """A part of the work: number ``index`` (from 0) of ``count``."""

    index: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise UsageError(
                f"There is no shard {self.index + 1} of {self.count}; the first is 1/{max(self.count, 1)}."
            )

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read ``i/n``, the i-th of n parts counted from 1."""
        index, _, count = text.partition("/")
        if not (index.isdecimal() and count.isdecimal()):
            raise UsageError(f"A shard is written i/n, like 1/4 for the first of four, not {text!r}.")
        return cls(int(index) - 1, int(count))

    @classmethod
    def of_rank(cls) -> Shard:
        """Return this process's part under ``torchrun``, everything without it."""
        return cls(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))


EVERYTHING = Shard()


@dataclass(frozen=True, eq=False)
class Plan:
    """The images of a data set under some corruptions, in a fair order.

    Each picture is taken under every corruption and severity before the next one, and the pictures come in a shuffled order with all
    classes in turn. The order depends on the labels only: every corruption, method and seed sees the same pictures first.
    """

    labels: NDArray[np.int64]
    corruptions: Sequence[str]
    severities: Sequence[int]
    limit: int | None = None
    """Pictures per corruption and severity; all of them unless given."""
    shard: Shard = EVERYTHING

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise UsageError(f"The limit must be at least 1 image per corruption, not {self.limit}.")

    def __len__(self) -> int:
        return sum(len(self._columns(row)) for row in range(self._rows))

    def __iter__(self) -> Iterator[Item]:
        places = self.places
        for row, image in enumerate(stratified_order(self.labels)[: self._rows]):
            for column in self._columns(row):
                yield Item(*places[column], int(image))

    @property
    def places(self) -> list[tuple[str, int]]:
        """Every corruption at every severity, in the order in which a picture is taken under them."""
        return [(corruption, severity) for severity in self.severities for corruption in self.corruptions]

    def grid(self) -> NDArray[np.bool_]:
        """Return which images are in the plan, (places, pictures)."""
        grid = np.zeros((len(self.places), len(self.labels)), dtype=bool)
        for row, image in enumerate(stratified_order(self.labels)[: self._rows]):
            grid[self._columns(row), image] = True
        return grid

    def asks_for(self) -> Callable[[str, int, int], bool]:
        """Return a function that says whether an image under a corruption at a severity is in the plan, in this shard or another."""
        places = set(self.places)
        pictures = np.zeros(len(self.labels), dtype=bool)
        pictures[stratified_order(self.labels)[: self._rows]] = True
        return lambda corruption, severity, image: (corruption, severity) in places and bool(pictures[image])

    @property
    def _rows(self) -> int:
        return len(self.labels) if self.limit is None else min(self.limit, len(self.labels))

    def _columns(self, row: int) -> range:
        """Return this shard's columns of a picture: every ``count``-th, shifted with each picture, so that none sticks to a corruption."""
        start = (self.shard.index - row) % self.shard.count
        return range(start, len(self.places), self.shard.count)


def stratified_order(labels: NDArray[np.int64], seed: int = 0) -> NDArray[np.int64]:
    """Shuffle images so that their classes take turns: in any prefix the counts of classes not yet used up differ by at most one."""
    draws = np.random.PCG64(derive_seed("fair order", seed)).random_raw(len(labels))
    turn = np.empty(len(labels), dtype=np.int64)  # of each image within its class
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        turn[members[np.argsort(draws[members], kind="stable")]] = np.arange(len(members))
    return np.lexsort((draws, turn)).astype(np.int64)
