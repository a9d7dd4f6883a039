"""MT3 (Bartler et al., 2022): the one step on the BYOL loss that the weights were trained to take well; then predict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ttaps import losses
from ttaps.adaptation.engine import CarriedState, one_by_one, run_steps
from ttaps.adaptation.optimizers import Weights
from ttaps.config import check_min
from ttaps.model import Network, as_network
from ttaps.model.functional import frozen_copy
from ttaps.rng import generator
from ttaps.views import MT3_VIEWS, SwavViews


@dataclass(frozen=True)
class Mt3:
    """The authors' settings: one plain gradient step on backbone, projector and predictor, as in the inner loop of training."""

    name: ClassVar[str] = "mt3"
    paper: ClassVar[str] = "Bartler et al. 2022 (AISTATS)"
    adapts: ClassVar[str] = "backbone, projector, predictor"
    trained_by: ClassVar[tuple[str, ...]] = ("mt3",)

    steps: int = 1
    """Gradient steps per image, all with the same views."""
    lr: float = 0.1
    """Step size."""
    num_pairs: int = 32
    """Copies of the image; each has two views."""
    online: bool = False
    """Keep the weights from image to image: results depend on the order."""
    views: SwavViews = field(default_factory=lambda: MT3_VIEWS)
    """How a view is made."""

    def __post_init__(self) -> None:
        check_min(self, steps=0, lr=0, num_pairs=1)

    @property
    def protocol(self) -> str:
        """Say what an image's result depends on besides the image."""
        return "online" if self.online else "episodic"

    def missing_requirement(self, network: nn.Module) -> str | None:
        """Return what a network has not: a predictor."""
        has = isinstance(network, Network) and "predictor" in network.heads
        return None if has else "a predictor (train with objective mt3)"

    def adapt(
        self, network: nn.Module, images: Tensor, keys: Sequence[int], memory: CarriedState | None = None
    ) -> Tensor:
        """Return class probabilities before and after every step, shape (N, steps + 1, classes)."""
        return one_by_one(partial(self.adapt_one, as_network(network)), images, keys, memory, self.online)

    def adapt_one(self, network: Network, image: Tensor, key: int, memory: CarriedState) -> Tensor:
        """Step down the BYOL loss, then predict the image as it is."""
        byol = frozen_copy(network.byol())
        views = self.draw(image, key)

        def loss(weights: Weights, step: int) -> Tensor:
            z, predictions = functional_call(byol, weights, (views,))
            return losses.byol(predictions, z)

        @torch.no_grad()
        def predict(weights: Weights) -> Tensor:
            z, _ = functional_call(byol, weights, (image,))
            logits: Tensor = network.classifier(z)
            return logits[0].softmax(-1)

        source: Weights = dict(byol.named_parameters())
        return run_steps(predict(source), predict, loss, source, self.steps, self.lr, memory)

    def draw(self, image: Tensor, key: int) -> Tensor:
        """Return the views of an image (1, 3, H, W): one of every copy, then another of every copy."""
        return self.views.apply(image, self.views.sample(2 * self.num_pairs, image.shape[-1], generator(key, "mt3")))
