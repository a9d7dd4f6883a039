"""SGD with momentum, Muon for convolutions, and the exponential moving average of weights; all state is named tensors."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ttaps.errors import UsageError
from ttaps.training.config import OptimizerConfig


class Optimizer:
    """SGD on named weights; with ``muon``, Muon for the convolutions. Weights without a gradient are not changed."""

    def __init__(self, weights: Mapping[str, nn.Parameter], config: OptimizerConfig) -> None:
        self.config, self.weights = config, dict(weights)
        smoothed = config.kernel_smoothing_layers if config.kernel_smoothing else ()
        parts = {name: set(name.split(".")) for name in weights}  # backbone, stage1, 0, conv1 and weight of its name
        for setting, named in (("muon_exclude", config.muon_exclude), ("kernel_smoothing_layers", smoothed)):
            for unknown in sorted(set(named).difference(*parts.values())):
                raise UsageError(f"optimizer.{setting}: the network has no part '{unknown}'.")
        self.smoothed = [w for name, w in weights.items() if w.shape[2:] == (3, 3) and parts[name] & set(smoothed)]
        kernels = {name: w for name, w in weights.items() if w.ndim == 4 and not parts[name] & set(config.muon_exclude)}
        self.kernels = kernels if config.name == "muon" else {}
        rest = {name: weight for name, weight in weights.items() if name not in self.kernels}
        spared = [weight for weight in rest.values() if weight.ndim == 1 and not config.decay_vectors]
        decayed = [weight for weight in rest.values() if weight.ndim > 1 or config.decay_vectors]
        groups: list[dict[str, Any]] = [{"params": decayed}, {"params": spared, "weight_decay": 0.0}]
        self.nesterov = config.nesterov and config.momentum > 0  # the same without momentum, which torch refuses
        self.sgd = torch.optim.SGD(groups, config.lr, config.momentum, 0, config.weight_decay, self.nesterov)
        # Zeros are what torch starts from, too: so the state has all names from the first step on.
        self.momentum = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        for name, weight in rest.items():
            self.sgd.state[weight]["momentum_buffer"] = self.momentum[name]

    @torch.no_grad()
    def step(self, scale: float) -> None:
        """Update every weight that has a gradient; ``scale`` is the schedule's factor on the base learning rates."""
        if self.config.clip_grad_per_param:
            for gradient in (weight.grad for weight in self.weights.values() if weight.grad is not None):
                gradient.div_((gradient.norm() / self.config.clip_grad_per_param).clamp_min(1.0))
        for group in self.sgd.param_groups:
            group["lr"] = self.config.lr * scale
        self.sgd.step()
        self._muon_step(self.config.muon_lr * scale)
        for kernels in self.smoothed:
            if kernels.grad is not None:
                kernels.lerp_(smooth(kernels), self.config.kernel_smoothing * scale)

    def _muon_step(self, lr: float) -> None:
        """v ← m v + g with the L2 penalty inside g; the update is v, or g + m v with Nesterov, made orthogonal (Jordan et al., 2024)."""
        momentum, fixed_norm = self.config.momentum, self.config.muon_fixed_norm
        moving, updates = [], []
        for name, kernel in self.kernels.items():
            if kernel.grad is not None:
                gradient = kernel.grad.add(kernel, alpha=0.0 if fixed_norm else self.config.weight_decay)
                velocity = self.momentum[name].mul_(momentum).add_(gradient)
                updates.append(gradient.add(velocity, alpha=momentum) if self.nesterov else velocity)
                moving.append(kernel)
        for kernel, update in zip(moving, orthogonalized(updates), strict=True):
            if fixed_norm:  # W moves by lr ‖W‖ in the direction of the update and is scaled back to ‖W‖
                norm = kernel.norm()
                kernel.sub_(update * (lr * norm / update.norm().clamp_min(1e-12)))
                kernel.mul_(norm / kernel.norm())
            else:
                kernel.add_(update, alpha=-lr)


def smooth(kernels: Tensor) -> Tensor:
    """Blur 3x3 kernels by (1, 2, 1) in both directions, scaled so that the smoothest kernel, (1, √2, 1), is unchanged."""
    # The other two directions of a row, (1, 0, -1) and (1, -√2, 1), keep 0.59 and 0.17 of their size.
    blur = kernels.new_tensor([[2.0, 1.0, 0.0], [1.0, 2.0, 1.0], [0.0, 1.0, 2.0]]) / (2 + math.sqrt(2))
    return blur @ kernels @ blur


def orthogonalized(kernels: Sequence[Tensor]) -> list[Tensor]:
    """Replace each convolution's update by the nearest (semi-)orthogonal matrix, by Newton-Schulz; equal shapes are one batch."""
    result = list(kernels)
    for shape in {kernel.shape: None for kernel in kernels}:
        places = [place for place, kernel in enumerate(kernels) if kernel.shape == shape]
        matrices = torch.stack([kernels[place].flatten(1) for place in places])
        scale = math.sqrt(max(1.0, matrices.shape[1] / matrices.shape[2]))
        for place, matrix in zip(places, newton_schulz(matrices, 3) * scale, strict=True):
            result[place] = matrix.reshape(shape)
    return result


def newton_schulz(matrices: Tensor, iterations: int) -> Tensor:
    """Push all singular values of a stack of matrices (n, rows, columns) towards one, without computing them."""
    # Muon's: steepest at zero, so that few iterations lead near one, though not to it.
    a, b, c = 3.4445, -4.7750, 2.0315
    wide = matrices.shape[-2] <= matrices.shape[-1]
    x: Tensor = matrices if wide else matrices.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(iterations):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x if wide else x.mT


class WeightEMA:
    """Exponential moving average of weights, bias-corrected: θ̄ ← d θ̄ + (1 - d) θ with d rising to ``decay``."""

    def __init__(self, weights: Mapping[str, nn.Parameter], decay: float) -> None:
        self.last, self.decay = weights, decay
        self.weights = {name: weight.detach().clone() for name, weight in weights.items()}

    @torch.no_grad()
    def restart(self, names: tuple[str, ...]) -> None:
        """Restart the average of the weights with this name prefix."""
        for name, average in self.weights.items():
            if name.startswith(names):
                average.copy_(self.last[name])

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Add the weights after step number ``step``."""
        decay = min(self.decay, (1 + step) / (10 + step))
        for name, average in self.weights.items():
            average.lerp_(self.last[name], 1 - decay)
