"""The views of the paper: SwAV's transformations without multi-crop, and the supervised crop; and those of TTT and MT3.
The order is that of the authors' pipeline (SwAV in lightning-bolts): crop, flip, color jitter, grayscale, blur. It works on 8-bit images
and rounds after every operation; we do not round."""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional as F

from ttaps.config import check_min, check_probability, check_range
from ttaps.errors import UsageError
from ttaps.views import operations

BLOCK = 640  # views made at a time on a CPU: those of one adapted image; a block takes 1.4 ms of calls alone
BOX_DRAWS = 2 * operations.TRIES + 2


@dataclass(frozen=True)
class Rows:
    """Random parameters of ``len(self)`` views. Every field is a tensor, or itself rows, with one row per view."""

    def __len__(self) -> int:
        return len(next(iter(vars(self).values())))

    def __getitem__(self, rows: slice | Tensor) -> Self:
        return type(self)(*(field[rows] for field in vars(self).values()))

    def to(self, device: torch.device | str) -> Self:
        """Return the same rows on ``device``."""
        return type(self)(*(field.to(device) for field in vars(self).values()))


@dataclass(frozen=True)
class Parameters(Rows):
    """The parameters of views: crop, flip, color jitter, grayscale and blur."""

    box: Tensor  # crop in source pixels: top, left, height, width; integers, (n, 4)
    flip: Tensor  # mirror left to right; bool, (n,)
    jitter: Tensor  # change the colors by ``factors`` in ``order``; bool, (n,)
    factors: Tensor  # brightness, contrast and saturation factor, and hue shift in turns; float, (n, 4)
    order: Tensor  # columns of ``factors`` in the order they are applied in; a permutation of 0..3 per row, (n, 4)
    grayscale: Tensor  # remove the colors; bool, (n,)
    sigma: Tensor  # standard deviation of the blur in pixels, 0 for none; float, (n,)

    @classmethod
    def identity(cls, n: int, size: int) -> Self:
        """Return parameters that leave ``n`` images of ``size`` pixels as they are."""
        box, factors, order = torch.tensor([0, 0, size, size]), torch.tensor([1.0, 1.0, 1.0, 0.0]), torch.arange(4)
        off = torch.zeros(n, dtype=torch.bool)
        return cls(box.repeat(n, 1), off, off, factors.repeat(n, 1), order.repeat(n, 1), off, torch.zeros(n))


@dataclass(frozen=True)
class CropViews:
    """The supervised crop: random resized crop and flip, no change of color."""

    scale: tuple[float, float] = (0.08, 1.0)
    """Range of the crop's share of the image area."""
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    """Range of the crop's width / height."""
    flip_p: float = 0.5
    """Probability of mirroring."""
    blur_kernel = 1  # no setting: nothing is blurred

    def __post_init__(self) -> None:
        check_range(self, "scale", most=1)
        check_range(self, "ratio")
        check_probability(self, "flip_p")

    def sample(self, n: int, size: int, generator: torch.Generator) -> Parameters:
        """Draw ``n`` views of square images of ``size`` pixels from a CPU generator."""
        draws = torch.rand(n, BOX_DRAWS + 1, generator=generator, dtype=torch.float64)
        box = operations.sample_boxes(draws[:, 1:], size, self.scale, self.ratio)
        return replace(Parameters.identity(n, size), box=box, flip=draws[:, 0] < self.flip_p)

    def apply(self, images: Tensor, parameters: Parameters, size: int = 0, index: Tensor | None = None) -> Tensor:
        """Make one view per row of ``parameters``: (len(parameters), 3, size, size), float in [0, 1], on the images' device.
        ``images`` are (N, 3, H, H), uint8 or float in [0, 1]; view i is made of image ``index[i]``; without an index, of image i, or of
        the only image. ``size`` is H unless given."""
        size = size or images.shape[-1]
        kernel = self.blur_kernel or int(0.1 * size) | 1
        if kernel // 2 >= size:
            raise UsageError(f"blur_kernel is {kernel}: give less than twice the {size} pixels of a view")
        n, device = len(parameters), maker(images.device)
        check_images(images, n, index)
        pixels = images.to(device).float() / 255 if images.dtype == torch.uint8 else images.to(device)
        views = torch.empty(n, 3, size, size, dtype=pixels.dtype, device=device)
        if index is None and len(images) > 1:
            index = torch.arange(n)
        with torch.inference_mode():  # a call takes 0.85 of the time; the views themselves are ordinary tensors
            length = BLOCK if device.type == "cpu" else max(n, 1)
            for block in (slice(first, first + length) for first in range(0, n, length)):
                own = None if index is None else index[block]
                make_block(pixels, own, parameters[block], kernel, views[block])
        return views.to(images.device)


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
    """Probability of grayscale."""
    blur_p: float = 0.5
    """Probability of blurring."""
    blur_sigma: tuple[float, float] = (0.1, 2.0)
    """Range of the blur's standard deviation in pixels."""
    blur_kernel: int = 0
    """Width of the blur's window in pixels, odd; 0 is a tenth of the view, as in the authors' pipeline: 3 at 32 pixels."""

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
        least, most = self.blur_sigma
        return Parameters(
            box=operations.sample_boxes(box, size, self.scale, self.ratio),
            flip=chance[:, 0] < self.flip_p,
            jitter=chance[:, 1] < self.jitter_p,
            factors=(low + (center + strength - low) * factors).float(),
            order=keys.argsort(1),
            grayscale=chance[:, 2] < self.gray_p,
            sigma=torch.where(chance[:, 3] < self.blur_p, least + (most - least) * sigma[:, 0], 0).float(),
        )


MT3_VIEWS = SwavViews(scale=(0.39, 0.94), ratio=(1.0, 1.0), jitter_strength=0.2, blur_p=0.0)
"""MT3's mild SimCLR views: square crops of 20 to 31 of 32 pixels, color jitter at a fifth of the usual strength."""


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

    def apply(self, images: Tensor, parameters: Parameters, size: int = 0, index: Tensor | None = None) -> Tensor:
        """Make the views; see :meth:`CropViews.apply`."""
        return CropViews().apply(F.pad(images, [self.padding] * 4), parameters, size or images.shape[-1], index)


def quarter_turns(images: Tensor, turns: Tensor) -> Tensor:
    """Rotate each square image counterclockwise by its own number of quarter turns."""
    all_four = torch.stack([images.rot90(quarters, (2, 3)) for quarters in range(4)])
    return all_four[turns, torch.arange(len(images), device=turns.device)]


def shift_task(images: Tensor, generator: torch.Generator) -> Tensor:
    """Transform all images (n, 3, H, W) of a task alike, so that a task resembles a test image: a new domain to adapt to.
    Upside down (1/2), mirrored (1/2), blurred (1/5, σ = 1), brighter or darker by up to 0.2, with noise of deviation up to 0.02."""
    upside_down, mirrored, blurred, brightness, noise = torch.rand(5, generator=generator).tolist()
    images = images.flip([axis for axis, chance in ((-2, upside_down), (-1, mirrored)) if chance < 0.5])  # a copy
    if blurred < 0.2:
        operations.blur(images, torch.ones(len(images), device=images.device), 3)
    grain = torch.randn(images.shape, generator=generator).to(images)
    return (images + 0.4 * (brightness - 0.5) + 0.02 * noise * grain).clamp(0, 1)


def maker(device: torch.device) -> torch.device:
    """Return where to make the views for a device: on the CPU except for CUDA, as mps has no ``embedding_bag`` before torch 2.10."""
    return device if device.type == "cuda" else torch.device("cpu")


def make_block(images: Tensor, index: Tensor | None, parameters: Parameters, kernel: int, out: Tensor) -> None:
    """Make views, sorted by kind: 0 has no jitter, 1 to 4 shift their hue at that place; 9 to 5 are the same and blurred.
    So those that are blurred stand together, and so do those that shift their hue late, or at all."""
    place = torch.where(parameters.jitter, (parameters.order == operations.HUE).int().argmax(1) + 1, 0)
    kind = torch.where(parameters.sigma > 0, 9 - place, place)
    order, starts = kind.argsort(stable=True), [0, *kind.bincount(minlength=10).cumsum(0).tolist()]
    own = None if index is None else index.to(order.device)[order].to(out.device)
    drawn = parameters[order].to(out.device)
    views = operations.crop(images, own, drawn.box, drawn.flip, out.shape[-1])
    planes = views.flatten(2)
    operations.jitter(planes, drawn.factors, drawn.order, starts)
    gray = drawn.grayscale.nonzero()[:, 0]
    if len(gray):
        planes.index_copy_(0, gray, operations.luminance(planes.index_select(0, gray)).expand(-1, 3, -1))
    if starts[5] < len(views):
        operations.blur(views[starts[5] :], drawn.sigma[starts[5] :], kernel)
    torch.index_select(views.clamp_(0, 1), 0, order.argsort().to(out.device), out=out)


def check_images(images: Tensor, views: int, index: Tensor | None) -> None:
    """Refuse images of a wrong shape, or whose number fits neither the views nor the index."""
    if images.ndim != 4 or images.shape[1] != 3 or images.shape[2] != images.shape[3] or not len(images):
        raise UsageError(f"images have shape {tuple(images.shape)}: give square color images, (N, 3, H, H)")
    if index is not None and len(index) != views:
        raise UsageError(f"the index has {len(index)} entries for {views} views: give one per view")
    if index is None and len(images) not in (1, views):
        raise UsageError(f"{len(images)} images for {views} views: give one image per view, one image, or an index")
