"""Methods whose results depend on the order of the images: online, or with batches. They see one corruption after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ttaps.adaptation import Method
from ttaps.errors import UsageError
from ttaps.evaluate.plan import Item, Plan


def check_order(methods: Sequence[Method], plan: Plan) -> None:
    """Refuse to share out what depends on the order, and to cut a batch short, which a later run with more images would not."""
    for method in (method for method in methods if method.sequential):
        if plan.shard.count > 1:
            raise UsageError(
                f"Method '{method.name}' ({method.protocol}): results depend on the order of the images, so the work cannot be shared.\n"
                "Leave out --shard, and run it without torchrun."
            )
        batch = method.batch_size
        if plan.limit is not None and plan.limit < len(plan.labels) and plan.limit % batch:
            raise UsageError(
                f"A limit of {plan.limit} images cuts a batch of method '{method.name}' short: take a multiple of {batch}."
            )


def streams(plan: Plan) -> Iterator[list[Item]]:
    """Yield all images of one corruption and severity after the other, each in the plan's order; each starts at the trained model."""
    for severity in plan.severities:
        for corruption in plan.corruptions:
            yield list(replace(plan, corruptions=(corruption,), severities=(severity,)))


def whole_batches(items: Sequence[Item], group: int, batch: int) -> Iterator[Sequence[Item]]:
    """SplitNetwork a stream into groups of about ``group`` images, never inside a batch."""
    size = batch * max(1, group // batch)
    return (items[first : first + size] for first in range(0, len(items), size))
