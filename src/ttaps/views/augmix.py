"""AugMix (Hendrycks et al., 2020) as MEMO uses it on CIFAR-10: crop and flip, three chains of mild operations, and their mixture.

The nine operations are those that no test corruption uses. Pillow applies them to 8-bit values; only the mixture is not rounded."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from PIL import Image, ImageOps
from torch import Tensor
from torch.nn import functional as F

from ttaps.config import check_min, check_probability
from ttaps.errors import UsageError
from ttaps.views.swav import Rows, check_images

Color = tuple[int, int, int]
POSTERIZE, SOLARIZE, ROTATE, SHEAR_X, SHEAR_Y = range(2, 7)  # places in OPERATIONS
NOTHING = -1
LEAST, MOST = 0.1, 10  # levels are drawn from the least on; at the most, an operation has its greatest amount


def _affine(image: Image.Image, matrix: tuple[float, ...], fill: Color) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR, fillcolor=fill)


FUNCTIONS: dict[str, Callable[[Image.Image, float, Color], Image.Image]] = {
    "autocontrast": lambda image, _, fill: ImageOps.autocontrast(image),
    "equalize": lambda image, _, fill: ImageOps.equalize(image),
    "posterize": lambda image, bits, fill: ImageOps.posterize(image, int(bits)),
    "solarize": lambda image, threshold, fill: ImageOps.solarize(image, int(threshold)),
    "rotate": lambda image, degrees, fill: image.rotate(degrees, Image.Resampling.BILINEAR, fillcolor=fill),
    "shear_x": lambda image, share, fill: _affine(image, (1, share, 0, 0, 1, 0), fill),
    "shear_y": lambda image, share, fill: _affine(image, (1, 0, 0, share, 1, 0), fill),
    "translate_x": lambda image, pixels, fill: _affine(image, (1, 0, pixels, 0, 1, 0), fill),
    "translate_y": lambda image, pixels, fill: _affine(image, (1, 0, 0, 0, 1, pixels), fill),
}
OPERATIONS = tuple(FUNCTIONS)


@dataclass(frozen=True)
class Mixture(Rows):
    """Random parameters of AugMix views."""

    corner: Tensor  # top and left of the crop in the padded image; integers, (n, 2)
    flip: Tensor  # mirror left to right; bool, (n,)
    operations: Tensor  # indices into OPERATIONS in the order in which they are applied, or NOTHING; (n, width, depth)
    amounts: Tensor  # degrees, thresholds, shears, pixels or bits of the operations; float, (n, width, depth)
    weights: Tensor  # shares of the chains in their mixture, which sum to 1; float, (n, width)
    keep: Tensor  # share of the image without operations in the result; float, (n,)


@dataclass(frozen=True)
class AugmixViews:
    """MEMO's settings by default."""

    severity: float = 1.0
    """Levels are drawn between 0.1 and this; at 10 an operation has its maximum strength."""
    width: int = 3
    """Chains that are mixed."""
    depth: int = 3
    """Each chain has 1 to this many operations."""
    pad: int = 4
    """Black border in pixels before the random crop; 0 does not crop."""
    flip_p: float = 0.5
    """Probability of mirroring."""
    fill: Color = (128, 0, 0)
    """Color of areas outside the image: how Pillow interprets the authors' ``fillcolor=128``."""

    def __post_init__(self) -> None:
        check_min(self, severity=LEAST, width=1, depth=1, pad=0)
        check_probability(self, "flip_p")
        if self.severity > MOST:
            raise UsageError(f"severity must be at most {MOST}, not {self.severity}.")

    def sample(self, n: int, size: int, generator: torch.Generator) -> Mixture:
        """Draw ``n`` views of square images of ``size`` pixels from a CPU generator."""
        links = self.width * self.depth
        draws = torch.rand(n, 4 + 2 * self.width + 3 * links, generator=generator, dtype=torch.float64)
        place, weight, length, link = draws.split_with_sizes([4, self.width, self.width, 3 * links], dim=1)
        kind, level, sign = link.view(n, 3, self.width, self.depth).unbind(1)
        operations = (kind * len(OPERATIONS)).long()
        return Mixture(
            corner=(place[:, :2] * (2 * self.pad + 1)).long(),
            flip=place[:, 2] < self.flip_p,
            operations=shorten(operations, length),
            amounts=amount(operations, LEAST + level * (self.severity - LEAST), sign < 0.5, size),
            weights=shares(weight).float(),
            keep=place[:, 3].float(),  # Beta(1, 1)
        )

    def apply(self, images: Tensor, parameters: Mixture, index: Tensor | None = None) -> Tensor:
        """Make one view per row of ``parameters``: (len(parameters), 3, H, H); see :meth:`CropViews.apply`. The CPU does the work."""
        check_images(images, len(parameters), index)
        pixels = images.cpu() if images.dtype == torch.uint8 else images.cpu().mul(255).round().to(torch.uint8)
        sources = pixels[index.cpu()] if index is not None else pixels.expand(len(parameters), -1, -1, -1)
        plain = padded_crop(sources, parameters.corner, parameters.flip, self.pad)
        chains = plain.repeat_interleave(self.width, 0)
        for operations, amounts in zip(parameters.operations.unbind(2), parameters.amounts.unbind(2), strict=True):
            operate(chains, operations.flatten(), amounts.flatten(), self.fill)
        mixed = mixture(chains / 255, parameters.weights)
        return torch.lerp(mixed, plain / 255, parameters.keep.view(-1, 1, 1, 1)).clamp_(0, 1).to(images.device)


def shorten(operations: Tensor, length: Tensor) -> Tensor:
    """Return chains (n, width, depth) that end with NOTHING after 1 to depth operations, by uniform draws (n, width) of their length."""
    depth = operations.shape[-1]
    return torch.where(torch.arange(depth) <= (length * depth).long()[..., None], operations, NOTHING)


def shares(draws: Tensor) -> Tensor:
    """Turn uniform draws (n, width) into shares that sum to 1, Dirichlet(1, ..., 1)."""
    exponential = -torch.log1p(-draws)
    return exponential / exponential.sum(1, keepdim=True)


def mixture(chains: Tensor, weights: Tensor) -> Tensor:
    """Return the means (n, 3, H, H) of the ends of n * width chains, weighted by their shares (n, width)."""
    return torch.einsum("nw,nwchx->nchx", weights, chains.unflatten(0, weights.shape))


def amount(operations: Tensor, level: Tensor, negative: Tensor, size: int) -> Tensor:
    """Turn levels of 0 to 10 into degrees, thresholds, shears, pixels and bits; all but shears are whole numbers."""
    most = torch.tensor([0, 0, 4, 256, 30, 0.3, 0.3, size / 3, size / 3], dtype=torch.float64)[operations]
    scaled = level * most / MOST
    scaled = torch.where((operations == SHEAR_X) | (operations == SHEAR_Y), scaled, scaled.trunc())
    scaled = torch.where((operations == POSTERIZE) | (operations == SOLARIZE), most - scaled, scaled)
    return torch.where(negative & (operations >= ROTATE), -scaled, scaled)


def padded_crop(images: Tensor, corner: Tensor, flip: Tensor, pad: int) -> Tensor:
    """Pad images (n, 3, H, H) with black, cut out H x H pixels from ``corner`` on, and mirror where ``flip`` says so."""
    forward = torch.arange(images.shape[-1])
    down, across = corner[:, :1] + forward, corner[:, 1:] + torch.where(flip[:, None], forward.flip(0), forward)
    which = torch.arange(len(images))[:, None, None]
    return F.pad(images, [pad] * 4)[which, :, down[:, :, None], across[:, None, :]].movedim(-1, 1)


def operate(images: Tensor, operations: Tensor, amounts: Tensor, fill: Color) -> None:
    """Apply to each uint8 image (3, H, H) its own operation, in place."""
    pixels = images.permute(0, 2, 3, 1).contiguous().numpy()
    for row, (operation, a) in enumerate(zip(operations.tolist(), amounts.tolist(), strict=True)):
        if operation != NOTHING:
            pixels[row] = FUNCTIONS[OPERATIONS[operation]](Image.fromarray(pixels[row]), a, fill)
    images.copy_(torch.from_numpy(pixels).permute(0, 3, 1, 2))
