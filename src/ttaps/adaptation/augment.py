"""Test-time augmentation: the mean prediction over augmented views, no weight changed. The yardstick for adapting to the same views."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ttaps.adaptation.engine import CarriedState
from ttaps.adaptation.method import Method
from ttaps.rng import generator
from ttaps.views import SwavViews


@dataclass(frozen=True)
class Augment(Method):
    """As many views as ``ttaps:tuned`` has; with the same ``views`` they are exactly those it adapts to."""

    name = "augment"

    num_views: int = 16
    """Views of the image."""
    confidence_threshold: float = 1.0
    """Leave an image unchanged when the model gives its label at least this probability; 1 augments every image."""
    views: SwavViews = field(default_factory=SwavViews)
    """How a view is made."""

    @torch.no_grad()
    def adapt_one(self, network: nn.Module, image: Tensor, key: int, state: CarriedState) -> Tensor:
        """Predict the image, then the mean over its views, unless the first prediction is confident enough."""
        before = network(image).softmax(-1)
        if self.confidence_threshold < 1 and before.max() >= self.confidence_threshold:
            return torch.stack([before, before], dim=1)
        after = network(self.draw_views(image, key)).softmax(-1).mean(0, keepdim=True)
        return torch.stack([before, after], dim=1)

    def draw_views(self, image: Tensor, key: int) -> Tensor:
        """Return the views of one image."""
        return self.views.apply(image, self.views.sample(self.num_views, image.shape[-1], generator(key, "ttaps")))
