"""The views of MT3: mild SimCLR views of each image, and a change shared by all images of a task."""

from __future__ import annotations

import torch
from torch import Tensor

from ttaps.views.blur import blur
from ttaps.views.swav import SwavViews

MT3_VIEWS = SwavViews(scale=(0.39, 0.94), ratio=(1.0, 1.0), jitter_strength=0.2, blur_p=0.0)
"""Square crops of 20 to 31 of 32 pixels, color jitter at a fifth of the usual strength."""


def shift_task(images: Tensor, generator: torch.Generator) -> Tensor:
    """Change the images (n, 3, H, W) of a task all alike, so that a task is like a test image: something new to adapt to.

    Upside down (1/2), mirrored (1/2), blurred (1/5, σ = 1), brighter or darker by up to 0.2, with noise of deviation up to 0.02.
    """
    upside_down, mirrored, blurred, brightness, noise = torch.rand(5, generator=generator).tolist()
    flipped = [axis for axis, chance in ((-2, upside_down), (-1, mirrored)) if chance < 0.5]
    images = images.flip(flipped)  # a copy
    if blurred < 0.2:
        blur(images, torch.ones(len(images), device=images.device), 3)
    grain = torch.randn(images.shape, generator=generator).to(images)
    return (images + 0.4 * (brightness - 0.5) + 0.02 * noise * grain).clamp(0, 1)
