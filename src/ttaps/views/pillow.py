"""Pillow's ``ImageOps`` and affine transforms on batches of 8-bit images, to the last bit: each image with a parameter of its own."""

from __future__ import annotations

import math

import torch
from torch import Tensor

LEVELS = torch.arange(256)


def look_up(pixels: Tensor, tables: Tensor) -> Tensor:
    """Replace every value of uint8 images (n, 3, H, W) by its entry in tables (n, 3 or 1, 256)."""
    values = pixels.flatten(2).long()
    return tables.expand(-1, 3, -1).gather(2, values).to(torch.uint8).view_as(pixels)


def autocontrast_tables(pixels: Tensor) -> Tensor:
    """Stretch each channel to 0..255: its least value becomes 0, its greatest 255."""
    low, high = (end(pixels.flatten(2), dim=2, keepdim=True).double() for end in (torch.amin, torch.amax))
    scale = torch.full_like(low, 255) / (high - low)  # a number over a tensor would be its reciprocal, rounded twice
    stretched = (LEVELS * scale - low * scale).clamp(0, 255).trunc()
    return torch.where(high > low, stretched, LEVELS.double()).long()


def equalize_tables(pixels: Tensor) -> Tensor:
    """Make the histogram of each channel flat, as far as whole levels can."""
    values = pixels.flatten(2).long()
    counts = torch.zeros(*values.shape[:2], 256, dtype=torch.long).scatter_add_(2, values, torch.ones_like(values))
    last = counts.gather(2, values.amax(2, keepdim=True))
    step = (values.shape[2] - last) // 255
    below = counts.cumsum(2) - counts
    flat = ((step // 2 + below) // step.clamp_min(1)).clamp_max(255)
    return torch.where(step > 0, flat, LEVELS)


def posterize_tables(bits: Tensor) -> Tensor:
    """Keep the highest ``bits`` (n,) bits of every value."""
    step = 2 ** (8 - bits.long())[:, None, None]
    return LEVELS // step * step


def solarize_tables(threshold: Tensor) -> Tensor:
    """Turn values from ``threshold`` (n,) on into their negatives."""
    return torch.where(threshold[:, None, None] > LEVELS, LEVELS, 255 - LEVELS)


def rotation(degrees: Tensor, size: int) -> Tensor:
    """Return the affine matrices (n, 2, 3) that turn square images counterclockwise about their center."""
    angle = -degrees.double() * (math.pi / 180)
    cosine, sine, center = angle.cos(), angle.sin(), size / 2
    right = center - center * (cosine + sine)
    down = center - center * (cosine - sine)
    return torch.stack([cosine, sine, right, -sine, cosine, down], dim=1).view(-1, 2, 3)


def affine(pixels: Tensor, matrices: Tensor, fill: tuple[int, int, int]) -> Tensor:
    """Take each pixel of uint8 images (n, 3, H, H) from where ``matrices`` (n, 2, 3) map it; bilinear, ``fill`` from outside.

    Pixels' centres are at halves; a place within half a pixel of the border has the border's value. Fractions are cut off.
    """
    n, size = len(pixels), pixels.shape[-1]
    centres = torch.arange(size, dtype=torch.float64) + 0.5
    x, y = centres.repeat(size), centres.repeat_interleave(size)
    by_x, by_y, shift = matrices.double()[..., None].unbind(2)  # (n, 2, 1) each
    places = by_x * x + by_y * y + shift  # (n, 2, pixels): x, y; not a matrix product, whose sums may round otherwise
    inside = ((places >= 0) & (places < size)).all(1)
    corner = (places - 0.5).floor()
    part = (places - 0.5 - corner)[:, :, None]
    (left, top), (right, bottom) = ((corner.long() + step).clamp(0, size - 1).unbind(1) for step in (0, 1))
    flat = pixels.flatten(2).double()

    def at(y: Tensor, x: Tensor) -> Tensor:
        return flat.gather(2, (y * size + x)[:, None].expand(-1, 3, -1))

    upper = between(at(top, left), at(top, right), part[:, 0])
    lower = between(at(bottom, left), at(bottom, right), part[:, 0])
    outside = torch.tensor(fill, dtype=torch.float64)[:, None]
    mixed = torch.where(inside[:, None], between(upper, lower, part[:, 1]), outside)
    return mixed.to(torch.uint8).view(n, 3, size, size)


def between(a: Tensor, b: Tensor, share: Tensor) -> Tensor:
    """Return a + (b - a) · share as Pillow computes it; torch.lerp takes another way from one half on, and differs in the last bit."""
    return a + (b - a) * share
