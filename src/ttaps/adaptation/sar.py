"""SAR (Niu et al., 2023): TENT with reliable images only, towards weights around which the entropy is low too, and a way back."""

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
    """The authors' settings; model and optimizer are fresh for every image, or every batch, unless ``online``."""

    name = "sar"
    paper = "Niu et al. 2023"

    optimizer: Literal["adam", "sgd"] = "sgd"
    """SGD, as the authors use, or Adam."""
    momentum: float = 0.9
    """Momentum of SGD."""
    rho: float = 0.05
    """ρ: how far away, in the direction of the gradient, the gradient of a step is taken (sharpness-aware minimization). 0: nowhere."""
    entropy_margin: float = 0.4
    """Leave out images whose entropy is above this share of ln(classes). 0: none."""
    recovery_entropy: float = 0.029
    """Return to the trained weights when the running mean of the entropy is below this share of ln(classes): 0.2 for the authors' 1,000
    classes. 0: never."""
    frozen_share: float = 0.25
    """Share of the norm layers, the last ones, that stay as they are: the last of four stages, or 3 of 12 blocks, in the authors' code."""

    def adapted_weights(self, network: nn.Module) -> list[str]:
        """Return the names of the weights that change: those of the first norm layers."""
        names = super().adapted_weights(network)
        return names[: max(1, math.ceil(len(names) * (1 - self.frozen_share)))]

    def adapt_one(self, network: nn.Module, image: Tensor, key: int, state: CarriedState) -> Tensor:
        """Adapt as TENT does; the next batch starts from the trained weights if the predictions have become too certain."""
        trace = super().adapt_one(network, image, key, state)
        limit = self.recovery_entropy * math.log(trace.shape[-1])
        if AVERAGE in state.memory and state.memory[AVERAGE] < limit:
            state.weights = state.rule = None
        return trace

    def loss(self, logits: Logits, weights: Weights, state: CarriedState) -> Tensor | None:
        """Return the mean entropy, over reliable images, with weights that are ρ away uphill; its gradient is the step's."""
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
