"""TENT (Wang et al., 2021): make the prediction surer by the scale and shift of the norm layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from ttaps.adaptation.engine import CarriedState, run_steps, side_by_side
from ttaps.adaptation.optimizers import Adam, Weights, sgd
from ttaps.config import check_min
from ttaps.losses import prediction_entropy
from ttaps.model.functional import Functional, kinds_of_norm, norm_weights
from ttaps.model.statistics import use_batch_statistics


@dataclass(frozen=True)
class Tent:
    """The authors' optimizer, step size and number of steps; model and optimizer are fresh for every image, or every batch."""

    name: ClassVar[str] = "tent"
    paper: ClassVar[str] = "Wang et al. 2021"
    adapts: ClassVar[str] = "scale and shift of norm layers"
    trained_by: ClassVar[tuple[str, ...]] = ()

    steps: int = 1
    """Gradient steps per image, or per batch."""
    lr: float = 1e-3
    """Step size."""
    optimizer: Literal["adam", "sgd"] = "adam"
    """Adam, as the authors on CIFAR-10-C, or plain gradient steps."""
    batch_size: int = 1
    """Images adapted together; with more than one, an image's result depends on the others of its batch (the authors take 200)."""
    online: bool = False
    """Keep weights and optimizer from image to image, as the authors do: results depend on the order."""

    def __post_init__(self) -> None:
        check_min(self, steps=0, lr=0, batch_size=1)

    @property
    def protocol(self) -> str:
        """Say what an image's result depends on besides the image."""
        together = f"batches of {self.batch_size}" if self.batch_size > 1 else ""
        return ", ".join(filter(None, ("online" if self.online else "", together))) or "episodic"

    def missing_requirement(self, network: nn.Module) -> str | None:
        """Return what a network has not: norm layers with weights."""
        if norm_weights(network):
            return None
        return f"norm layers with scale and shift (this network's norm layers: {kinds_of_norm(network)})"

    def adapt(
        self, network: nn.Module, images: Tensor, keys: Sequence[int], memory: CarriedState | None = None
    ) -> Tensor:
        """Return class probabilities before and after every step, shape (N, steps + 1, classes)."""
        batches, kept = images.split(self.batch_size), memory or CarriedState()

        def one(index: int) -> Tensor:
            return self.adapt_batch(network, batches[index], kept if self.online else CarriedState())

        return torch.cat(side_by_side(one, len(batches), self.online))

    def adapt_batch(self, network: nn.Module, images: Tensor, memory: CarriedState) -> Tensor:
        """Adapt to images together; BatchNorm takes its statistics from them, as the authors' does, before the first step too."""
        classifier = Functional(network, norm_weights(network))
        before = classifier(images, {}).softmax(-1)
        use_batch_statistics(classifier.copy)
        memory.rule = memory.rule or (Adam() if self.optimizer == "adam" else sgd)

        def loss(weights: Weights, step: int) -> Tensor:
            return prediction_entropy(classifier(images, weights))

        def predict(weights: Weights) -> Tensor:
            return classifier(images, weights).softmax(-1)

        trace = run_steps(before, predict, loss, classifier.weights(), self.steps, self.lr, memory)
        return trace.transpose(0, 1)
