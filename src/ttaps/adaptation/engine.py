"""Gradient steps on weights that belong to one image: the network itself is never touched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

Weights = dict[str, Tensor]


def descend(
    loss: Callable[[Weights, int], Tensor],
    weights: Weights,
    steps: int,
    lr: float,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
) -> Iterator[Weights]:
    """Yield the weights after every step of θ ← θ - α∇θ L, starting from ``weights``, which stay as they are.

    ``loss(weights, step)`` is the loss at a step. Momentum and weight decay are those of the authors' code; the paper has neither.
    """
    velocity: Weights = {}
    for step in range(steps):
        leaves = {name: weight.detach().requires_grad_() for name, weight in weights.items()}
        with torch.enable_grad():
            gradients = torch.autograd.grad(loss(leaves, step), list(leaves.values()))
        updates = dict(zip(leaves, gradients, strict=True))
        if weight_decay:
            updates = {name: update.add(weights[name], alpha=weight_decay) for name, update in updates.items()}
        if momentum:
            velocity = {
                name: update.add(velocity[name], alpha=momentum) if velocity else update
                for name, update in updates.items()
            }
            updates = velocity
        weights = {name: weight.detach().sub(updates[name], alpha=lr) for name, weight in weights.items()}
        yield weights


def each_image(function: Callable[[int], Tensor], count: int) -> Tensor:
    """Stack ``function(index)`` over images on a CPU.

    Images run side by side with one thread each: no thread ever waits for another, and an image's numbers do not depend on how
    many threads there are. Waiting is what makes two threads on one image many times slower on a busy machine (docs/log.md).
    """
    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(min(count, threads), initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return torch.stack(list(pool.map(function, range(count))))
    finally:
        torch.set_num_threads(threads)  # workers also set the default of threads to come


def in_chunks(function: Callable[[Tensor], Tensor], rows: Tensor, chunk: int) -> Tensor:
    """Apply a function to a few rows at a time, so that what it works on stays in the cache."""
    return torch.cat([function(part) for part in rows.split(chunk)])
