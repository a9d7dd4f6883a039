"""Gaussian blur with its own width for every view."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor


def gaussian_taps(sigma: Tensor, kernel: int) -> Tensor:
    """Return the weights (n, kernel) of normalised Gaussians sampled at the pixels."""
    offsets = torch.arange(kernel, device=sigma.device) - kernel // 2
    return (-0.5 * (offsets / sigma[:, None]) ** 2).softmax(1)


@lru_cache(maxsize=8)
def _placement(size: int, kernel: int) -> Tensor:
    """Return (kernel, size * size): where each tap of each output pixel falls, reflected at the border."""
    offsets = torch.arange(kernel)[:, None] - kernel // 2
    pixels = (torch.arange(size) + offsets).abs()
    pixels = (size - 1) - (size - 1 - pixels).abs()
    return torch.nn.functional.one_hot(pixels, size).flatten(1).float()


def blur(planes: Tensor, sigma: Tensor, kernel: int) -> Tensor:
    """Blur planes (3, n, size, size) along both axes, reflecting at the border without repeating the edge pixel."""
    size = planes.shape[-1]
    taps = gaussian_taps(sigma, kernel).to(planes.dtype)
    band = (taps @ _placement(size, kernel).to(planes)).view(-1, size, size)
    return torch.stack([torch.bmm(torch.bmm(band, plane), band.mT) for plane in planes])
