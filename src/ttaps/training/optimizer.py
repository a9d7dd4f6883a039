"""SGD with momentum, and Muon for convolutions, on named weights: all state is a dictionary of named tensors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from ttaps.errors import UsageError
from ttaps.training.config import OptimizerConfig


class Optimizer:
    """Momentum updates of named weights; with ``muon``, those of the convolutions are orthogonalized first."""

    def __init__(self, weights: Mapping[str, nn.Parameter], config: OptimizerConfig) -> None:
        self.config = config
        self.weights = dict(weights)
        self.momentum = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        parts = {part for name in weights for part in name.split(".")}
        for setting, named in (
            ("muon_exclude", config.muon_exclude),
            ("kernel_smoothing_layers", config.kernel_smoothing_layers * (config.kernel_smoothing > 0)),
        ):
            for unknown in sorted(set(named) - parts):
                raise UsageError(f"optimizer.{setting}: the network has no part '{unknown}'.")

    @torch.no_grad()
    def step(self, scale: float) -> None:
        """Move every weight that has a gradient; ``scale`` is the schedule's factor on the base learning rates."""
        moving = {name: weight for name, weight in self.weights.items() if weight.grad is not None}
        updates = self._momentum_updates(moving)
        kernels = [name for name, weight in moving.items() if weight.ndim == 4 and self._orthogonal(name)]
        updates.update(orthogonalized({name: updates[name] for name in kernels}))
        for name, weight in moving.items():
            lr = self.config.muon_lr if name in kernels else self.config.lr
            weight.add_(updates[name], alpha=-lr * scale)
            if (
                self.config.kernel_smoothing
                and weight.shape[2:] == (3, 3)
                and _part_of(name, self.config.kernel_smoothing_layers)
            ):
                weight.lerp_(smooth(weight), self.config.kernel_smoothing * scale)

    def _orthogonal(self, name: str) -> bool:
        """Say whether Muon moves this convolution (``backbone.stage1.0...``)."""
        return self.config.name == "muon" and not _part_of(name, self.config.muon_exclude)

    def _momentum_updates(self, moving: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
        """v ← m v + g with the L2 penalty inside g; the update is v, or g + m v with Nesterov."""
        config = self.config
        names, weights = list(moving), [weight.detach() for weight in moving.values()]
        velocity = [self.momentum[name] for name in names]
        gradients = [weight.grad for weight in moving.values() if weight.grad is not None]
        if config.clip_grad_per_param:
            norms = torch._foreach_norm(gradients)
            gradients = [
                g / (n / config.clip_grad_per_param).clamp_min(1.0) for g, n in zip(gradients, norms, strict=True)
            ]
        gradients = list(torch._foreach_add(gradients, weights, alpha=config.weight_decay))
        torch._foreach_mul_(velocity, config.momentum)
        torch._foreach_add_(velocity, gradients)
        updates = torch._foreach_add(gradients, velocity, alpha=config.momentum) if config.nesterov else velocity
        return dict(zip(names, updates, strict=True))


def _part_of(name: str, parts: Iterable[str]) -> bool:
    return not set(name.split(".")).isdisjoint(parts)


def smooth(kernels: Tensor) -> Tensor:
    """Blur 3x3 kernels by (1, 2, 1) down and across, scaled so that the smoothest kernel, (1, √2, 1) both ways, stays as it is.

    The other two directions of a row, (1, 0, -1) and (1, -√2, 1), keep 0.59 and 0.17 of their size.
    """
    blur = kernels.new_tensor([[2.0, 1.0, 0.0], [1.0, 2.0, 1.0], [0.0, 1.0, 2.0]]) / (2 + math.sqrt(2))
    return blur @ kernels @ blur


def orthogonalized(kernels: Mapping[str, Tensor], iterations: int = 3) -> dict[str, Tensor]:
    """Replace each convolution's update by the nearest (semi-)orthogonal matrix, by Newton-Schulz; equal shapes go together."""
    shapes: dict[torch.Size, list[str]] = {}
    for name, kernel in kernels.items():
        shapes.setdefault(kernel.shape, []).append(name)
    result: dict[str, Tensor] = {}
    for shape, names in shapes.items():
        matrices = torch.stack([kernels[name].reshape(shape[0], -1) for name in names])
        scale = math.sqrt(max(1.0, matrices.shape[1] / matrices.shape[2]))
        for name, matrix in zip(names, newton_schulz(matrices, iterations) * scale, strict=True):
            result[name] = matrix.reshape(shape)
    return result


def newton_schulz(matrices: Tensor, iterations: int) -> Tensor:
    """Push all singular values of a stack of matrices (n, rows, columns) towards one, without computing them.

    The odd quintic's coefficients are those of Muon (Jordan et al., 2024): steepest at zero, so that few iterations are enough;
    singular values end near one, not at it.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    wide = matrices.shape[-2] <= matrices.shape[-1]
    x: Tensor = matrices if wide else matrices.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(iterations):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x if wide else x.mT


class WeightEMA:
    """A running average of weights, corrected for its start: θ̄ ← d θ̄ + (1 - d) θ with d rising to ``decay``."""

    def __init__(self, weights: Iterable[tuple[str, nn.Parameter]], decay: float) -> None:
        self.decay = decay
        self.weights = {name: weight.detach().clone() for name, weight in weights}

    @torch.no_grad()
    def restart(self, weights: Iterable[tuple[str, nn.Parameter]]) -> None:
        """Forget what these weights were."""
        for name, weight in weights:
            self.weights[name].copy_(weight)

    @torch.no_grad()
    def update(self, weights: Iterable[tuple[str, nn.Parameter]], step: int) -> None:
        """Take in the weights after ``step`` steps."""
        decay = min(self.decay, (1 + step) / (10 + step))
        for name, weight in weights:
            self.weights[name].lerp_(weight.detach(), 1 - decay)
