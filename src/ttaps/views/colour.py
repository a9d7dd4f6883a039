"""Colour jitter and grayscale on planes (3, n, pixels): red, green and blue of n views, in [0, 1]."""

from __future__ import annotations

import torch
from torch import Tensor

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)
RED, GREEN, BLUE = 0.299, 0.587, 0.114  # ITU-R 601, Pillow's "L"


def luminance(planes: Tensor) -> Tensor:
    """Return the gray image (n, pixels) of colour planes (3, n, pixels)."""
    return (planes[0] * RED).add_(planes[1], alpha=GREEN).add_(planes[2], alpha=BLUE)


def hue_turn(order: Tensor) -> Tensor:
    """Return how many of the three other operations come before the hue shift, (n,)."""
    return (order == HUE).int().argmax(1)


def jitter(planes: Tensor, factors: Tensor, order: Tensor, starts: list[int]) -> None:
    """Jitter the views in place, each in its own order.

    Views are sorted by :func:`hue_turn`; those of turn t begin at ``starts[t]``. So a hue shift takes one run of views,
    and the other operations, which are all blends, take all views at once: nothing is gathered or copied.
    """
    blends = order[order != HUE].view(-1, 3)
    for turn in range(4):
        run = slice(starts[turn], starts[turn + 1])
        if run.start < run.stop:
            shift_hue(planes[:, run], factors[run, HUE])
        if turn < 3:
            kind = blends[:, turn, None]
            blend(planes, kind, factors.gather(1, kind))


def blend(planes: Tensor, kind: Tensor, factor: Tensor) -> None:
    """Blend in place with black (brightness), the mean gray (contrast) or the gray image (saturation), and clamp.

    The mean gray is not rounded to an integer, as Pillow would.
    """
    gray, rest = luminance(planes), 1 - factor
    level = gray.mean(1, keepdim=True) * (rest * (kind == CONTRAST))
    other = gray.mul_(rest * (kind == SATURATION)).add_(level)
    torch.addcmul(other, planes, factor, out=planes).clamp_(0, 1)


def shift_hue(planes: Tensor, turns: Tensor) -> None:
    """Shift the hue in place by ``turns`` (n,) of the colour circle, at the same value and saturation (HSV).

    The distance of a hue from red, in sixths of a turn, is 1 + (green + blue - red - least) / chroma; it is on green's
    side where green > blue. A channel is a trapezoid in the hue: red is greatest around 0, green least around -1/6
    and blue least around 1/6. No masks: torch.where takes four times as long as a subtraction.
    """
    red, green, blue = planes
    least, most = planes.amin(0), planes.amax(0)
    chroma = most - least
    hue = (green + blue).sub_(red).sub_(least).add_(chroma).copysign_(green - blue)
    hue.div_((6 * chroma).add_(1e-30)).add_(turns[:, None])  # 0 / 1e-30: gray has no hue
    hue.sub_(hue.round())
    top, bottom = least.add_(chroma, alpha=2), most.sub_(chroma, alpha=2)
    torch.addcmul(top, chroma, hue.abs().clamp_(1 / 6, 1 / 3), value=-6, out=planes[0])
    torch.addcmul(bottom, chroma, (hue + 1 / 6).abs_().clamp_(1 / 6, 1 / 3), value=6, out=planes[1])
    torch.addcmul(bottom, chroma, hue.sub_(1 / 6).abs_().clamp_(1 / 6, 1 / 3), value=6, out=planes[2])
