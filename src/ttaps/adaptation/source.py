"""Source: the trained model, without adaptation."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ttaps.adaptation.engine import CarriedState
from ttaps.adaptation.method import Method


@dataclass(frozen=True)
class Source(Method):
    """No adaptation."""

    name = "source"

    @torch.no_grad()
    def adapt_one(self, network: nn.Module, image: Tensor, key: int, state: CarriedState) -> Tensor:
        """Predict the image. One at a time on a CPU: the last bit depends on the size of a batch."""
        return state.tell(network(image).softmax(-1))[:, None]

    def adapt_batched(self, network: nn.Module, images: Tensor, keys: Sequence[int]) -> Tensor:
        """Predict all images at once."""
        return self.adapt_one(network, images, 0, CarriedState())
