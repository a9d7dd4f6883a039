"""A classifier called with weights from outside, and its norm layers: finding them, and giving them other statistics.

Any ``nn.Module`` will do."""

from collections.abc import Collection, Mapping
from copy import deepcopy
from typing import TypeVar, cast

from torch import Tensor, nn
from torch.func import functional_call

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
NORMS = (*BATCH_NORMS, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
M = TypeVar("M", bound=nn.Module)


def frozen_copy(network: M) -> M:
    """Return a copy in evaluation mode whose weights want no gradients; the network itself is not touched.
    Never in channels_last: there torch 2.13 crashes in the backward pass of a GroupNorm whose input wants no gradient."""
    copy = deepcopy(network).eval().requires_grad_(False)
    for weight in copy.parameters():
        weight.data = weight.data.contiguous()
    return copy


class Functional:
    """A classifier that takes some of its weights as an argument: ``functional(images, weights) -> logits``."""

    def __init__(self, network: nn.Module, names: Collection[str] | None = None) -> None:
        # A copy: functional_call swaps weights in and out of the module it calls, and threads would swap each other's.
        self.copy = frozen_copy(network)
        self.names = names

    def weights(self) -> dict[str, Tensor]:
        """Return the source values of the weights that may change; not copies, so never write to them."""
        weights = ((name, weight) for name, weight in self.copy.named_parameters() if weight.is_floating_point())
        return {name: weight.detach() for name, weight in weights if self.names is None or name in self.names}

    def __call__(self, images: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
        """Return logits of images, with ``weights`` in place of the classifier's own."""
        return functional_call(self.copy, dict(weights), (images.contiguous(),))


def norm_layers(network: nn.Module) -> dict[str, nn.Module]:
    """Return the normalization layers of a network by name."""
    return {name: layer for name, layer in network.named_modules() if isinstance(layer, NORMS)}


def norm_weights(network: nn.Module) -> list[str]:
    """Return the names of scale and shift of every normalization layer that has them."""
    return [name for layer, norm in norm_layers(network).items() for name, _ in norm.named_parameters(prefix=layer)]


def kinds_of_norm(network: nn.Module) -> str:
    """Say which normalization layers a network has, for messages."""
    kinds = dict.fromkeys(type(layer).__name__ for layer in norm_layers(network).values())
    return ", ".join(kinds) or "none"


class BatchStatistics(nn.Module):
    """A BatchNorm layer whose mean and variance are (N · source + n · test) / (N + n) for n images, with N = ``source_weight``.
    Scale and shift keep their names. The variance is the mean square deviation: what BatchNorm divides by, and defined for one pixel."""

    def __init__(self, layer: nn.BatchNorm2d, source_weight: float) -> None:
        super().__init__()
        self.source_weight, self.eps, self.affine = source_weight, layer.eps, layer.affine
        self.weight, self.bias = layer.weight, layer.bias
        self.source_mean, self.source_variance = layer.running_mean, layer.running_var

    def forward(self, x: Tensor) -> Tensor:
        """Return γ (x - μ) / √(σ² + ε) + β for all images of a batch, with statistics of that batch."""
        values = x.transpose(0, 1).flatten(1)  # (channels, images and pixels)
        mean, variance = values.mean(1), values.var(1, correction=0)
        if self.source_mean is not None and self.source_variance is not None:  # a layer may have none of its training
            share = len(x) / (self.source_weight + len(x))
            mean, variance = self.source_mean.lerp(mean, share), self.source_variance.lerp(variance, share)
        shape = (-1, *(1 for _ in x.shape[2:]))
        normal = (x - mean.view(shape)) * (variance + self.eps).rsqrt().view(shape)
        return normal * self.weight.view(shape) + self.bias.view(shape) if self.affine else normal


def use_batch_statistics(network: nn.Module, source_weight: float = 0.0) -> None:
    """Replace every BatchNorm layer of a network, in place: for a copy of it."""
    for name, layer in list(network.named_modules()):
        if isinstance(layer, BATCH_NORMS):
            network.set_submodule(name, BatchStatistics(cast(nn.BatchNorm2d, layer), source_weight))


def source_images(source_weight: float, images: int) -> float:
    """Return N for a batch: ``source_weight`` beside one image, and one less for each further image, until the batch is by itself."""
    return max(0.0, source_weight + 1 - images)
