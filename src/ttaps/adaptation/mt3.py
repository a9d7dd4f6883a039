"""MT3 (Bartler et al., 2022): one step on the BYOL loss, for which the weights were meta-trained; then predict."""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ttaps import losses
from ttaps.adaptation.engine import CarriedState, Weights
from ttaps.adaptation.method import GradientMethod
from ttaps.model import Network, as_network
from ttaps.model.functional import frozen_copy
from ttaps.rng import generator
from ttaps.views import MT3_VIEWS, SwavViews


@dataclass(frozen=True)
class Mt3(GradientMethod):
    """The authors' settings: one plain gradient step on backbone, projector and predictor, as in the inner loop of training."""

    name = "mt3"
    paper = "Bartler et al. 2022 (AISTATS)"
    adapts = "backbone, projector, predictor"

    num_pairs: int = 32
    """Pairs of views of the image, the same in all steps."""
    views: SwavViews = field(default_factory=lambda: MT3_VIEWS)
    """How a view is made."""

    def missing_requirement(self, network: nn.Module) -> str | None:
        """Return what a network lacks: a predictor."""
        has = isinstance(network, Network) and "predictor" in network.heads
        return None if has else "a predictor (train with objective mt3)"

    @torch.no_grad()
    def adapt_one(self, network: nn.Module, image: Tensor, key: int, state: CarriedState) -> Tensor:
        """Step down the BYOL loss, then predict the image as it is."""
        whole = as_network(network)
        byol = frozen_copy(whole.byol())
        views = self.draw_views(image, key)

        def loss(weights: Weights, step: int) -> Tensor:
            z, predictions = functional_call(byol, weights, (views,))
            return losses.byol(predictions, z)

        def predict(weights: Weights) -> Tensor:
            return whole.classifier(functional_call(byol, weights, (image,))[0])

        return self.run_steps(loss, predict, dict(byol.named_parameters()), state)

    def draw_views(self, image: Tensor, key: int) -> Tensor:
        """Return the views of an image (1, 3, H, W): the first of every pair, then the second of every pair."""
        return self.views.apply(image, self.views.sample(2 * self.num_pairs, image.shape[-1], generator(key, "mt3")))
