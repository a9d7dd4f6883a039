"""Gaussian blur with its own width for every view."""

from __future__ import annotations

import torch
from torch import Tensor


def blur(views: Tensor, sigma: Tensor, kernel: int) -> None:
    """Blur views (n, 3, size, size) in place, reflecting at the border without repeating the edge pixel.

    Down, then across. The two pixels at a distance are mixed in from the nearest pair to the farthest, each with its share
    of the weight so far.
    """
    distances = torch.arange(1, kernel // 2 + 1, device=sigma.device)
    weights = 2 * torch.exp(-0.5 * (distances / sigma[:, None]) ** 2)  # of a pair; the pixel itself has 1
    shares = (weights / (1 + weights.cumsum(1))).to(views.dtype)[..., None, None, None]
    for axis in (2, 3):
        pairs = [mean_of_pair(views, distance, axis) for distance in range(1, kernel // 2 + 1)]
        for pair, share in zip(pairs, shares.unbind(1), strict=True):
            views.lerp_(pair, share)


def mean_of_pair(views: Tensor, distance: int, axis: int) -> Tensor:
    """Return for every pixel the mean of the two at ``distance`` on both sides along ``axis``.

    All pixels as one line first, then those again whose pair the border reflects: faster than a padded copy.
    """
    mean, last = torch.empty_like(views), views.shape[axis] - 1
    line, step = views.view(-1), distance * views.stride(axis)
    torch.lerp(line[: -2 * step], line[2 * step :], 0.5, out=mean.view(-1)[step:-step])
    for place in (*range(distance), *range(last - distance + 1, last + 1)):
        before, after = abs(place - distance), last - abs(last - place - distance)
        torch.lerp(views.select(axis, before), views.select(axis, after), 0.5, out=mean.select(axis, place))
    return mean
