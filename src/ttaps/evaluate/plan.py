"""Which images to evaluate, in which order, and which of them are stored: a run that is stopped has seen a fair sample of the whole."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ttaps.errors import UsageError
from ttaps.rng import derive_seed

if TYPE_CHECKING:
    from ttaps.adaptation import Method
    from ttaps.evaluate.store import Outcome


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
    """The images of a data set under some conditions (a corruption at a severity each), in a stratified order.

    Each image is taken under every condition before the next one, and the images come in a shuffled order with all classes in turn.
    The order depends on the labels only: every corruption, method and seed sees the same images first.
    """

    labels: NDArray[np.int64]
    corruptions: Sequence[str]
    severities: Sequence[int]
    images_per_corruption: int | None = None
    """Images under each condition; all of them unless given."""
    shard: Shard = EVERYTHING

    def __post_init__(self) -> None:
        if self.images_per_corruption is not None and self.images_per_corruption < 1:
            raise UsageError(f"There must be at least 1 image per corruption, not {self.images_per_corruption}.")

    def __len__(self) -> int:
        return sum(len(self._columns(row)) for row in range(len(self._images)))

    def __iter__(self) -> Iterator[Item]:
        conditions = self.conditions
        for row, image in enumerate(self._images):
            for column in self._columns(row):
                yield Item(*conditions[column], int(image))

    @property
    def conditions(self) -> list[tuple[str, int]]:
        """Every corruption at every severity, in the order in which an image is taken under them."""
        return [(corruption, severity) for severity in self.severities for corruption in self.corruptions]

    def grid(self) -> NDArray[np.bool_]:
        """Return which images are in the plan, (conditions, images)."""
        grid = np.zeros((len(self.conditions), len(self.labels)), dtype=bool)
        for row, image in enumerate(self._images):
            grid[self._columns(row), image] = True
        return grid

    def whole(self) -> Plan:
        """Return the plan of all shards together."""
        return replace(self, shard=EVERYTHING)

    def covers(self, rows: Any) -> Any:
        """Say of each row of a frame whether its image is in the plan, in this shard or another."""
        asked = rows["corruption"].isin(self.corruptions) & rows["severity"].isin(self.severities)
        return asked & rows["image"].isin(self._images)

    def groups(self, size: int) -> Iterator[list[Item]]:
        """Split the plan into groups, always in the same way: a run that is resumed works with the same groups."""
        items = iter(self)
        while group := list(islice(items, size)):
            yield group

    def streams(self) -> Iterator[list[Item]]:
        """Yield all images of one condition after the other; each stream starts with the trained model."""
        for corruption, severity in self.conditions:
            yield list(replace(self, corruptions=(corruption,), severities=(severity,)))

    def check(self, methods: Sequence[Method]) -> None:
        """Refuse to shard what depends on the order of images, and to cut a batch short, which a later run with more images would not."""
        asked = self.images_per_corruption
        for method in methods:
            if method.sequential and self.shard.count > 1:
                raise UsageError(
                    f"Method '{method.name}' ({method.protocol}): results depend on the order of the images, so the work cannot be "
                    "shared.\nLeave out --shard, and run it without torchrun."
                )
            if method.sequential and asked is not None and asked < len(self.labels) and asked % method.batch_size:
                raise UsageError(
                    f"A limit of {asked} images cuts a batch of method '{method.name}' short: take a multiple of {method.batch_size}."
                )

    @property
    def _images(self) -> NDArray[np.int64]:
        return stratified_order(self.labels)[: self.images_per_corruption]

    def _columns(self, row: int) -> range:
        """Return this shard's conditions of an image: every ``count``-th, shifted with each image, so that none sticks to a corruption."""
        start = (self.shard.index - row) % self.shard.count
        return range(start, len(self.corruptions) * len(self.severities), self.shard.count)


class Coverage:
    """Which images of a plan, in any shard, an experiment has stored, and whether they were right before and after."""

    def __init__(self, plan: Plan) -> None:
        self._number = {condition: number for number, condition in enumerate(plan.conditions)}
        self._asked = plan.whole().grid()
        self._stored, self._before, self._after = (np.zeros_like(self._asked) for _ in range(3))

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Take note of stored images; those that the plan does not ask for do not count."""
        for corruption, severity, image, before, after in outcomes:
            number = self._number.get((corruption, severity))
            if number is not None and self._asked[number, image]:
                place = number, image
                self._stored[place], self._before[place], self._after[place] = True, before, after

    def has(self, item: Item) -> bool:
        """Say whether an image's result is stored."""
        return bool(self._stored[self._number[item[:2]], item.image])

    def count(self, grid: NDArray[np.bool_]) -> int:
        """Count the stored images among those of a plan's grid."""
        return int(np.count_nonzero(self._stored & grid))

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the stored images as columns for :func:`ttaps.evaluate.statistics.measure`."""
        condition, image = np.nonzero(self._stored)
        right = {"correct_before": self._before[self._stored], "correct_after": self._after[self._stored]}
        return {"condition": condition, "image": image, **right}


def stratified_order(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Shuffle images so that their classes take turns: in any prefix the counts of classes not yet used up differ by at most one."""
    draws = np.random.PCG64(derive_seed("fair order", 0)).random_raw(len(labels))
    turn = np.empty(len(labels), dtype=np.int64)  # of each image within its class
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        turn[members[np.argsort(draws[members], kind="stable")]] = np.arange(len(members))
    return np.lexsort((draws, turn)).astype(np.int64)
