"""Which images to evaluate, in which order, and which are stored: an interrupted run has seen a fair sample of the whole."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ttaps.errors import UsageError
from ttaps.progress import process_rank
from ttaps.rng import derive_seed

if TYPE_CHECKING:
    from ttaps.adaptation import Method

T = TypeVar("T")


class Item(NamedTuple):
    """One image under one corruption."""

    corruption: str
    severity: int
    image: int


ItemOutcome = tuple[str, int, int, bool, bool]  # corruption, severity, image, right before adaptation, right after it


@dataclass(frozen=True)
class Shard:
    """A part of the work: number ``index`` (from 0) of ``count``."""

    index: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise UsageError(f"There is no shard {self.index + 1} of {self.count}; the first is 1/{self.count or 1}.")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``i/n``, the i-th of n parts counted from 1."""
        index, _, count = text.partition("/")
        if not (index.isdecimal() and count.isdecimal()):
            raise UsageError(f"A shard is written i/n, like 1/4 for the first of four, not {text!r}.")
        return cls(int(index) - 1, int(count))

    @classmethod
    def of_rank(cls) -> Self:
        """Return this process's part under ``torchrun``, or everything without it."""
        return cls(process_rank(), int(os.environ.get("WORLD_SIZE", "1")))


EVERYTHING = Shard()


@dataclass(frozen=True, eq=False)
class Plan:
    """The images of a data set under some conditions (a corruption at a severity each), in a stratified order.
    Each image is processed under every condition before the next, in shuffled order with classes in turn.
    The order depends only on the labels: every corruption, method and seed sees the same images first."""

    labels: NDArray[np.int64]
    corruptions: Sequence[str]
    severities: Sequence[int]
    images_per_corruption: int | None = None  # all of them unless given
    shard: Shard = EVERYTHING

    def __post_init__(self) -> None:
        if self.images_per_corruption is not None and self.images_per_corruption < 1:
            raise UsageError(f"There must be at least 1 image per corruption, not {self.images_per_corruption}.")

    def __len__(self) -> int:
        return int(self.grid.sum())

    def __iter__(self) -> Iterator[Item]:
        for image in self._images:
            for number in np.flatnonzero(self.grid[:, image]):
                yield Item(*self.conditions[number], int(image))

    @cached_property
    def conditions(self) -> list[tuple[str, int]]:
        """Every corruption at every severity, in processing order."""
        return [(corruption, severity) for severity in self.severities for corruption in self.corruptions]

    @cached_property
    def grid(self) -> NDArray[np.bool_]:
        """Which images are in the plan, (conditions, images)."""
        grid = np.zeros((len(self.conditions), len(self.labels)), dtype=bool)
        # A shard has every count-th condition of an image, shifted with each image, so that it does not stick to some corruptions.
        turns = np.add.outer(np.arange(len(self.conditions)), np.arange(len(self._images)))
        grid[:, self._images] = turns % self.shard.count == self.shard.index
        return grid

    @cached_property
    def _images(self) -> NDArray[np.int64]:
        return stratified_order(self.labels)[: self.images_per_corruption]

    @property
    def stream(self) -> str:
        """Identify the stream of conditions and images of a continual method: their numbers and a hash."""
        digest = hashlib.blake2b(repr((self.conditions, self._images.tolist())).encode(), digest_size=3).hexdigest()
        return f"{len(self.conditions)} x {len(self._images)} images ({digest})"

    def at(self, condition: tuple[str, int]) -> Self:
        """Return the part of the plan under one condition."""
        return replace(self, corruptions=condition[:1], severities=condition[1:])

    def covers(self, rows: Any) -> Any:
        """Tell for each row of a frame whether its image is in the plan, in this shard or another."""
        asked = rows["corruption"].isin(self.corruptions) & rows["severity"].isin(self.severities)
        return asked & rows["image"].isin(self._images)

    def check(self, methods: Sequence["Method"]) -> None:
        """Refuse to shard methods that depend on the order of images, and to cut a batch short, unlike a later run with more images."""
        asked = self.images_per_corruption
        for method in (method for method in methods if method.sequential):
            if self.shard.count > 1:
                reason = "results depend on the order of the images, so the work cannot be shared"
                remedy = "Leave out --shard, and run it without torchrun."
                raise UsageError(f"Method '{method.name}' ({method.protocol}): {reason}.\n{remedy}")
            if asked is not None and asked < len(self.labels) and asked % method.batch_size:
                remedy = f"take a multiple of {method.batch_size}"
                raise UsageError(f"A limit of {asked} images cuts a batch of method '{method.name}' short: {remedy}.")


class Coverage:
    """Which images of a plan, in any shard, an experiment has stored, and whether they were right before and after."""

    def __init__(self, plan: Plan) -> None:
        self._number = {condition: number for number, condition in enumerate(plan.conditions)}
        self._asked = replace(plan, shard=EVERYTHING).grid
        self._right = np.full(self._asked.shape, -1, dtype=np.int8)  # -1: not stored, else 2 * before + after

    def add(self, outcomes: Iterable[ItemOutcome]) -> None:
        """Record stored images; those outside the plan do not count."""
        for corruption, severity, image, before, after in outcomes:
            number = self._number.get((corruption, severity))
            if number is not None and self._asked[number, image]:
                self._right[number, image] = 2 * before + after

    def missing(self, items: Sequence[Item]) -> list[int]:
        """Return the indices of the images whose results are not stored yet."""
        return [place for place, item in enumerate(items) if self._right[self._number[item[:2]], item.image] < 0]

    def count(self, grid: NDArray[np.bool_]) -> int:
        """Count the stored images among those of a plan's grid."""
        return int(np.count_nonzero((self._right >= 0) & grid))

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the stored images as columns for :func:`ttaps.evaluation.statistics.measure`."""
        condition, image = np.nonzero(self._right >= 0)
        before, after = np.divmod(self._right[condition, image], 2)
        return {"corruption": condition, "image": image, "correct_before": before, "correct_after": after}


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield items in lists of this size; the last may be shorter."""
    items = iter(items)
    while batch := list(islice(items, size)):
        yield batch


def stratified_order(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Shuffle images with classes in turn: in any prefix the counts of classes not yet exhausted differ by at most one."""
    draws = np.random.PCG64(derive_seed("fair order", 0)).random_raw(len(labels))
    turn = np.empty(len(labels), dtype=np.int64)  # of each image within its class
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        turn[members[np.argsort(draws[members], kind="stable")]] = np.arange(len(members))
    return np.lexsort((draws, turn)).astype(np.int64)
