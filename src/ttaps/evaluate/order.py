"""Methods whose results depend on the order of the images: online, or with batches. They see one corruption after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol, cast

from torch import Tensor, nn

from ttaps.adaptation import EPISODIC, Method, protocol
from ttaps.adaptation.engine import CarriedState
from ttaps.errors import UsageError
from ttaps.evaluate.plan import Item, Plan


class Ordered(Method, Protocol):
    """A method that may keep something from image to image."""

    def adapt(
        self, network: nn.Module, images: Tensor, keys: Sequence[int], memory: CarriedState | None = None
    ) -> Tensor:
        """Adapt as a method does, from where ``memory`` ends."""
        ...


def ordered(method: Method) -> Ordered | None:
    """Return a method whose results depend on the order of the images, None for others."""
    return None if protocol(method) == EPISODIC else cast(Ordered, method)


def check_order(methods: Sequence[Method], plan: Plan) -> None:
    """Refuse to share out what depends on the order, and to cut a batch short, which a later run with more images would not."""
    for method in filter(ordered, methods):
        if plan.shard.count > 1:
            raise UsageError(
                f"Method '{method.name}' ({protocol(method)}): results depend on the order of the images, so the work cannot be shared.\n"
                "Leave out --shard, and run it without torchrun."
            )
        batch = batch_size(method)
        if plan.limit is not None and plan.limit < len(plan.labels) and plan.limit % batch:
            raise UsageError(
                f"A limit of {plan.limit} images cuts a batch of method '{method.name}' short: take a multiple of {batch}."
            )


def batch_size(method: Method) -> int:
    """Return how many images a method adapts to together."""
    return int(getattr(method, "batch_size", 1))


def streams(plan: Plan) -> Iterator[list[Item]]:
    """Yield all images of one corruption and severity after the other, each in the plan's order; each starts at the trained model."""
    for severity in plan.severities:
        for corruption in plan.corruptions:
            yield list(replace(plan, corruptions=(corruption,), severities=(severity,)))


def whole_batches(items: Sequence[Item], group: int, batch: int) -> Iterator[Sequence[Item]]:
    """SplitNetwork a stream into groups of about ``group`` images, never inside a batch."""
    size = batch * max(1, group // batch)
    return (items[first : first + size] for first in range(0, len(items), size))
