"""TENT (Wang et al., 2021): make the prediction more confident through the scale and shift of the norm layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from ttaps.adaptation.engine import CarriedState, gradient_steps
from ttaps.adaptation.method import GradientMethod
from ttaps.adaptation.optimizers import Adam, Weights, sgd
from ttaps.losses import prediction_entropy
from ttaps.model.functional import Functional, kinds_of_norm, norm_weights, use_batch_statistics


@dataclass(frozen=True)
class Tent(GradientMethod):
    """The authors' optimizer, step size and number of steps; model and optimizer are fresh for every image, or every batch."""

    name = "tent"
    paper = "Wang et al. 2021"
    adapts = "scale and shift of norm layers"

    steps: int = 1
    """Gradient steps per image, or per batch."""
    lr: float = 1e-3
    """Step size."""
    optimizer: Literal["adam", "sgd"] = "adam"
    """Adam, as the authors use on CIFAR-10-C, or plain gradient steps."""
    batch_size: int = 1
    """Images adapted together; with more than one, an image's result depends on the others in its batch (the authors use 200)."""
    online: bool = False
    """Keep weights and optimizer from image to image, as the authors do: results depend on the order."""

    def missing_requirement(self, network: nn.Module) -> str | None:
        """Return what a network lacks: norm layers with weights."""
        if norm_weights(network):
            return None
        return f"norm layers with scale and shift (this network's norm layers: {kinds_of_norm(network)})"

    @torch.no_grad()
    def adapt_one(self, network: nn.Module, image: Tensor, key: int, state: CarriedState) -> Tensor:
        """Adapt to images together; BatchNorm uses their statistics, as in the authors' code, before the first step too."""
        classifier = Functional(network, norm_weights(network))
        before = classifier(image, {}).softmax(-1)
        use_batch_statistics(classifier.copy)
        state.rule = state.rule or (Adam() if self.optimizer == "adam" else sgd)

        def loss(weights: Weights, step: int) -> Tensor:
            return prediction_entropy(classifier(image, weights))

        steps = gradient_steps(loss, classifier.weights(), self.steps, self.lr, state)
        return torch.stack([before, *(classifier(image, weights).softmax(-1) for weights in steps)], dim=1)
