"""MEMO (Zhang et al., 2021): minimize the entropy of the mean prediction over augmented views, then predict the image itself."""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ttaps.adaptation.engine import CarriedState, Weights
from ttaps.adaptation.method import GradientMethod
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

    lr: float = 0.005
    """Step size."""
    num_views: int = 32
    """Views of the image per step, fresh for each step."""
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

        return self.run_steps(loss, lambda weights: classifier(image, weights), classifier.weights(), state)

    def draw_views(self, image: Tensor, key: int, step: int = 0) -> Tensor:
        """Return the views of an image (1, 3, H, W) at a step."""
        return self.views.apply(image, self.views.sample(self.num_views, image.shape[-1], generator(key, "memo", step)))
