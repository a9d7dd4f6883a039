"""BN (Schneider et al., 2020): the test image's own statistics, mixed with those of training. No gradient, no loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from ttaps.adaptation.engine import CarriedState, map_images
from ttaps.adaptation.source import Source
from ttaps.model.functional import BATCH_NORMS, frozen_copy, kinds_of_norm, use_batch_statistics


@dataclass(frozen=True)
class Bn(Source):
    """Each image by itself, n = 1: μ = (N μ_source + μ_image) / (N + 1), and σ² likewise, in every BatchNorm layer."""

    name = "bn"
    paper = "Schneider et al. 2020"
    adapts = "BatchNorm statistics"

    source_weight: float = 16.0
    """N, the number of images that the training statistics count as; 0 uses the image's alone."""

    def missing_requirement(self, network: nn.Module) -> str | None:
        """Return what a network lacks: BatchNorm layers with training statistics."""
        layers = [layer for layer in network.modules() if isinstance(layer, BATCH_NORMS)]
        if any(layer.running_mean is not None for layer in layers):
            return None
        return f"BatchNorm layers with training statistics (this network's norm layers: {kinds_of_norm(network)})"

    def adapt(
        self, network: nn.Module, images: Tensor, keys: Sequence[int], state: CarriedState | None = None
    ) -> Tensor:
        """Return class probabilities with the source's and with mixed statistics, shape (N, 2, classes)."""
        mixed = frozen_copy(network)
        use_batch_statistics(mixed, self.source_weight)
        before = super().adapt(network, images, keys)
        after = map_images(partial(self.adapt_one, mixed), images, keys)  # one at a time on any device: n = 1
        return torch.cat([before, after], dim=1)
