"""Gradient steps on weights that belong to one image: the network itself is never touched."""

from __future__ import annotations

from collections.abc import Callable, Iterator

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


def in_chunks(function: Callable[[Tensor], Tensor], rows: Tensor, chunk: int) -> Tensor:
    """Apply a function to a few rows at a time, so that what it works on stays in the cache."""
    return torch.cat([function(part) for part in rows.split(chunk)])
