"""Test-time augmentation: the mean prediction over augmented views, without changing weights. A baseline for adapting to these views."""

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from ttaps.adaptation.engine import CarriedState
from ttaps.adaptation.method import Method
from ttaps.config import check_positive
from ttaps.rng import generator
from ttaps.views import SwavViews

Predict = Literal["image", "views", "both"]
ViewWeights = Literal["equal", "agreement"]


@dataclass(frozen=True)
class Augment(Method):
    """As many views as ``ttaps:tuned``; with the same ``views`` setting, exactly those it adapts to."""

    name = "augment"

    num_views: int = 16
    """Views of the image."""
    confidence_threshold: float = 1.0
    """Leave an image unchanged when the model gives its label at least this probability; 1 augments every image."""
    predict: Literal["views", "both"] = "views"
    """The mean over the views, or the mean of that and the image's own prediction."""
    view_weights: ViewWeights = "equal"
    """Weight views equally, or by the agreement of their predictions with the mean."""
    temperature: float = 1.0
    """Divide the logits of augmented predictions by this, which calibrates their confidence without changing labels."""
    views: SwavViews = field(default_factory=SwavViews)
    """How a view is made."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "temperature")

    @torch.no_grad()
    def adapt_one(self, network: nn.Module, image: Tensor, key: int, state: CarriedState) -> Tensor:
        """Predict the image, then the mean over its views, unless the first prediction is confident enough."""
        before = state.tell(network(image).softmax(-1))
        confident = self.confidence_threshold < 1 and before.max() >= self.confidence_threshold
        if confident:
            return torch.stack([before, before], dim=1)
        after = mean_over_views(network(self.draw_views(image, key)).softmax(-1), self.view_weights)
        after = (before + after) / 2 if self.predict == "both" else after
        after = state.tell(tempered(after, self.temperature))
        return torch.stack([before, after], dim=1)

    def draw_views(self, image: Tensor, key: int) -> Tensor:
        """Return the views of one image."""
        return self.views.apply(image, self.views.sample(self.num_views, image.shape[-1], generator(key, "ttaps")))


def mean_over_views(probabilities: Tensor, weights: ViewWeights = "equal") -> Tensor:
    """Return the mean (1, classes) of the views' probabilities (V, classes); ``agreement`` weights a view by p_v · mean p."""
    mean = probabilities.mean(0, keepdim=True)
    if weights == "equal":
        return mean
    shares = probabilities @ mean[0]
    return (shares / shares.sum()) @ probabilities[None]


def combine(probabilities: Tensor, predict: Predict, weights: ViewWeights = "equal") -> Tensor:
    """Return the prediction (1, classes) of the image, of the views, or of both, where the image is row 0."""
    if predict == "image":
        return probabilities
    if predict == "views":
        return mean_over_views(probabilities, weights)
    return (probabilities[:1] + mean_over_views(probabilities[1:], weights)) / 2


def tempered(probabilities: Tensor, temperature: float) -> Tensor:
    """Return softmax(ln p / T): the order of classes does not change; T above 1 lowers confidence."""
    return probabilities if temperature == 1 else (probabilities.log() / temperature).softmax(-1)
