"""Colour jitter and grayscale on planes (3, n, pixels): red, green and blue of n views, in [0, 1]."""

from __future__ import annotations

import torch
from torch import Tensor

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)
RED, GREEN, BLUE = 0.299, 0.587, 0.114  # ITU-R 601, Pillow's "L"


def luminance(planes: Tensor) -> Tensor:
    """Return the gray image (n, pixels) of colour planes (3, n, pixels)."""
    return (planes[0] * RED).add_(planes[1], alpha=GREEN).add_(planes[2], alpha=BLUE)


def hue_position(order: Tensor) -> Tensor:
    """Return how many of the three blends come before the hue shift, (n,)."""
    return (order == HUE).int().argmax(1)


def jitter(planes: Tensor, factors: Tensor, order: Tensor, position: list[int]) -> None:
    """Jitter the views in place, each in its own order.

    Views must be sorted by :func:`hue_position`; ``position[i]`` views have it below i. Then the hue shift is done for
    one run of views at a time and each of the other operations, which are all blends, for all views at once.
    """
    blends = order[order != HUE].view(-1, 3)
    for turn in range(4):
        run = slice(position[turn], position[turn + 1])
        shift_hue(planes[:, run], factors[run, HUE])
        if turn < 3:
            blend(planes, blends[:, turn], factors.gather(1, blends[:, turn, None]))


def blend(planes: Tensor, kind: Tensor, factor: Tensor) -> None:
    """Blend in place with black (brightness), the mean gray (contrast) or the gray image (saturation), and clamp.

    The mean gray is not rounded to an integer, as Pillow would.
    """
    gray = luminance(planes)
    level = gray.mean(1, keepdim=True) * ((1 - factor) * (kind == CONTRAST)[:, None])
    other = torch.addcmul(level, gray, (1 - factor) * (kind == SATURATION)[:, None])
    torch.addcmul(other, planes, factor, out=planes).clamp_(0, 1)


def shift_hue(planes: Tensor, turns: Tensor) -> None:
    """Shift the hue in place by ``turns`` (n,) of the colour circle, at the same value and saturation (HSV).

    With hue h in sixths of a turn, a channel is a trapezoid in h between the least and the greatest of the three:
    red is least around 3, green greatest around 2, blue greatest around 4.
    """
    if not planes.shape[1]:
        return
    red, green, blue = planes
    least, most = planes.amin(0), planes.amax(0)
    chroma = most - least
    hue = torch.where(
        blue == least,
        green - red,
        torch.where(red == least, torch.add(blue - green, chroma, alpha=2), torch.add(red - blue, chroma, alpha=4)),
    )
    hue.div_(chroma.clamp_min(1e-12)).add_(6 * turns[:, None] + 1)
    hue.sub_((hue / 6).floor_(), alpha=6)
    torch.addcmul(most - 2 * chroma, chroma, (hue - 3).abs_().clamp_(1, 2), out=planes[0])
    top = least + 2 * chroma
    torch.addcmul(top, chroma, (hue - 2).abs_().clamp_(1, 2), value=-1, out=planes[1])
    torch.addcmul(top, chroma, (hue - 4).abs_().clamp_(1, 2), value=-1, out=planes[2])
