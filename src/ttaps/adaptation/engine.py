"""Gradient steps on weights that belong to one image: the network itself is never touched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock

import torch
from torch import Tensor

from ttaps.adaptation.optimizers import UpdateRule, Weights, sgd


@dataclass
class CarriedState:
    """What an image leaves to the next one where a method is told to keep it; empty before the first image."""

    weights: Weights | None = None
    rule: UpdateRule | None = None


def gradient_steps(
    loss: Callable[[Weights, int], Tensor], weights: Weights, steps: int, lr: float, rule: UpdateRule = sgd
) -> Iterator[Weights]:
    """Yield the weights after every step of θ ← θ - α∇θ L, starting from ``weights``, which stay as they are.

    ``loss(weights, step)`` is the loss at a step; weights it does not use stay where they are. ``rule`` turns gradients into updates.
    """
    for step in range(steps):
        leaves = {name: weight.detach().requires_grad_() for name, weight in weights.items()}
        with torch.enable_grad():
            gradients = torch.autograd.grad(loss(leaves, step), list(leaves.values()), materialize_grads=True)
        with torch.no_grad():
            updates = rule(weights, dict(zip(leaves, gradients, strict=True)))
        weights = {name: weight.detach().sub(updates[name], alpha=lr) for name, weight in weights.items()}
        yield weights


def run_steps(
    before: Tensor,
    predict: Callable[[Weights], Tensor],
    loss: Callable[[Weights, int], Tensor],
    source: Weights,
    steps: int,
    lr: float,
    memory: CarriedState,
) -> Tensor:
    """Stack ``before`` and the prediction after every step. Steps start where the memory ends, or at the source; it ends where they do."""
    trace = [before]
    for weights in gradient_steps(loss, memory.weights or source, steps, lr, memory.rule or sgd):
        memory.weights = weights
        with torch.no_grad():
            trace.append(predict(weights))
    return torch.stack(trace)


def each_image(function: Callable[[int], Tensor], count: int, sequential: bool = False) -> Tensor:
    """Stack ``function(index)`` over images, which run as :func:`side_by_side` runs them."""
    return torch.stack(side_by_side(function, count, sequential))


def one_by_one(
    adapt_one: Callable[[Tensor, int, CarriedState], Tensor],
    images: Tensor,
    keys: Sequence[int],
    memory: CarriedState | None,
    sequential: bool,
) -> Tensor:
    """Stack ``adapt_one(image, key, memory)`` over images; the memory is shared where they run ``sequential``, else empty for each."""
    kept = memory or CarriedState()
    return each_image(
        lambda i: adapt_one(images[i : i + 1], keys[i], kept if sequential else CarriedState()), len(images), sequential
    )


def side_by_side(function: Callable[[int], Tensor], count: int, sequential: bool = False) -> list[Tensor]:
    """Return ``function(index)`` of images, or batches, on a CPU.

    They run side by side with one thread each: no thread ever waits for another, and an image's numbers do not depend on how
    many threads there are. Waiting is what makes two threads on one image many times slower on a busy machine (docs/log.md).
    ``sequential`` runs them one after the other, for methods that keep something from image to image.
    """
    with _one_thread_each() as threads:
        workers = 1 if sequential else min(count, threads)
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(function, range(count)))


_threads: list[int] = []  # as they were, once for everybody who is at work
_guard = Lock()


@contextmanager
def _one_thread_each() -> Iterator[int]:
    """Yield how many threads torch had before anybody was at work; the last to leave sets that back.

    What a worker sets holds for threads to come, and MKL's number is the same for all threads: nobody may raise it while others work.
    """
    with _guard:
        _threads.append(_threads[0] if _threads else torch.get_num_threads())
    try:
        yield _threads[0]
    finally:
        with _guard:
            threads = _threads.pop()
            if not _threads:
                torch.set_num_threads(threads)


def in_chunks(function: Callable[[Tensor], Tensor], rows: Tensor, chunk: int) -> Tensor:
    """Apply a function to a few rows at a time, so that what it works on stays in the cache."""
    return torch.cat([function(part) for part in rows.split(chunk)])
