"""SGD with momentum, Muon for convolutions, and the exponential moving average of weights; all state is named tensors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ttaps.errors import UsageError
from ttaps.training.config import OptimizerConfig


class Optimizer:
    """SGD on named weights; with ``muon``, the convolutions have Muon instead. A weight without a gradient is not moved."""

    def __init__(self, weights: Mapping[str, nn.Parameter], config: OptimizerConfig) -> None:
        self.config, self.weights = config, dict(weights)
        smoothed = config.kernel_smoothing_layers if config.kernel_smoothing else ()
        parts = {part for name in weights for part in name.split(".")}
        for setting, named in (("muon_exclude", config.muon_exclude), ("kernel_smoothing_layers", smoothed)):
            for unknown in sorted(set(named) - parts):
                raise UsageError(f"optimizer.{setting}: the network has no part '{unknown}'.")
        self.smoothed = [w for name, w in weights.items() if w.shape[2:] == (3, 3) and _part_of(name, smoothed)]
        by_muon = {
            name
            for name, weight in weights.items()
            if config.name == "muon" and weight.ndim == 4 and not _part_of(name, config.muon_exclude)
        }
        kernels = [weight for name, weight in weights.items() if name in by_muon]
        vectors = [w for w in weights.values() if w.ndim == 1 and not config.decay_vectors]
        rest = [w for name, w in weights.items() if name not in by_muon and (w.ndim > 1 or config.decay_vectors)]
        nesterov = config.nesterov and config.momentum > 0  # the same without momentum, which torch refuses
        self.optimizers: list[tuple[float, torch.optim.Optimizer]] = []
        if rest:
            groups: list[dict[str, Any]] = [{"params": rest}]
            groups += [{"params": vectors, "weight_decay": 0.0}] if vectors else []
            sgd = torch.optim.SGD(groups, config.lr, config.momentum, 0, config.weight_decay, nesterov)
            self.optimizers.append((config.lr, sgd))
        if kernels:
            decay = 0.0 if config.muon_fixed_norm else config.weight_decay
            muon = Muon(kernels, config.momentum, decay, nesterov, config.muon_fixed_norm)
            self.optimizers.append((config.muon_lr, muon))
        # Zeros are what torch starts from, too: so the state has all names from the first step on.
        self.momentum = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        buffers = {weight: self.momentum[name] for name, weight in weights.items()}
        for _, optimizer in self.optimizers:
            for weight in (weight for group in optimizer.param_groups for weight in group["params"]):
                optimizer.state[weight]["momentum_buffer"] = buffers[weight]

    @torch.no_grad()
    def step(self, scale: float) -> None:
        """Move every weight that has a gradient; ``scale`` is the schedule's factor on the base learning rates."""
        if self.config.clip_grad_per_param:
            for gradient in (weight.grad for weight in self.weights.values() if weight.grad is not None):
                gradient.div_((gradient.norm() / self.config.clip_grad_per_param).clamp_min(1.0))
        for lr, optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = lr * scale
            optimizer.step()
        for kernels in self.smoothed:
            if kernels.grad is not None:
                kernels.lerp_(smooth(kernels), self.config.kernel_smoothing * scale)


class Muon(torch.optim.Optimizer):
    """SGD with momentum whose updates of convolutions are made orthogonal (Jordan et al., 2024)."""

    def __init__(
        self,
        kernels: Sequence[nn.Parameter],
        momentum: float,
        weight_decay: float,
        nesterov: bool,
        fixed_norm: bool = False,
    ) -> None:
        super().__init__(kernels, {"momentum": momentum, "nesterov": nesterov, "weight_decay": weight_decay})
        self.fixed_norm = fixed_norm

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """v ← m v + g with the L2 penalty inside g; the update is v, or g + m v with Nesterov, made orthogonal.

        With a fixed norm, W moves by lr ‖W‖ in the direction of the update and is scaled back to ‖W‖.
        """
        for group in self.param_groups:
            moving = [kernel for kernel in group["params"] if kernel.grad is not None]
            updates = []
            for kernel in moving:
                gradient = kernel.grad.add(kernel, alpha=group["weight_decay"])
                velocity = self.state[kernel]["momentum_buffer"].mul_(group["momentum"]).add_(gradient)
                updates.append(gradient.add(velocity, alpha=group["momentum"]) if group["nesterov"] else velocity)
            for kernel, update in zip(moving, orthogonalized(updates), strict=True):
                if self.fixed_norm:
                    norm = kernel.norm()
                    kernel.sub_(update * (group["lr"] * norm / update.norm().clamp_min(1e-12)))
                    kernel.mul_(norm / kernel.norm())
                else:
                    kernel.add_(update, alpha=-group["lr"])


def _part_of(name: str, parts: Iterable[str]) -> bool:
    """Whether a weight (``backbone.stage1.0...``) belongs to one of the parts."""
    return not set(name.split(".")).isdisjoint(parts)


def smooth(kernels: Tensor) -> Tensor:
    """Blur 3x3 kernels by (1, 2, 1) down and across, scaled so that the smoothest kernel, (1, √2, 1) both ways, stays as it is.

    The other two directions of a row, (1, 0, -1) and (1, -√2, 1), keep 0.59 and 0.17 of their size.
    """
    blur = kernels.new_tensor([[2.0, 1.0, 0.0], [1.0, 2.0, 1.0], [0.0, 1.0, 2.0]]) / (2 + math.sqrt(2))
    return blur @ kernels @ blur


def orthogonalized(kernels: Sequence[Tensor], iterations: int = 3) -> list[Tensor]:
    """Replace each convolution's update by the nearest (semi-)orthogonal matrix, by Newton-Schulz; equal shapes are one batch."""
    shapes: dict[torch.Size, list[int]] = {}
    for place, kernel in enumerate(kernels):
        shapes.setdefault(kernel.shape, []).append(place)
    result = list(kernels)
    for shape, places in shapes.items():
        matrices = torch.stack([kernels[place].reshape(shape[0], -1) for place in places])
        scale = math.sqrt(max(1.0, matrices.shape[1] / matrices.shape[2]))
        for place, matrix in zip(places, newton_schulz(matrices, iterations) * scale, strict=True):
            result[place] = matrix.reshape(shape)
    return result


def newton_schulz(matrices: Tensor, iterations: int) -> Tensor:
    """Push all singular values of a stack of matrices (n, rows, columns) towards one, without computing them.

    The odd quintic's coefficients are those of Muon: steepest at zero, so that few iterations are enough; singular values end near
    one, not at it.
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
    """Exponential moving average of weights, corrected for its start: θ̄ ← d θ̄ + (1 - d) θ with d rising to ``decay``."""

    def __init__(self, weights: Mapping[str, nn.Parameter], decay: float) -> None:
        self.last, self.decay = dict(weights), decay
        self.weights = {name: weight.detach().clone() for name, weight in weights.items()}

    @torch.no_grad()
    def restart(self, names: tuple[str, ...]) -> None:
        """Forget the past of the weights whose names start like this."""
        for name, average in self.weights.items():
            if name.startswith(names):
                average.copy_(self.last[name])

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Add the weights as they are after step number ``step``."""
        decay = min(self.decay, (1 + step) / (10 + step))
        for name, average in self.weights.items():
            average.lerp_(self.last[name], 1 - decay)
