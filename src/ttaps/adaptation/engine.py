"""Gradient steps on weights that belong to one image, and the threads that images run on."""

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
    """What an image leaves to the next one where a method keeps anything; empty before the first image."""

    weights: Weights | None = None
    rule: UpdateRule | None = None


def gradient_steps(
    loss: Callable[[Weights, int], Tensor], source: Weights, steps: int, lr: float, state: CarriedState | None = None
) -> Iterator[Weights]:
    """Yield the weights after every step of θ ← θ - α∇θ L. ``source`` is not changed.

    ``loss(weights, step)`` is the loss at a step; weights it does not use stay where they are. Steps start from the weights in
    ``state``, if any, else from ``source``, and leave their weights in ``state``; its rule turns gradients into updates.
    """
    state = state or CarriedState()
    weights, rule = state.weights or source, state.rule or sgd
    for step in range(steps):
        leaves = {name: weight.detach().requires_grad_() for name, weight in weights.items()}
        with torch.enable_grad():
            gradients = torch.autograd.grad(loss(leaves, step), list(leaves.values()), materialize_grads=True)
        with torch.no_grad():
            updates = rule(weights, dict(zip(leaves, gradients, strict=True)))
        weights = {name: weight.detach().sub(updates[name], alpha=lr) for name, weight in weights.items()}
        state.weights = weights
        yield weights


def map_images(
    adapt_one: Callable[[Tensor, int, CarriedState], Tensor],
    images: Tensor,
    keys: Sequence[int],
    batch_size: int = 1,
    state: CarriedState | None = None,
) -> Tensor:
    """Concatenate ``adapt_one(image, key, state)`` over images (1, 3, H, W), or over batches of them with their first key.

    They run at the same time, one thread each: no thread ever waits for another, and an image's numbers do not depend on how many
    threads there are. (Two threads on one image wait for each other, which is many times slower on a busy machine.)
    Given a ``state`` they run one after the other and share it; otherwise each has an empty one.
    """
    batches = images.split(batch_size)
    first_keys = [keys[index] for index in range(0, len(images), batch_size)]
    states = [state or CarriedState() for _ in batches]
    with _one_thread_each() as threads:
        workers = 1 if state else min(len(batches), threads)
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return torch.cat(list(pool.map(adapt_one, batches, first_keys, states)))


_threads: list[int] = []  # torch's number of threads before the first call of those under way, once per call
_guard = Lock()


@contextmanager
def _one_thread_each() -> Iterator[int]:
    """Yield how many threads torch had before any call was under way; the last call to end restores that.

    What a worker sets holds for later threads too, and MKL has one number for all threads: nobody may raise it while others work.
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
