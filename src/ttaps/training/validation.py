"""Accuracy of a network on labeled images."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ttaps.model import Network, eval_mode, to_float

CHUNK = 128


@torch.no_grad()
def accuracy(network: Network, images: Tensor, labels: Tensor, size: int | None = None) -> float:
    """Share of images classified right, at ``size`` pixels (their own unless given)."""
    device = next(network.parameters()).device
    right = 0
    with eval_mode(network):
        for chunk, truth in zip(images.split(CHUNK), labels.split(CHUNK), strict=True):
            pixels = to_float(chunk.to(device))
            if size not in (None, images.shape[-1]):
                pixels = F.interpolate(pixels, (size, size), mode="bilinear", antialias=True)
            right += int((network(pixels).argmax(-1) == truth.to(device)).sum())
    return right / max(1, len(images))
