"""TTT (Sun et al., 2020): learn, from turned copies of the image, to tell how far they were turned; then predict the image itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ttaps.adaptation.engine import CarriedState, one_by_one, run_steps
from ttaps.adaptation.optimizers import Weights
from ttaps.config import check_min
from ttaps.model import Network, as_network
from ttaps.model.functional import Functional
from ttaps.rng import generator
from ttaps.views import ShiftViews, quarter_turns


@dataclass(frozen=True)
class Ttt:
    """The authors' settings on CIFAR-10-C ("slow"): plain gradient steps on the shared stages and the rotation head."""

    name: ClassVar[str] = "ttt"
    paper: ClassVar[str] = "Sun et al. 2020"
    adapts: ClassVar[str] = "stem, stages 1 and 2, rotation head"
    trained_by: ClassVar[tuple[str, ...]] = ("ttt",)

    steps: int = 10
    """Gradient steps per image, each with fresh views."""
    lr: float = 0.001
    """Step size."""
    num_views: int = 32
    """Views of the image per step, each turned at random."""
    confidence_threshold: float = 1.0
    """Leave an image alone when the rotation head gives "upright" at least this probability; 1 adapts to every image."""
    online: bool = False
    """Keep the weights from image to image: results depend on the order. The authors then take one step."""
    views: ShiftViews = field(default_factory=ShiftViews)
    """How a view is made, before it is turned."""

    def __post_init__(self) -> None:
        check_min(self, steps=0, lr=0, num_views=1, confidence_threshold=0)

    @property
    def protocol(self) -> str:
        """Say what an image's result depends on besides the image."""
        return "online" if self.online else "episodic"

    def missing_requirement(self, network: nn.Module) -> str | None:
        """Return what a network has not: a rotation head."""
        has = isinstance(network, Network) and "rotation" in network.heads
        return None if has else "a rotation head (train with objective ttt)"

    def adapt(
        self, network: nn.Module, images: Tensor, keys: Sequence[int], memory: CarriedState | None = None
    ) -> Tensor:
        """Return class probabilities before and after every step, shape (N, steps + 1, classes)."""
        return one_by_one(partial(self.adapt_one, as_network(network)), images, keys, memory, self.online)

    def adapt_one(self, network: Network, image: Tensor, key: int, memory: CarriedState) -> Tensor:
        """Step down the rotation loss; predict with the adapted stages and the rest of the network as it was."""
        shared, rest = network.split("backbone.stage3")
        turner = Functional(nn.Sequential(shared, network.heads["rotation"]))
        classifier = Functional(nn.Sequential(shared, rest, network.classifier))

        def loss(weights: Weights, step: int) -> Tensor:
            views, turns = self.draw(image, key, step)
            return F.cross_entropy(turner(views, weights), turns)

        def predict(weights: Weights) -> Tensor:
            both_have = {
                name: weight for name, weight in weights.items() if name.startswith("0.")
            }  # those of ``shared``
            return classifier(image, both_have)[0].softmax(-1)

        source = turner.weights()
        before = predict(source)
        if (
            self.confidence_threshold < 1
            and turner(image, memory.weights or source)[0].softmax(-1)[0] >= self.confidence_threshold
        ):
            after = predict(memory.weights or source)  # online, a sure image is still seen with the weights kept so far
            return torch.cat([before[None], after.expand(self.steps, -1)])
        return run_steps(before, predict, loss, source, self.steps, self.lr, memory)

    def draw(self, image: Tensor, key: int, step: int) -> tuple[Tensor, Tensor]:
        """Return the turned views of an image (1, 3, H, W) at a step, and by how many quarters each was turned."""
        draw = generator(key, "ttt", step)
        views = self.views.apply(image, self.views.sample(self.num_views, image.shape[-1], draw))
        turns = torch.randint(4, (self.num_views,), generator=draw).to(image.device)
        return quarter_turns(views, turns), turns
