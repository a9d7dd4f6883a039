"""Update rules: plain gradients, momentum, Adam. A rule kept from image to image makes results depend on the order."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ttaps.losses import at_least_float32

Weights = dict[str, Tensor]
UpdateRule = Callable[[Weights, Weights], Weights]
"""Takes weights and their gradients by name, and returns what to subtract from the weights, before the step size."""


def sgd(weights: Weights, gradients: Weights) -> Weights:
    """The gradients themselves: θ ← θ - α∇θ L."""
    return gradients


class Momentum:
    """v ← m v + g, with the L2 penalty inside g; the first v is g, as in torch."""

    def __init__(self, momentum: float = 0.0, weight_decay: float = 0.0) -> None:
        self.momentum, self.weight_decay = momentum, weight_decay
        self.velocity: Weights = {}

    def __call__(self, weights: Weights, gradients: Weights) -> Weights:
        """Return v, or g where there is no momentum."""
        if self.weight_decay:
            gradients = {name: g.add(weights[name], alpha=self.weight_decay) for name, g in gradients.items()}
        if not self.momentum:
            return gradients
        before = self.velocity
        self.velocity = {
            name: g.add(before[name], alpha=self.momentum) if before else g for name, g in gradients.items()
        }
        return self.velocity


class Adam:
    """Kingma and Ba's m / (√v + ε) of running means, both corrected for their start at zero; their constants."""

    beta1, beta2, epsilon = 0.9, 0.999, 1e-8

    def __init__(self) -> None:
        self.moments: dict[str, tuple[Tensor, Tensor]] = {}
        self.steps = 0

    def __call__(self, weights: Weights, gradients: Weights) -> Weights:
        """Return the update of one more step."""
        self.steps += 1
        return {name: self._update(name, gradient) for name, gradient in gradients.items()}

    def _update(self, name: str, gradient: Tensor) -> Tensor:
        exact = at_least_float32(gradient)  # squares and ε are zero in half precision
        zero = exact.new_zeros(())
        mean, square = self.moments.get(name, (zero, zero))
        mean = self.beta1 * mean + (1 - self.beta1) * exact
        square = self.beta2 * square + (1 - self.beta2) * exact.square()
        self.moments[name] = mean, square
        deviation = (square / (1 - self.beta2**self.steps)).sqrt().add(self.epsilon)
        return (mean / (1 - self.beta1**self.steps) / deviation).to(gradient.dtype)
