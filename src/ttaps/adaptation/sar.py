"""SAR (Niu et al., 2023): sharpness-aware TENT on reliable images only, with recovery from collapse."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from ttaps.adaptation.engine import CarriedState, Weights
from ttaps.adaptation.tent import Logits, Tent, entropy_limit
from ttaps.losses import prediction_entropies

AVERAGE = "entropy"  # the running mean that recovery watches


@dataclass(frozen=True)
class Sar(Tent):
    """The authors' settings; model and optimizer are reset for every image, or every batch, unless ``online``."""

    name = "sar"
    paper = "Niu et al. 2023"

    optimizer: Literal["adam", "sgd"] = "sgd"
    """SGD, as the authors use, or Adam."""
    momentum: float = 0.9
    """Momentum of SGD."""
    rho: float = 0.05
    """ρ: radius of sharpness-aware minimization, the distance uphill at which the gradient of a step is computed. 0: plain steps."""
    entropy_margin: float = 0.4
    """Skip images whose entropy is above this share of ln(classes). 0: none."""
    recovery_entropy: float = 0.029
    """Reset to the trained weights when the running mean of the entropy is below this share of ln(classes): 0.2 for the authors' 1,000
    classes. 0: never."""
    frozen_share: float = 0.25
    """Share of the norm layers, from the last, that are frozen: the last of four stages, or 3 of 12 blocks, in the authors' code."""

    def adapted_weights(self, network: nn.Module) -> list[str]:
        """Return the names of the adapted weights: those of the first norm layers."""
        names = super().adapted_weights(network)
        return names[: max(1, math.ceil(len(names) * (1 - self.frozen_share)))]

    def adapt_one(self, network: nn.Module, image: Tensor, key: int, state: CarriedState) -> Tensor:
        """Adapt as TENT does; the next batch starts from the trained weights if predictions have become too confident."""
        trace = super().adapt_one(network, image, key, state)
        limit = self.recovery_entropy * math.log(trace.shape[-1])
        if AVERAGE in state.memory and state.memory[AVERAGE] < limit:
            state.weights = state.rule = None
        return trace

    def loss(self, logits: Logits, weights: Weights, state: CarriedState) -> Tensor | None:
        """Return the mean entropy over reliable images at the weights ρ uphill; its gradient is used for the step."""
        found = logits(weights)
        entropies, limit = prediction_entropies(found), entropy_limit(self.entropy_margin, found)
        reliable = entropies < limit
        if not reliable.any():
            return None
        slopes = torch.autograd.grad(entropies[reliable].mean(), list(weights.values()), materialize_grads=True)
        scale = self.rho / (torch.stack([slope.norm() for slope in slopes]).norm() + 1e-12)
        uphill = {name: weights[name] + scale * slope for name, slope in zip(weights, slopes, strict=True)}
        entropies = prediction_entropies(logits(uphill))[reliable]
        if not (entropies < limit).any():
            return None
        value = entropies[entropies < limit].mean()
        last = state.memory.get(AVERAGE, value.detach())
        state.memory[AVERAGE] = 0.9 * last + 0.1 * value.detach()
        return value
