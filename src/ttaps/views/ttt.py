"""The views of TTT: a random crop of the image in a black frame, mirrored or not, rotated by quarters."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from ttaps.config import check_min, check_probability
from ttaps.views.parameters import Parameters
from ttaps.views.swav import make_views


@dataclass(frozen=True)
class ShiftViews:
    """Pad with black, crop to the old size anywhere, and flip: no change of scale or color."""

    padding: int = 4
    """Width of the black frame in pixels: how far an image can be shifted."""
    flip_p: float = 0.5
    """Probability of mirroring."""

    def __post_init__(self) -> None:
        check_min(self, padding=0)
        check_probability(self, "flip_p")

    def sample(self, n: int, size: int, generator: torch.Generator) -> Parameters:
        """Draw ``n`` views of square images of ``size`` pixels from a CPU generator; boxes are in the padded image."""
        corner = torch.randint(2 * self.padding + 1, (n, 2), generator=generator)
        flip = torch.rand(n, generator=generator, dtype=torch.float64) < self.flip_p
        return replace(Parameters.identity(n, size), box=torch.cat([corner, torch.full((n, 2), size)], 1), flip=flip)

    def apply(
        self, images: Tensor, parameters: Parameters, size: int | None = None, index: Tensor | None = None
    ) -> Tensor:
        """Make the views; see :meth:`SwavViews.apply`."""
        padded = F.pad(images, [self.padding] * 4)
        return make_views(padded, parameters, size or images.shape[-1], index, blur_kernel=1)


def quarter_turns(images: Tensor, turns: Tensor) -> Tensor:
    """Rotate each square image by its own number of quarters, anticlockwise."""
    all_four = torch.stack([images.rot90(quarters, (2, 3)) for quarters in range(4)])
    return all_four[turns, torch.arange(len(images), device=turns.device)]
