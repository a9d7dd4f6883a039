"""Source: the model as it was trained, with no adaptation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ttaps.model import Network


@dataclass(frozen=True)
class Source:
    """No adaptation."""

    name: ClassVar[str] = "source"

    @torch.no_grad()
    def adapt(self, network: Network, images: Tensor, keys: Sequence[int]) -> Tensor:
        """Return class probabilities, shape (N, 1, classes)."""
        logits: Tensor = network.eval()(images)
        return logits.softmax(-1)[:, None]
