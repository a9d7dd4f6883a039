"""The views of the paper: SwAV's transformations without multi-crop, and the supervised crop.

The order is that of the authors' pipeline (SwAV in lightning-bolts): crop, flip, colour jitter, grayscale, blur. It
works on 8-bit images and rounds after every operation; here nothing is rounded.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sized
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ttaps.errors import UsageError
from ttaps.views import blur, colour, crop
from ttaps.views.parameters import Parameters

CHUNK = 128  # views made at a time on a CPU, 1.5 MB at 32 pixels: fewer calls than 64, still in the cache
BOX_DRAWS = 2 * crop.TRIES + 2


@dataclass(frozen=True)
class CropViews:
    """The supervised crop: random resized crop and flip, no change of colour."""

    scale: tuple[float, float] = (0.08, 1.0)
    """Range of the crop's share of the image area."""
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    """Range of the crop's width / height."""
    flip: float = 0.5
    """Probability of mirroring."""

    def sample(self, n: int, size: int, generator: torch.Generator) -> Parameters:
        """Draw ``n`` views of square images of ``size`` pixels from a CPU generator."""
        draws = torch.rand(n, BOX_DRAWS + 1, generator=generator, dtype=torch.float64)
        box = crop.sample_boxes(draws[:, 1:], size, self.scale, self.ratio)
        return replace(Parameters.identity(n, size), box=box, flip=draws[:, 0] < self.flip)

    def apply(
        self, images: Tensor, parameters: Parameters, size: int | None = None, index: Tensor | None = None
    ) -> Tensor:
        """Make the views; see :meth:`SwavViews.apply`."""
        return make_views(images, parameters, size, index, blur_kernel=1)


@dataclass(frozen=True)
class SwavViews:
    """The paper's set of transformations T (section IV: "random resize crop", "color jitter", "Gaussian blurring")."""

    scale: tuple[float, float] = (0.14, 1.0)
    """Range of the crop's share of the image area."""
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    """Range of the crop's width / height."""
    flip: float = 0.5
    """Probability of mirroring."""
    jitter: float = 1.0
    """Strength of the colour jitter: 0.8, 0.8, 0.8 (brightness, contrast, saturation) and 0.2 (hue) times this."""
    jitter_probability: float = 0.8
    """Probability of colour jitter."""
    grayscale: float = 0.2
    """Probability of removing the colours."""
    blur: float = 0.5
    """Probability of blurring."""
    blur_sigma: tuple[float, float] = (0.1, 2.0)
    """Range of the blur's standard deviation in pixels."""
    blur_kernel: int = 0
    """Width of the blur's window in pixels, odd; 0 is a tenth of the view, as the authors' pipeline has it: 3 at 32 pixels."""

    def __post_init__(self) -> None:
        if self.blur_kernel < 0 or (self.blur_kernel and self.blur_kernel % 2 == 0):
            raise UsageError(f"blur_kernel is {self.blur_kernel}: give an odd number of pixels, such as 3, or 0")
        if not 0 < self.scale[0] <= self.scale[1] <= 1:
            raise UsageError(
                f"scale is {self.scale}: give the smallest and the largest share of the area, within 0 and 1"
            )
        for name in ("flip", "jitter_probability", "grayscale", "blur"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"{name} is {getattr(self, name)}: give a probability, from 0 to 1")

    def sample(self, n: int, size: int, generator: torch.Generator) -> Parameters:
        """Draw ``n`` views of square images of ``size`` pixels from a CPU generator."""
        draws = torch.rand(n, BOX_DRAWS + 13, generator=generator, dtype=torch.float64)
        chance, factors, keys, sigma, box = draws.split_with_sizes([4, 4, 4, 1, BOX_DRAWS], dim=1)
        strength = self.jitter * torch.tensor([0.8, 0.8, 0.8, 0.2], dtype=torch.float64)
        centre = torch.tensor([1.0, 1.0, 1.0, 0.0], dtype=torch.float64)
        low = torch.cat([(centre - strength)[:3].clamp_min(0), -strength[3:]])
        low_sigma, high_sigma = self.blur_sigma
        sigma = low_sigma + (high_sigma - low_sigma) * sigma[:, 0]
        return Parameters(
            box=crop.sample_boxes(box, size, self.scale, self.ratio),
            flip=chance[:, 0] < self.flip,
            jitter=chance[:, 1] < self.jitter_probability,
            factors=(low + (centre + strength - low) * factors).float(),
            order=keys.argsort(1),
            grayscale=chance[:, 2] < self.grayscale,
            sigma=torch.where(chance[:, 3] < self.blur, sigma, 0).float(),
        )

    def apply(
        self, images: Tensor, parameters: Parameters, size: int | None = None, index: Tensor | None = None
    ) -> Tensor:
        """Make one view per row of ``parameters``: (len(parameters), 3, size, size), float in [0, 1].

        ``images`` are (N, 3, H, W), uint8 or float in [0, 1]; view i is made of image ``index[i]``; without an index,
        of image i, or of the only image. ``size`` is H unless given.
        """
        kernel = self.blur_kernel or int(0.1 * (size or images.shape[-1])) | 1
        return make_views(images, parameters, size, index, kernel)


def make_views(
    images: Tensor, parameters: Parameters, size: int | None, index: Tensor | None, blur_kernel: int
) -> Tensor:
    """Make the views on the images' device, sorted by what is to be done to them, in chunks that fit in the cache."""
    check(images, parameters, index)
    size, n, device = size or images.shape[-1], len(parameters), images.device
    rows = (images.float() / 255 if images.dtype == torch.uint8 else images).transpose(1, 2)  # (N, H, 3, W)
    if index is None and len(images) > 1:
        index = torch.arange(n)
    turn = torch.where(parameters.jitter, colour.hue_turn(parameters.order), 4)
    blurred = parameters.sigma > 0
    order = (turn + 5 * blurred).argsort(stable=True)
    sharp, turns = n - int(blurred.sum()), turn[order].tolist()
    parameters, index = parameters[order], None if index is None else index.to(order.device)[order].to(device)
    planes = rows.new_empty(3, n, size, size)
    for part in chunks(sharp, n, CHUNK if device.type == "cpu" else max(n, 1)):
        sources = rows if index is None else rows.index_select(0, index[part])
        make_planes(planes[:, part], sources, parameters[part], turns[part])
        if part.start >= sharp:
            planes[:, part] = blur.blur(planes[:, part], parameters.sigma[part].to(device), blur_kernel)
    return planes.transpose(0, 1).index_select(0, order.argsort().to(device)).clamp_(0, 1)


def chunks(middle: int, end: int, length: int) -> Iterator[slice]:
    """Cut 0..end into slices of at most ``length``, none of which has ``middle`` inside."""
    for start, stop in ((0, middle), (middle, end)):
        for first in range(start, stop, length):
            yield slice(first, min(first + length, stop))


def make_planes(planes: Tensor, sources: Tensor, parameters: Parameters, turns: list[int]) -> None:
    """Crop and colour views, sorted by the turn of their hue shift (4: no jitter), into planes (3, n, size, size)."""
    starts = [bisect_left(turns, turn) for turn in range(5)]
    gray = parameters.grayscale.nonzero()[:, 0].to(planes.device)
    parameters = parameters.to(planes.device)
    crop.crop_into(planes, sources, parameters.box, parameters.flip)
    flat, jittered = planes.flatten(2), slice(starts[-1])
    if starts[-1]:
        colour.jitter(flat[:, jittered], parameters.factors[jittered], parameters.order[jittered], starts)
    if len(gray):
        flat.index_copy_(1, gray, colour.luminance(flat.index_select(1, gray)).expand(3, -1, -1))


def check(images: Tensor, parameters: Sized, index: Tensor | None) -> None:
    """Refuse images of a wrong shape, or whose number fits neither the views nor the index."""
    if images.ndim != 4 or images.shape[1] != 3 or images.shape[2] != images.shape[3] or not len(images):
        raise UsageError(f"images have shape {tuple(images.shape)}: give square colour images, (N, 3, H, H)")
    views = len(parameters)
    if index is not None and len(index) != views:
        raise UsageError(f"the index has {len(index)} entries for {views} views: give one per view")
    if index is None and len(images) not in (1, views):
        raise UsageError(f"{len(images)} images for {views} views: give one image per view, one image, or an index")
