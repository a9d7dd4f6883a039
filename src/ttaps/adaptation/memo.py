"""MEMO (Zhang et al., 2021): agree on one class, surely, over augmented views of the image; then predict the image itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from torch import Tensor, nn

from ttaps.adaptation.engine import CarriedState, one_by_one, run_steps
from ttaps.adaptation.optimizers import Weights
from ttaps.config import check_min
from ttaps.losses import marginal_entropy
from ttaps.model.functional import Functional
from ttaps.rng import generator
from ttaps.views.augmix import AugmixViews


@dataclass(frozen=True)
class Memo:
    """The authors' settings on CIFAR-10: one plain gradient step on all weights."""

    name: ClassVar[str] = "memo"
    paper: ClassVar[str] = "Zhang et al. 2021"
    adapts: ClassVar[str] = "all weights"
    trained_by: ClassVar[tuple[str, ...]] = ()

    steps: int = 1
    """Gradient steps per image, each with fresh views."""
    lr: float = 0.005
    """Step size."""
    num_views: int = 32
    """Views of the image per step."""
    online: bool = False
    """Keep the weights from image to image: results depend on the order."""
    views: AugmixViews = field(default_factory=AugmixViews)
    """How a view is made."""

    def __post_init__(self) -> None:
        check_min(self, steps=0, lr=0, num_views=1)

    @property
    def protocol(self) -> str:
        """Say what an image's result depends on besides the image."""
        return "online" if self.online else "episodic"

    def missing_requirement(self, network: nn.Module) -> str | None:
        """Return None, unless there is nothing to adapt."""
        return None if any(True for _ in network.parameters()) else "weights"

    def adapt(
        self, network: nn.Module, images: Tensor, keys: Sequence[int], memory: CarriedState | None = None
    ) -> Tensor:
        """Return class probabilities before and after every step, shape (N, steps + 1, classes)."""
        return one_by_one(partial(self.adapt_one, network), images, keys, memory, self.online)

    def adapt_one(self, network: nn.Module, image: Tensor, key: int, memory: CarriedState) -> Tensor:
        """Minimize the marginal entropy over the views, then predict the image as it is."""
        classifier = Functional(network)

        def loss(weights: Weights, step: int) -> Tensor:
            return marginal_entropy(classifier(self.draw(image, key, step), weights))

        def predict(weights: Weights) -> Tensor:
            return classifier(image, weights)[0].softmax(-1)

        source = classifier.weights()
        return run_steps(predict(source), predict, loss, source, self.steps, self.lr, memory)

    def draw(self, image: Tensor, key: int, step: int) -> Tensor:
        """Return the views of an image (1, 3, H, W) at a step."""
        drawn = self.views.sample(self.num_views, image.shape[-1], generator(key, "memo", step))
        return self.views.apply(image, drawn)
