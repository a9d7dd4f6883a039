"""Random resized crop and mirror image, as weighted sums of columns and of rows."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

TRIES = 10  # torchvision's RandomResizedCrop gives up after ten boxes that do not fit


def sample_boxes(draws: Tensor, size: int, scale: tuple[float, float], ratio: tuple[float, float]) -> Tensor:
    """Turn uniform draws (n, 2 * TRIES + 2) into boxes (top, left, height, width) inside a square of ``size`` pixels.

    The area is uniform in ``scale``, the aspect ratio log-uniform in ``ratio``; the first of ten tries that fits is
    taken, else the largest centered box whose ratio is allowed.
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
    return torch.tensor([max(1, round(height)), max(1, round(width))], dtype=torch.float64)


def crop(images: Tensor, index: Tensor | None, box: Tensor, flip: Tensor, size: int) -> Tensor:
    """Crop, resize and mirror ``images[index]``, or the only image, to (n, 3, size, size): columns first, then rows.

    Views of the same columns of an image share their strip: 640 views of one image of 32 pixels have about 300.
    """
    source, (top, left, height, width) = images.shape[-1], box.T
    columns = (((0 if index is None else index) * source + left) * (source + 1) + width) * 2 + flip
    distinct, strip = columns.unique(return_inverse=True)
    view = torch.empty_like(distinct).scatter_(0, strip, torch.arange(len(strip), device=strip.device))  # one of each
    sources = images if index is None else images.index_select(0, index[view])
    strips = resize_columns(sources, *resize_taps(left[view], width[view], flip[view], source, size))
    return resize_rows(strips, strip, *resize_taps(top, height, torch.zeros_like(flip), source, size))


def resize_taps(start: Tensor, length: Tensor, mirror: Tensor, source: int, size: int) -> tuple[Tensor, Tensor]:
    """Return which of ``source`` pixels make ``size`` pixels of the ``length`` from ``start`` on, and their weights.

    Both are (n, taps, size). Bilinear; when reducing, the triangle is widened by the scale, which is the antialiasing of
    Pillow. Pixels outside the box have no weight: the crop comes first, as in torchvision.
    """
    start, length, mirror = (tensor[:, None, None].float() for tensor in (start, length, mirror))
    outputs = (torch.arange(size, device=start.device) + 0.5) / size
    center = (mirror - outputs).abs_().mul_(length).add_(start - 0.5)
    reach = (length / size).clamp_min_(1)
    taps = torch.arange(math.ceil(2 * max(1, source / size)), device=start.device)[:, None]
    pixels = (center - reach).floor_().add_(1) + taps
    weights = (pixels - center).abs_().div_(reach).neg_().add_(1).clamp_min_(0)
    weights *= (pixels >= start) & (pixels < start + length)
    weights /= weights.sum(1, keepdim=True)
    return pixels.clamp_(0, source - 1).long(), weights


def resize_columns(images: Tensor, pixels: Tensor, weights: Tensor) -> Tensor:
    """Make the columns of n images, or of the only one, from ``pixels`` with ``weights``: (n, 3, H, size)."""
    matrices = images.new_zeros(len(pixels), images.shape[-1], pixels.shape[-1])
    matrices.scatter_add_(1, pixels, weights.to(images.dtype))
    return torch.matmul(images.flatten(1, 2), matrices).view(len(pixels), *images.shape[1:3], -1)


def resize_rows(images: Tensor, index: Tensor, pixels: Tensor, weights: Tensor) -> Tensor:
    """Make the rows of ``images[index]`` from ``pixels`` with ``weights``: (n, 3, size, W).

    Sums of rows of a table: a fifth of the time of matrix products, whose weights would be zeros but for two in a row.
    """
    channels, height, width = images.shape[1:]
    planes = index[:, None] * channels + torch.arange(channels, device=index.device)
    rows = planes[:, :, None, None] * height + pixels.mT.contiguous()[:, None]  # (n, 3, size, taps)
    weights = weights.mT.to(images.dtype).contiguous()[:, None].expand(rows.shape)
    table = images.flatten(0, 2)
    made = F.embedding_bag(rows.flatten(0, 2), table, mode="sum", per_sample_weights=weights.flatten(0, 2))
    return made.view(len(index), channels, -1, width)
