"""What an experiment has so far, a byte for each image: whether it is stored, and whether it was right before and after."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ttaps.evaluate.plan import Item, Plan
from ttaps.evaluate.store import Outcome, Store
from ttaps.evaluate.summary import PAIR, Line, Pairs, measure

STORED, BEFORE, AFTER = 1, 2, 4


class Tally:
    """The outcomes of one experiment's images, of those that a plan asks for."""

    def __init__(self, plan: Plan) -> None:
        self._asked = plan.asks_for()
        self._columns = {place: column for column, place in enumerate(plan.places)}
        self._bits = np.zeros((len(self._columns), len(plan.labels)), dtype=np.uint8)

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Take note of stored images; those that are not asked for today do not count."""
        for corruption, severity, image, before, after in outcomes:
            if self._asked(corruption, severity, image):
                self._bits[self._columns[corruption, severity], image] = STORED | BEFORE * before | AFTER * after

    def has(self, item: Item) -> bool:
        """Say whether an image's result is stored."""
        return bool(self._bits[self._columns[item[:2]], item.image])

    def count(self, grid: NDArray[np.bool_]) -> int:
        """Count the stored images among those of a plan's grid."""
        return int(np.count_nonzero(self._bits[grid]))

    def pairs(self, first: int = 0) -> Pairs:
        """Return the outcomes for statistics, with places numbered from ``first``."""
        column, image = np.nonzero(self._bits)
        bits = self._bits[column, image]
        pairs = np.empty(len(bits), dtype=PAIR)
        pairs["place"], pairs["image"] = column + first, image
        pairs["before"], pairs["after"] = bits & BEFORE > 0, bits & AFTER > 0
        return pairs


def found(tallies: Sequence[Tally]) -> Line | None:
    """Return what the last line of a table says, over the seeds of a method; None if there is no image yet."""
    parts = [tally.pairs(seed * len(tally._columns)) for seed, tally in enumerate(tallies)]
    pairs = np.concatenate(parts)
    pairs["place"] = np.unique(pairs["place"], return_inverse=True)[1]
    return measure(pairs) if len(pairs) else None


def stored(store: Store, experiments: Sequence[int], plan: Plan) -> int:
    """Count the results of a plan that experiments have."""
    tallies, grid = [Tally(plan) for _ in experiments], plan.grid()
    for tally, number in zip(tallies, experiments, strict=True):
        tally.add(store.outcomes(number))
    return sum(tally.count(grid) for tally in tallies)
