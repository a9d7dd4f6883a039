"""TENT (Wang et al., 2021): minimize the prediction's entropy over the scale and shift of the norm layers."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from ttaps.adaptation.engine import Adam, CarriedState, Momentum, UpdateRule, Weights, gradient_steps
from ttaps.adaptation.method import GradientMethod
from ttaps.losses import prediction_entropy
from ttaps.model.functional import Functional, kinds_of_norm, norm_weights, source_images, use_batch_statistics

Logits = Callable[[Weights], Tensor]  # of the images that are adapted to


@dataclass(frozen=True)
class Tent(GradientMethod):
    """The authors' optimizer, step size and number of steps; model and optimizer are reset for every image, or every batch."""

    name = "tent"
    paper = "Wang et al. 2021"
    adapts = "scale and shift of norm layers"

    lr: float = 1e-3
    """Step size."""
    optimizer: Literal["adam", "sgd"] = "adam"
    """Adam, as the authors use on CIFAR-10-C, or SGD."""
    momentum: float = 0.0
    """Momentum of SGD."""
    batch_size: int = 1
    """Images adapted together; with more than one, an image's result depends on the others in its batch (the authors use 200)."""
    online: bool = False
    """Keep weights and optimizer from image to image, as the authors do: results depend on the order."""
    source_weight: float = 16.0
    """Number of images that BatchNorm's training statistics count as for one image; each further image of a batch lowers it by one,
    so large batches use only their own statistics, as the authors do. 0: always only their own."""

    def missing_requirement(self, network: nn.Module) -> str | None:
        """Return what a network lacks: norm layers with weights."""
        if norm_weights(network):
            return None
        return f"norm layers with scale and shift (this network's norm layers: {kinds_of_norm(network)})"

    @torch.no_grad()
    def adapt_one(self, network: nn.Module, image: Tensor, key: int, state: CarriedState) -> Tensor:
        """Adapt to images together, with their own or mixed BatchNorm statistics, also before the first step."""
        classifier = Functional(network, self.adapted_weights(network))
        before = state.tell(classifier(image, {}).softmax(-1))
        use_batch_statistics(classifier.copy, source_images(self.source_weight, len(image)))
        state.rule = state.rule or self.make_rule()

        def logits(weights: Weights) -> Tensor:
            return classifier(image, weights)

        def loss(weights: Weights, step: int) -> Tensor | None:
            return self.loss(logits, weights, state)

        steps = gradient_steps(loss, classifier.weights(), self.steps, self.lr, state)
        return torch.stack([before, *(state.tell(logits(weights).softmax(-1)) for weights in steps)], dim=1)

    def adapted_weights(self, network: nn.Module) -> list[str]:
        """Return the names of the adapted weights."""
        return norm_weights(network)

    def make_rule(self) -> UpdateRule:
        """Return a fresh optimizer."""
        return Adam() if self.optimizer == "adam" else Momentum(self.momentum)

    def loss(self, logits: Logits, weights: Weights, state: CarriedState) -> Tensor | None:
        """Return the mean entropy of the predictions with given weights; None takes no step."""
        return prediction_entropy(logits(weights))


def entropy_limit(margin: float, logits: Tensor) -> float:
    """Return E₀, the share ``margin`` of ln(classes), the maximum entropy; no limit for a margin of 0."""
    return margin * math.log(logits.shape[-1]) if margin else math.inf
