"""Define a new method in one class: the mean prediction over an image and its mirror image. python examples/new_method.py"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

import ttaps
from ttaps.adaptation import METHODS, Method
from ttaps.adaptation.engine import CarriedState


@dataclass(frozen=True)
class Mirror(Method):
    """Average over the image and its mirror image."""

    name = "mirror"

    weight: float = 0.5
    """Share of the mirror image."""

    @torch.no_grad()
    def adapt_one(self, network: nn.Module, image: Tensor, key: int, state: CarriedState) -> Tensor:
        """Return the probabilities before and after."""
        before, mirrored = network(torch.cat([image, image.flip(-1)])).softmax(-1).split(1)
        return torch.stack([before, before.lerp(mirrored, self.weight)], dim=1)


METHODS["mirror"] = Mirror  # now it works like any other: mirror[weight=0.3]
methods = ["source", "mirror", "mirror[weight=0.3]"]
print(ttaps.evaluate("cifar10", "sample", methods, corruptions="jpeg_compression", images_per_corruption=20))
