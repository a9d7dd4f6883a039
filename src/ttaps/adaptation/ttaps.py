"""TTAPS (Bartler et al., 2022): pull augmented copies of one image towards the prototypes, predict, forget. Algorithm 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ttaps import losses
from ttaps.adaptation.engine import Weights, descend, each_image, in_chunks
from ttaps.errors import UsageError
from ttaps.keys import generator
from ttaps.model import Cut, Network
from ttaps.views import SwavViews

CODES: dict[str, Callable[[Tensor, float], Tensor]] = {
    "soft": losses.test_codes,
    "sinkhorn": losses.sinkhorn_codes,
    "hard": lambda scores, epsilon: losses.hard_codes(scores),
}


@dataclass(frozen=True)
class Ttaps:
    """The paper's settings by default: plain gradient steps on the last stage, nothing shared between images."""

    name: ClassVar[str] = "ttaps"

    steps: int = 10
    """P, gradient steps per image."""
    lr: float = 0.1
    """α, step size."""
    copies: int = 32
    """B_T, copies of the image per step; each has two fresh views."""
    tau: float = 0.75
    """τ, temperature of the swapped prediction."""
    epsilon: float = 1.0
    """ε, smoothness of the codes."""
    scope: str = "stage3"
    """Weights that adapt: stage3, last_block, stage3+projector, norm, all, or names of parts."""
    codes: Literal["soft", "sinkhorn", "hard"] = "soft"
    """Codes: the paper's closed form, SwAV's equal partition, or the nearest prototype alone."""
    objective: Literal["swapped", "nearest"] = "swapped"
    """The paper's swapped prediction, or the cosine distance of each view to its nearest prototype."""
    directions: Literal["sum", "mean"] = "sum"
    """The two directions of the swapped prediction are summed (paper) or averaged (the authors' code)."""
    momentum: float = 0.0
    """Momentum within an image's steps; the authors' code has 0.9."""
    weight_decay: float = 0.0
    """L2 penalty; the authors' code has 1e-5."""
    views: SwavViews = field(default_factory=SwavViews)
    """The set of transformations 𝒯."""

    def __post_init__(self) -> None:
        for name, least in (("steps", 0), ("copies", 1), ("lr", 0), ("momentum", 0), ("weight_decay", 0)):
            if getattr(self, name) < least:
                raise UsageError(f"{name} must be at least {least}, not {getattr(self, name)}.")
        for name in ("tau", "epsilon"):
            if getattr(self, name) <= 0:
                raise UsageError(f"{name} must be positive, not {getattr(self, name)}.")

    def adapt(self, network: Network, images: Tensor, keys: Sequence[int]) -> Tensor:
        """Return class probabilities before and after every step, shape (N, steps + 1, classes).

        An image's row is a function of the network, the image and its key only. The network is not changed.
        """
        network.eval()
        return each_image(lambda i: self.adapt_one(network, images[i : i + 1], keys[i]), len(images), images.device)

    def adapt_one(self, network: Network, image: Tensor, key: int) -> Tensor:
        """Algorithm 1. Views do not depend on the weights, so they go through the frozen part all at once."""
        cut = Cut(network, self.scope)
        plain, views = cut.frozen(image), self._frozen_views(cut, image, key)

        def loss(weights: Weights, step: int) -> Tensor:
            return self.loss(network.scores(cut.adapted(views[step], weights)))

        @torch.no_grad()
        def predict(weights: Weights) -> Tensor:
            logits: Tensor = network.classifier(cut.adapted(plain, weights))
            return logits[0].softmax(-1)

        source = cut.weights()
        steps = descend(loss, source, self.steps, self.lr, self.momentum, self.weight_decay)
        return torch.stack([predict(weights) for weights in (source, *steps)])

    def _frozen_views(self, cut: Cut, image: Tensor, key: int) -> Tensor:
        """Return the frozen part's features of all views of all steps, shape (steps, 2 * copies, ...)."""
        views = self.draw(image, key)
        features = in_chunks(cut.frozen, views, 16) if len(views) else cut.frozen(image)[:0]
        return features.view(self.steps, 2 * self.copies, *features.shape[1:])

    def draw(self, image: Tensor, key: int) -> Tensor:
        """Return all views of an image (1, 3, H, W), in order of steps; of each step, first all s, then all t."""
        parameters = self.views.sample(self.steps * 2 * self.copies, image.shape[-1], generator(key, "ttaps"))
        return self.views.apply(image, parameters) if len(parameters) else image[:0]

    def loss(self, scores: Tensor) -> Tensor:
        """L_SwAV_test, eq. (3) with the codes of eq. (11), of scores (2 * copies, K)."""
        if self.objective == "nearest":
            return (1 - scores.amax(-1)).mean()
        scores_s, scores_t = scores.chunk(2)
        codes = CODES[self.codes]
        both = losses.swapped_prediction(
            scores_s, scores_t, codes(scores_s, self.epsilon), codes(scores_t, self.epsilon), self.tau
        )
        return both / 2 if self.directions == "mean" else both
