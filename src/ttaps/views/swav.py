"""The views of the paper: SwAV's transformations without multi-crop, and the supervised crop.

The order is that of the authors' pipeline (SwAV in lightning-bolts): crop, flip, color jitter, grayscale, blur. It
works on 8-bit images and rounds after every operation; here nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ttaps.config import check_min, check_probability, check_range
from ttaps.errors import UsageError
from ttaps.views import blur, color, crop
from ttaps.views.parameters import Parameters

BLOCK = 640  # views made at a time on a CPU: those of one adapted image; a block takes 1.4 ms of calls alone
KINDS = 10
BOX_DRAWS = 2 * crop.TRIES + 2


@dataclass(frozen=True)
class CropViews:
    """The supervised crop: random resized crop and flip, no change of color."""

    scale: tuple[float, float] = (0.08, 1.0)
    """Range of the crop's share of the image area."""
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    """Range of the crop's width / height."""
    flip_p: float = 0.5
    """Probability of mirroring."""

    def __post_init__(self) -> None:
        check_range(self, "scale", most=1)
        check_range(self, "ratio")
        check_probability(self, "flip_p")

    def sample(self, n: int, size: int, generator: torch.Generator) -> Parameters:
        """Draw ``n`` views of square images of ``size`` pixels from a CPU generator."""
        draws = torch.rand(n, BOX_DRAWS + 1, generator=generator, dtype=torch.float64)
        box = crop.sample_boxes(draws[:, 1:], size, self.scale, self.ratio)
        return replace(Parameters.identity(n, size), box=box, flip=draws[:, 0] < self.flip_p)

    def apply(
        self, images: Tensor, parameters: Parameters, size: int | None = None, index: Tensor | None = None
    ) -> Tensor:
        """Make the views; see :meth:`SwavViews.apply`."""
        return make_views(images, parameters, size, index, blur_kernel=1)


@dataclass(frozen=True)
class SwavViews(CropViews):
    """The paper's set of transformations T (section III: "random resize crop", "color jitter", "Gaussian blurring")."""

    scale: tuple[float, float] = (0.14, 1.0)
    """Range of the crop's share of the image area."""
    jitter_strength: float = 1.0
    """Strength of the color jitter: 0.8, 0.8, 0.8 (brightness, contrast, saturation) and 0.2 (hue) times this."""
    jitter_p: float = 0.8
    """Probability of color jitter."""
    gray_p: float = 0.2
    """Probability of removing the colors."""
    blur_p: float = 0.5
    """Probability of blurring."""
    blur_sigma: tuple[float, float] = (0.1, 2.0)
    """Range of the blur's standard deviation in pixels."""
    blur_kernel: int = 0
    """Width of the blur's window in pixels, odd; 0 is a tenth of the view, as the authors' pipeline has it: 3 at 32 pixels."""

    def __post_init__(self) -> None:
        if self.blur_kernel < 0 or (self.blur_kernel and self.blur_kernel % 2 == 0):
            raise UsageError(f"blur_kernel must be an odd number of pixels, such as 3, or 0, not {self.blur_kernel}.")
        super().__post_init__()
        check_range(self, "blur_sigma")
        check_min(self, jitter_strength=0)
        check_probability(self, "jitter_p", "gray_p", "blur_p")

    def sample(self, n: int, size: int, generator: torch.Generator) -> Parameters:
        """Draw ``n`` views of square images of ``size`` pixels from a CPU generator."""
        draws = torch.rand(n, BOX_DRAWS + 13, generator=generator, dtype=torch.float64)
        chance, factors, keys, sigma, box = draws.split_with_sizes([4, 4, 4, 1, BOX_DRAWS], dim=1)
        strength = self.jitter_strength * torch.tensor([0.8, 0.8, 0.8, 0.2], dtype=torch.float64)
        center = torch.tensor([1.0, 1.0, 1.0, 0.0], dtype=torch.float64)
        low = torch.cat([(center - strength)[:3].clamp_min(0), -strength[3:]])
        low_sigma, high_sigma = self.blur_sigma
        sigma = low_sigma + (high_sigma - low_sigma) * sigma[:, 0]
        return Parameters(
            box=crop.sample_boxes(box, size, self.scale, self.ratio),
            flip=chance[:, 0] < self.flip_p,
            jitter=chance[:, 1] < self.jitter_p,
            factors=(low + (center + strength - low) * factors).float(),
            order=keys.argsort(1),
            grayscale=chance[:, 2] < self.gray_p,
            sigma=torch.where(chance[:, 3] < self.blur_p, sigma, 0).float(),
        )

    def apply(
        self, images: Tensor, parameters: Parameters, size: int | None = None, index: Tensor | None = None
    ) -> Tensor:
        """Make one view per row of ``parameters``: (len(parameters), 3, size, size), float in [0, 1].

        ``images`` are (N, 3, H, W), uint8 or float in [0, 1]; view i is made of image ``index[i]``; without an index,
        of image i, or of the only image. ``size`` is H unless given.
        """
        size = size or images.shape[-1]
        kernel = self.blur_kernel or int(0.1 * size) | 1
        if kernel // 2 >= size:
            raise UsageError(f"blur_kernel is {kernel}: give less than twice the {size} pixels of a view")
        return make_views(images, parameters, size, index, kernel)


def make_views(
    images: Tensor, parameters: Parameters, size: int | None, index: Tensor | None, blur_kernel: int
) -> Tensor:
    """Make the views for the images' device, in blocks that are sorted by what is to be done to them."""
    check_images(images, parameters, index)
    size, n, device = size or images.shape[-1], len(parameters), maker(images.device)
    dtype = torch.float32 if images.dtype == torch.uint8 else images.dtype
    views = torch.empty(n, 3, size, size, dtype=dtype, device=device)
    if index is None and len(images) > 1:
        index = torch.arange(n)
    with torch.inference_mode():  # a call takes 0.85 of the time; the views themselves are ordinary tensors
        pixels = images.to(device)
        if images.dtype == torch.uint8:
            pixels = pixels.float() / 255
        every = kinds(parameters)
        length = BLOCK if device.type == "cpu" else max(n, 1)
        for block in (slice(first, first + length) for first in range(0, n, length)):
            kind = every[block]
            order = kind.argsort(stable=True)
            starts = [0, *kind.bincount(minlength=KINDS).cumsum(0).tolist()]
            rows = block.start + order
            own = None if index is None else index.to(rows.device)[rows].to(device)
            made = make_block(pixels, own, parameters[rows].to(device), starts, size, blur_kernel)
            torch.index_select(made, 0, order.argsort().to(device), out=views[block])
    return views.to(images.device)


def maker(device: torch.device) -> torch.device:
    """Return where the views for a device are made: on the CPU for all but CUDA, as mps has no ``embedding_bag`` before torch 2.10."""
    return device if device.type == "cuda" else torch.device("cpu")


def kinds(parameters: Parameters) -> Tensor:
    """Return the kind of every view, (n,): what is to be done to it.

    Kind 0 has no jitter, kinds 1 to 4 shift their hue at the first to the fourth place; 9 to 5 are the same and blurred.
    Sorted in this way, the views that are blurred stand together, and so do those that shift their hue late, or at all.
    """
    place = torch.where(parameters.jitter, (parameters.order == color.HUE).int().argmax(1) + 1, 0)
    return torch.where(parameters.sigma > 0, 9 - place, place)


def make_block(
    images: Tensor, index: Tensor | None, parameters: Parameters, starts: list[int], size: int, blur_kernel: int
) -> Tensor:
    """Make views that are sorted by kind; kind k begins at ``starts[k]``."""
    views = crop.crop(images, index, parameters.box, parameters.flip, size)
    planes = views.flatten(2)
    color.jitter(planes, parameters.factors, parameters.order, starts)
    gray = parameters.grayscale.nonzero()[:, 0]
    if len(gray):
        planes.index_copy_(0, gray, color.luminance(planes.index_select(0, gray)).expand(-1, 3, -1))
    if starts[5] < len(views):
        blur.blur(views[starts[5] :], parameters.sigma[starts[5] :], blur_kernel)
    return views.clamp_(0, 1)


def check_images(images: Tensor, parameters: Sized, index: Tensor | None) -> None:
    """Refuse images of a wrong shape, or whose number fits neither the views nor the index."""
    if images.ndim != 4 or images.shape[1] != 3 or images.shape[2] != images.shape[3] or not len(images):
        raise UsageError(f"images have shape {tuple(images.shape)}: give square color images, (N, 3, H, H)")
    views = len(parameters)
    if index is not None and len(index) != views:
        raise UsageError(f"the index has {len(index)} entries for {views} views: give one per view")
    if index is None and len(images) not in (1, views):
        raise UsageError(f"{len(images)} images for {views} views: give one image per view, one image, or an index")
