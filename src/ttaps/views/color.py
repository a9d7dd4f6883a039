"""Color jitter and grayscale on planes (n, 3, pixels): red, green and blue of n views, in [0, 1]."""

from __future__ import annotations

import torch
from torch import Tensor

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)
LUMA = torch.tensor([0.299, 0.587, 0.114])  # of red, green and blue: ITU-R 601, Pillow's "L"
RUN = 128  # views whose hue is shifted at a time: 0.7 of the time that 500 take, which need seven times 2 MB


def luminance(planes: Tensor) -> Tensor:
    """Return the gray images (n, 1, pixels) of color planes (n, 3, pixels)."""
    return torch.bmm(LUMA.to(planes).expand(len(planes), 1, 3), planes)


def jitter(planes: Tensor, factors: Tensor, order: Tensor, starts: list[int]) -> None:
    """Jitter the views in place, each in its own order.

    Views are sorted by kind, and kind k begins at ``starts[k]``: kinds 0 and 9 are left as they are, and kinds k and 9 - k
    shift their hue at place k - 1. So all hues are shifted together, and at every place those that blend before that, or
    after it, are runs of views: nothing is gathered or copied.
    """
    factor = factors.gather(1, order)
    others = torch.stack([order == SATURATION, order == CONTRAST]) * (1 - factor)
    # of a view, its gray image and its mean gray, (3, n, 4, 1, 1)
    shares = torch.cat([factor[None], others])[..., None, None]

    def blend_run(start: int, stop: int, place: int) -> None:
        if start < stop:
            blend(planes[start:stop], *shares[:, start:stop, place])

    for place in range(3):
        blend_run(starts[place + 2], starts[8 - place], place)
    for first in range(starts[1], starts[9], RUN):
        run = slice(first, min(first + RUN, starts[9]))
        shift_hue(planes[run], factors[run, HUE])
    for place in range(1, 4):
        blend_run(starts[1], starts[place + 1], place)
        blend_run(starts[9 - place], starts[9], place)


def blend(planes: Tensor, own: Tensor, gray: Tensor, mean: Tensor) -> None:
    """Blend in place with black (brightness), the mean gray (contrast) or the gray image (saturation), and clamp.

    The shares of the three are (n, 1, 1). The mean gray is not rounded to an integer, as Pillow would.
    """
    grays = luminance(planes)
    level = grays.mean(2, keepdim=True) * mean
    other = grays.mul_(gray).add_(level)
    torch.addcmul(other, planes, own, out=planes).clamp_(0, 1)


def shift_hue(planes: Tensor, turns: Tensor) -> None:
    """Shift the hue in place by ``turns`` (n,) of the color circle, at the same value and saturation (HSV).

    The distance of a hue from red, in sixths of a turn, is 1 + (green + blue - red - least) / chroma; it is on green's
    side where green > blue. A channel is a trapezoid in the hue: red is greatest around 0, green least around -1/6
    and blue least around 1/6. No masks: torch.where takes four times as long as a subtraction.
    """
    red, green, blue = planes.unbind(1)
    least, most = planes.amin(1), planes.amax(1)
    chroma = most - least
    hue = (green + blue).sub_(red).sub_(least).add_(chroma).copysign_(green - blue)
    hue.div_((6 * chroma).add_(1e-30)).add_(turns[:, None])  # 0 / 1e-30: gray has no hue
    hue.sub_(hue.round())
    top, bottom = least.add_(chroma, alpha=2), most.sub_(chroma, alpha=2)
    torch.addcmul(top, chroma, hue.abs().clamp_(1 / 6, 1 / 3), value=-6, out=red)
    torch.addcmul(bottom, chroma, (hue + 1 / 6).abs_().clamp_(1 / 6, 1 / 3), value=6, out=green)
    torch.addcmul(bottom, chroma, hue.sub_(1 / 6).abs_().clamp_(1 / 6, 1 / 3), value=6, out=blue)
