"""Average: the mean prediction over augmented views, no weight changed. What an adaptation to the same views has to beat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from ttaps.adaptation.engine import CarriedState, one_by_one
from ttaps.config import check_min
from ttaps.model import eval_mode
from ttaps.rng import generator
from ttaps.views import SwavViews


@dataclass(frozen=True)
class Augment:
    """As many views as ``ttaps:tuned`` has; with the same ``views`` they are the very views it adapts to."""

    name: ClassVar[str] = "augment"
    paper: ClassVar[str] = ""
    adapts: ClassVar[str] = "nothing"
    trained_by: ClassVar[tuple[str, ...]] = ()

    num_views: int = 16
    """Views of the image."""
    confidence_threshold: float = 1.0
    """Leave an image alone when the model gives its label at least this probability; 1 takes the views of every image."""
    views: SwavViews = field(default_factory=SwavViews)
    """How a view is made."""

    def __post_init__(self) -> None:
        check_min(self, num_views=1, confidence_threshold=0)

    def missing_requirement(self, network: nn.Module) -> str | None:
        """Return None: any classifier will do."""
        return None

    def adapt(self, network: nn.Module, images: Tensor, keys: Sequence[int]) -> Tensor:
        """Return class probabilities of the image, and their mean over its views, shape (N, 2, classes)."""
        with eval_mode(network):
            return one_by_one(partial(self.adapt_one, network), images, keys, None, sequential=False)

    @torch.no_grad()
    def adapt_one(self, network: nn.Module, image: Tensor, key: int, memory: CarriedState) -> Tensor:
        """Predict the image, then its views, unless the first is sure enough."""
        plain: Tensor = network(image).softmax(-1)[0]
        if self.confidence_threshold < 1 and plain.max() >= self.confidence_threshold:
            return torch.stack([plain, plain])
        return torch.stack([plain, network(self.draw(image, key)).softmax(-1).mean(0)])

    def draw(self, image: Tensor, key: int) -> Tensor:
        """Return the views of one image."""
        return self.views.apply(image, self.views.sample(self.num_views, image.shape[-1], generator(key, "ttaps")))
