"""The views of the paper: SwAV's transformations without multi-crop, and the supervised crop.

The order is that of the authors' pipeline (SwAV in lightning-bolts): crop, flip, colour jitter, grayscale, blur. It
works on 8-bit images and rounds after every operation; here nothing is rounded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ttaps.errors import UsageError
from ttaps.views import blur, colour, crop
from ttaps.views.parameters import Parameters

CHUNK = 64  # views made at a time on a CPU
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
    blur_kernel: int = 3
    """Width of the blur's window in pixels, odd: a tenth of the image, so 3 at 32 pixels."""

    def __post_init__(self) -> None:
        if self.blur_kernel < 1 or self.blur_kernel % 2 == 0:
            raise UsageError(f"blur_kernel is {self.blur_kernel}: give an odd number of pixels, such as 3")

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
        return make_views(images, parameters, size, index, self.blur_kernel)


def make_views(
    images: Tensor, parameters: Parameters, size: int | None, index: Tensor | None, blur_kernel: int
) -> Tensor:
    """Make the views on the images' device, sorted by what is to be done to them and in chunks that fit in the cache."""
    check(images, parameters, index)
    size = size or images.shape[-1]
    rows = (images.float() / 255 if images.dtype == torch.uint8 else images).transpose(1, 2)  # (N, H, 3, W)
    group = torch.where(parameters.jitter, colour.hue_position(parameters.order), 4)
    order = group.argsort(stable=True)
    index = torch.arange(len(order)) if index is None and len(images) > 1 else index
    views = rows.new_empty(len(order), 3, size, size)
    for part in torch.split(order, CHUNK if images.device.type == "cpu" else max(1, len(order))):
        sources = rows if index is None else rows[index[part.to(index.device)].to(rows.device)]
        planes = make_planes(sources, parameters[part], size, blur_kernel)
        views[part.to(views.device)] = planes.transpose(0, 1)
    return views


def make_planes(sources: Tensor, parameters: Parameters, size: int, blur_kernel: int) -> Tensor:
    """Make views, sorted by the place of the hue shift and those without jitter last, as planes (3, n, size, size)."""
    group = torch.where(parameters.jitter, colour.hue_position(parameters.order), 4)
    position = torch.searchsorted(group, torch.arange(5)).tolist()
    jittered, gray, blurred = position[-1], parameters.grayscale.nonzero()[:, 0], parameters.sigma.nonzero()[:, 0]
    parameters = parameters.to(sources.device)
    planes = crop.crop(sources, parameters.box, parameters.flip, size)
    flat = planes.flatten(2)
    if jittered:
        colour.jitter(flat[:, :jittered], parameters.factors[:jittered], parameters.order[:jittered], position)
    if len(gray):
        flat[:, gray] = colour.luminance(flat[:, gray])
    if len(blurred):
        planes[:, blurred] = blur.blur(planes[:, blurred], parameters.sigma[blurred], blur_kernel)
    return planes


def check(images: Tensor, parameters: Parameters, index: Tensor | None) -> None:
    """Refuse images of a wrong shape, or whose number fits neither the views nor the index."""
    if images.ndim != 4 or images.shape[1] != 3 or not len(images):
        raise UsageError(f"images have shape {tuple(images.shape)}: give (N, 3, H, W)")
    views = len(parameters)
    if index is not None and len(index) != views:
        raise UsageError(f"the index has {len(index)} entries for {views} views: give one per view")
    if index is None and len(images) not in (1, views):
        raise UsageError(f"{len(images)} images for {views} views: give one image per view, one image, or an index")
