"""Random resized crop and mirror image, as two small matrix products per view."""

from __future__ import annotations

import math

import torch
from torch import Tensor

TRIES = 10  # torchvision's RandomResizedCrop gives up after ten boxes that do not fit


def sample_boxes(draws: Tensor, size: int, scale: tuple[float, float], ratio: tuple[float, float]) -> Tensor:
    """Turn uniform draws (n, 2 * TRIES + 2) into boxes (top, left, height, width) inside a square of ``size`` pixels.

    The area is uniform in ``scale``, the aspect ratio log-uniform in ``ratio``; the first of ten tries that fits is
    taken, else the largest centred box whose ratio is allowed.
    """
    areas, ratios, corner = draws.split_with_sizes([TRIES, TRIES, 2], dim=1)
    areas = size**2 * torch.lerp(*_ends(areas, scale), areas)
    ratios = torch.lerp(*_ends(ratios, (math.log(ratio[0]), math.log(ratio[1]))), ratios).exp()
    sides = torch.stack([(areas / ratios).sqrt().round(), (areas * ratios).sqrt().round()], dim=2)  # (n, TRIES, 2)
    fits = ((sides > 0) & (sides <= size)).all(2)
    first = fits.to(torch.uint8).argmax(1)
    sides = torch.where(fits.any(1, keepdim=True), sides[torch.arange(len(sides)), first], _fallback(size, ratio))
    room = size - sides
    start = torch.minimum((corner * (room + 1)).floor(), room)  # the minimum: a draw of 1 - 2^-53 rounds up
    start = torch.where(fits.any(1, keepdim=True), start, (room / 2).floor())
    return torch.cat([start, sides], dim=1).long()


def _ends(like: Tensor, span: tuple[float, float]) -> tuple[Tensor, Tensor]:
    return torch.full_like(like, span[0]), torch.full_like(like, span[1])


def _fallback(size: int, ratio: tuple[float, float]) -> Tensor:
    """Height and width of the largest box in a square whose width / height lies in ``ratio``."""
    height, width = size / max(1.0, ratio[0]), size * min(1.0, ratio[1])
    return torch.tensor([round(height), round(width)], dtype=torch.float64)


def resize_matrices(start: Tensor, length: Tensor, mirror: Tensor, source: int, size: int) -> Tensor:
    """Return (..., size, source) matrices that resize ``length`` of ``source`` pixels from ``start`` on to ``size``.

    Bilinear; when reducing, the triangle is widened by the scale, which is the antialiasing of Pillow. Pixels outside
    the box have no weight: the crop comes first, as in torchvision.
    """
    start, length, mirror = (tensor[..., None].float() for tensor in (start, length, mirror))
    outputs = (torch.arange(size, device=start.device) + 0.5) / size
    centre = start + (mirror - outputs).abs() * length - 0.5
    pixels = torch.arange(source, device=start.device, dtype=torch.float32)
    if size >= source:  # nothing is ever reduced: two weights that sum to one
        centre = torch.minimum(torch.maximum(centre, start), start + length - 1)
        return (centre[..., None] - pixels).abs_().neg_().add_(1).clamp_min_(0)
    widening = (length / size).clamp_min(1)[..., None]
    weights = ((centre[..., None] - pixels).abs_() / widening).neg_().add_(1).clamp_min_(0)
    weights *= ((pixels >= start) & (pixels < start + length))[..., None, :]
    return weights / weights.sum(-1, keepdim=True)


def crop_into(planes: Tensor, rows: Tensor, box: Tensor, flip: Tensor) -> None:
    """Crop, resize and mirror square images, given as rows (n or 1, H, 3, H), into planes (3, n, size, size)."""
    source, size = rows.shape[1], planes.shape[-1]
    mirror = torch.stack([torch.zeros_like(flip), flip])
    down, across = resize_matrices(box[:, :2].T, box[:, 2:].T, mirror, source, size).to(rows.dtype)  # (n, size, H)
    narrow = torch.matmul(down, rows.flatten(2)).view(-1, size, 3, source)
    for channel, plane in enumerate(planes):
        torch.bmm(narrow[:, :, channel], across.mT, out=plane)
