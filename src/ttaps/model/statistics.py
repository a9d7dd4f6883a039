"""BatchNorm with the statistics of the test images themselves, mixed with those of training."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from ttaps.model.functional import BATCH_NORMS


class BatchStatistics(nn.Module):
    """A BatchNorm layer whose mean and variance are (N · source + n · test) / (N + n) for n images, with N = ``prior``.

    Scale and shift keep their names. The variance is the mean square deviation: what BatchNorm divides by, and defined for one pixel.
    """

    def __init__(self, layer: nn.BatchNorm2d, prior: float) -> None:
        super().__init__()
        self.prior, self.eps, self.affine = prior, layer.eps, layer.affine
        self.weight, self.bias = layer.weight, layer.bias
        self.source_mean, self.source_variance = layer.running_mean, layer.running_var

    def forward(self, x: Tensor) -> Tensor:
        """Return γ (x - μ) / √(σ² + ε) + β for all images of a batch, with statistics of that batch."""
        values = x.transpose(0, 1).flatten(1)  # (channels, images and pixels)
        share = len(x) / (self.prior + len(x))
        mean = mixed(self.source_mean, values.mean(1), share)
        variance = mixed(self.source_variance, values.var(1, correction=0), share)
        shape = (-1, *(1 for _ in x.shape[2:]))
        normal = (x - mean.view(shape)) * (variance + self.eps).rsqrt().view(shape)
        return normal * self.weight.view(shape) + self.bias.view(shape) if self.affine else normal


def mixed(source: Tensor | None, test: Tensor, share: float) -> Tensor:
    """Return statistics of which ``share`` are the test images'; all, where a layer has none of its training."""
    return test if source is None else torch.lerp(source, test, share)


def use_batch_statistics(network: nn.Module, prior: float = 0.0) -> None:
    """Replace every BatchNorm layer of a network, in place: for a copy of it."""
    for name, layer in list(network.named_modules()):
        if isinstance(layer, BATCH_NORMS):
            network.set_submodule(name, BatchStatistics(cast(nn.BatchNorm2d, layer), prior))
