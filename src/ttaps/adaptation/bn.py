"""BN (Schneider et al., 2020): mix the statistics of the test image, or batch, with the training statistics. No gradient, no loss."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ttaps.adaptation.engine import CarriedState
from ttaps.adaptation.method import Method
from ttaps.model.functional import BATCH_NORMS, frozen_copy, kinds_of_norm, source_images, use_batch_statistics


@dataclass(frozen=True)
class Bn(Method):
    """μ = (N μ_source + n μ_test) / (N + n), and σ² likewise, in every BatchNorm layer, for n = ``batch_size`` images together."""

    name = "bn"
    paper = "Schneider et al. 2020"
    adapts = "BatchNorm statistics"

    source_weight: float = 16.0
    """N for one image: the number of images that the training statistics count as. Each further image of a batch lowers it by one,
    so large batches use only their own statistics. 0: always only their own."""
    batch_size: int = 1
    """Images whose statistics are computed together; with more than one, an image's result depends on the others in its batch."""

    def missing_requirement(self, network: nn.Module) -> str | None:
        """Return what a network lacks: BatchNorm layers with training statistics."""
        if any(isinstance(layer, BATCH_NORMS) and layer.running_mean is not None for layer in network.modules()):
            return None
        return f"BatchNorm layers with training statistics (this network's norm layers: {kinds_of_norm(network)})"

    @torch.no_grad()
    def adapt_one(self, network: nn.Module, image: Tensor, key: int, state: CarriedState) -> Tensor:
        """Predict with the training statistics, then with mixed ones."""
        mixed = frozen_copy(network)
        use_batch_statistics(mixed, source_images(self.source_weight, len(image)))
        return torch.stack([state.tell(net(image).softmax(-1)) for net in (network, mixed)], dim=1)
