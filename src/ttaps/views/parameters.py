"""What was drawn for each view: one row per view, so views can be sliced, joined and moved like a tensor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rows:
    """What was drawn for ``len(self)`` views. Every field is a tensor, or itself rows, with one row per view."""

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))

    def __getitem__(self, rows: slice | Tensor) -> Self:
        return self._map(lambda field: field[rows])

    def to(self, device: torch.device | str) -> Self:
        """Return the same rows on ``device``."""
        return self._map(lambda field: field.to(device))

    def _map(self, function: Callable[[Any], Any]) -> Self:
        return type(self)(*(function(getattr(self, field.name)) for field in fields(self)))


@dataclass(frozen=True)
class Parameters(Rows):
    """The parameters of views: crop, flip, color jitter, grayscale and blur."""

    box: Tensor
    """Crop in source pixels: top, left, height, width; integers, (n, 4)."""
    flip: Tensor
    """Mirror left to right; bool, (n,)."""
    jitter: Tensor
    """Change the colors by ``factors`` in ``order``; bool, (n,)."""
    factors: Tensor
    """Brightness, contrast and saturation factor, and hue shift in turns; float, (n, 4)."""
    order: Tensor
    """Columns of ``factors`` in the order in which they are applied; a permutation of 0..3 per row, (n, 4)."""
    grayscale: Tensor
    """Remove the colors; bool, (n,)."""
    sigma: Tensor
    """Standard deviation of the blur in pixels, 0 for none; float, (n,)."""

    @classmethod
    def identity(cls, n: int, size: int) -> Parameters:
        """Return parameters that leave ``n`` images of ``size`` pixels as they are."""
        off = torch.zeros(n, dtype=torch.bool)
        return cls(
            box=torch.tensor([0, 0, size, size]).repeat(n, 1),
            flip=off,
            jitter=off,
            factors=torch.tensor([1.0, 1.0, 1.0, 0.0]).repeat(n, 1),
            order=torch.arange(4).repeat(n, 1),
            grayscale=off,
            sigma=torch.zeros(n),
        )
