"""TTT (Sun et al., 2020): learn to predict the rotation of rotated views of the image, then predict the image itself."""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ttaps.adaptation.engine import CarriedState, Weights
from ttaps.adaptation.method import GradientMethod
from ttaps.model import Network, as_network
from ttaps.model.functional import Functional
from ttaps.rng import generator
from ttaps.views import ShiftViews, quarter_turns


@dataclass(frozen=True)
class Ttt(GradientMethod):
    """The authors' settings on CIFAR-10-C ("slow"): plain gradient steps on the shared stages and the rotation head."""

    name = "ttt"
    paper = "Sun et al. 2020"
    adapts = "stem, stages 1 and 2, rotation head"

    steps: int = 10
    """Gradient steps per image, each with fresh views."""
    lr: float = 0.001
    """Step size."""
    num_views: int = 32
    """Views of the image per step, each rotated at random."""
    confidence_threshold: float = 1.0
    """Skip an image if the rotation head gives "upright" at least this probability; 1 adapts to every image."""
    online: bool = False
    """Keep the weights from image to image: results depend on the order. The authors then take one step."""
    views: ShiftViews = field(default_factory=ShiftViews)
    """How a view is made, before it is rotated."""

    def missing_requirement(self, network: nn.Module) -> str | None:
        """Return what a network lacks: a rotation head."""
        has = isinstance(network, Network) and "rotation" in network.heads
        return None if has else "a rotation head (train with objective ttt)"

    @torch.no_grad()
    def adapt_one(self, network: nn.Module, image: Tensor, key: int, state: CarriedState) -> Tensor:
        """Minimize the rotation loss; predict with the adapted stages and the unchanged rest of the network."""
        whole = as_network(network)
        rotation = Functional(whole.rotation_branch())
        classifier = Functional(nn.Sequential(*whole.split("backbone.stage3"), whole.classifier))

        def loss(weights: Weights, step: int) -> Tensor:
            views, turns = self.draw(image, key, step)
            return nn.functional.cross_entropy(rotation(views, weights), turns)

        def predict(weights: Weights) -> Tensor:
            stages = {name: weight for name, weight in weights.items() if name.startswith("0.")}  # that both have
            return classifier(image, stages)

        source = rotation.weights()
        start = state.weights or source
        if self.confidence_threshold < 1 and rotation(image, start)[0].softmax(-1)[0] >= self.confidence_threshold:
            logits = [predict(source), *[predict(start)] * self.steps]  # online, with the weights kept so far
            return torch.stack(logits, dim=1).softmax(-1)
        return self.run_steps(loss, predict, source, state)

    def draw(self, image: Tensor, key: int, step: int) -> tuple[Tensor, Tensor]:
        """Return the rotated views of an image (1, 3, H, W) at a step, and the quarter turns of each."""
        draw = generator(key, "ttt", step)
        views = self.views.apply(image, self.views.sample(self.num_views, image.shape[-1], draw))
        turns = torch.randint(4, (self.num_views,), generator=draw).to(image.device)
        return quarter_turns(views, turns), turns

    def draw_views(self, image: Tensor, key: int) -> Tensor:
        """Return the rotated views of the first step."""
        return self.draw(image, key, 0)[0]
