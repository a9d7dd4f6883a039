"""MEMO (Zhang et al., 2021): agree on one class, with confidence, over augmented views of the image; then predict the image itself."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ttaps.adaptation.engine import CarriedState, gradient_steps
from ttaps.adaptation.method import GradientMethod
from ttaps.adaptation.optimizers import Weights
from ttaps.losses import marginal_entropy
from ttaps.model.functional import Functional
from ttaps.rng import generator
from ttaps.views.augmix import AugmixViews


@dataclass(frozen=True)
class Memo(GradientMethod):
    """The authors' settings on CIFAR-10: one plain gradient step on all weights."""

    name = "memo"
    paper = "Zhang et al. 2021"
    adapts = "all weights"

    steps: int = 1
    """Gradient steps per image, each with fresh views."""
    lr: float = 0.005
    """Step size."""
    num_views: int = 32
    """Views of the image per step."""
    views: AugmixViews = field(default_factory=AugmixViews)
    """How a view is made."""

    def missing_requirement(self, network: nn.Module) -> str | None:
        """Return None, unless there is nothing to adapt."""
        return None if any(True for _ in network.parameters()) else "weights"

    @torch.no_grad()
    def adapt_one(self, network: nn.Module, image: Tensor, key: int, state: CarriedState) -> Tensor:
        """Minimize the marginal entropy over the views, then predict the image as it is."""
        classifier = Functional(network)

        def loss(weights: Weights, step: int) -> Tensor:
            return marginal_entropy(classifier(self.draw_views(image, key, step), weights))

        source = classifier.weights()
        steps = gradient_steps(loss, source, self.steps, self.lr, state)
        return torch.stack([classifier(image, weights).softmax(-1) for weights in (source, *steps)], dim=1)

    def draw_views(self, image: Tensor, key: int, step: int = 0) -> Tensor:
        """Return the views of an image (1, 3, H, W) at a step."""
        drawn = self.views.sample(self.num_views, image.shape[-1], generator(key, "memo", step))
        return self.views.apply(image, drawn)
