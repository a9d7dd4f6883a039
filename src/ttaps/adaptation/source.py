"""Source: the model as it was trained, with no adaptation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ttaps.adaptation.engine import each_image
from ttaps.model import eval_mode


@dataclass(frozen=True)
class Source:
    """No adaptation."""

    name: ClassVar[str] = "source"
    paper: ClassVar[str] = ""
    adapts: ClassVar[str] = "nothing"
    trained_by: ClassVar[tuple[str, ...]] = ()

    def missing_requirement(self, network: nn.Module) -> str | None:
        """Return None: any classifier will do."""
        return None

    def adapt(self, network: nn.Module, images: Tensor, keys: Sequence[int]) -> Tensor:
        """Return class probabilities, shape (N, 1, classes)."""

        @torch.no_grad()
        def predict(some: Tensor) -> Tensor:
            logits: Tensor = network(some)
            return logits.softmax(-1)

        with eval_mode(network):
            if images.device.type != "cpu":
                return predict(images)[:, None]
            return each_image(
                lambda i: predict(images[i : i + 1]), len(images)
            )  # one by one: the last bit depends on the batch
