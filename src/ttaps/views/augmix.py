"""AugMix (Hendrycks et al., 2020) as MEMO uses it on CIFAR-10: crop and flip, three chains of mild operations, and their mixture.

The nine operations are those that no test corruption uses. Like Pillow's they work on 8-bit values; only the mixture does not round.
Four of them are a table of values, five an affine map, so a batch of chains takes two steps per link, whatever was drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ttaps.config import check_min, check_probability
from ttaps.errors import UsageError
from ttaps.views import pillow
from ttaps.views.parameters import Rows
from ttaps.views.swav import check_images

AUTOCONTRAST, EQUALIZE, POSTERIZE, SOLARIZE, ROTATE, SHEAR_X, SHEAR_Y, TRANSLATE_X, TRANSLATE_Y = range(9)
TONES, SHIFTS = (
    ("autocontrast", "equalize", "posterize", "solarize"),
    ("shear_x", "shear_y", "translate_x", "translate_y"),
)
OPERATIONS = (*TONES, "rotate", *SHIFTS)
NOTHING = -1
LEAST = 0.1  # levels are drawn from here up to the severity
LEVELS = 10  # of which each operation has its greatest amount


@dataclass(frozen=True)
class Mixture(Rows):
    """What was drawn for AugMix views."""

    corner: Tensor
    """Top and left of the crop in the padded image; integers, (n, 2)."""
    flip: Tensor
    """Mirror left to right; bool, (n,)."""
    operations: Tensor
    """Indices into OPERATIONS in the order in which they are applied, or NOTHING; (n, width, depth)."""
    amounts: Tensor
    """Degrees, thresholds, shears, pixels or bits of the operations; float, (n, width, depth)."""
    weights: Tensor
    """Shares of the chains in their mixture, which sum to 1; float, (n, width)."""
    keep: Tensor
    """Share of the image without operations in the result; float, (n,)."""


@dataclass(frozen=True)
class AugmixViews:
    """MEMO's settings by default."""

    severity: float = 1.0
    """Levels are drawn between 0.1 and this; at 10 an operation has its greatest amount."""
    width: int = 3
    """Chains that are mixed."""
    depth: int = 3
    """Most operations in a chain; each has 1 to this many."""
    pad: int = 4
    """Black border in pixels before the random crop; 0 crops nothing."""
    flip_p: float = 0.5
    """Probability of mirroring."""
    fill: tuple[int, int, int] = (128, 0, 0)
    """Color of what comes in from outside: what Pillow makes of the authors' ``fillcolor=128``."""

    def __post_init__(self) -> None:
        check_min(self, severity=LEAST, width=1, depth=1, pad=0)
        check_probability(self, "flip_p")
        if self.severity > LEVELS:
            raise UsageError(f"severity must be at most {LEVELS}, not {self.severity}.")

    def sample(self, n: int, size: int, generator: torch.Generator) -> Mixture:
        """Draw ``n`` views of square images of ``size`` pixels from a CPU generator."""
        links = self.width * self.depth
        draws = torch.rand(n, 4 + 2 * self.width + 3 * links, generator=generator, dtype=torch.float64)
        place, weight, length, link = draws.split_with_sizes([4, self.width, self.width, 3 * links], dim=1)
        kind, level, sign = link.view(n, 3, self.width, self.depth).unbind(1)
        operations = (kind * len(OPERATIONS)).long()
        amounts = amount(operations, LEAST + level * (self.severity - LEAST), sign < 0.5, size)
        used = torch.arange(self.depth) <= (length * self.depth).long()[..., None]  # 1 to depth of them
        exponential = -torch.log1p(-weight)
        return Mixture(
            corner=(place[:, :2] * (2 * self.pad + 1)).long(),
            flip=place[:, 2] < self.flip_p,
            operations=torch.where(used, operations, NOTHING),
            amounts=amounts,
            weights=(exponential / exponential.sum(1, keepdim=True)).float(),  # Dirichlet(1, 1, 1)
            keep=place[:, 3].float(),  # Beta(1, 1)
        )

    def apply(self, images: Tensor, parameters: Mixture, index: Tensor | None = None) -> Tensor:
        """Make one view per row of ``parameters``: (len(parameters), 3, H, H), float in [0, 1], on the images' device.

        ``images`` are (N, 3, H, H), uint8 or float in [0, 1]; view i is made of image ``index[i]``; without an index, of image i, or
        of the only image. The work is done on the CPU: it is small, and other devices lack its integers and doubles.
        """
        check_images(images, parameters, index)
        pixels = images.cpu() if images.dtype == torch.uint8 else images.cpu().mul(255).round().to(torch.uint8)
        sources = pixels[index.cpu()] if index is not None else pixels.expand(len(parameters), -1, -1, -1)
        plain = crop(sources, parameters.corner, parameters.flip, self.pad)
        chains = plain.repeat_interleave(self.width, 0)
        for link in range(self.depth):
            drawn, amounts = parameters.operations[..., link].flatten(), parameters.amounts[..., link].flatten()
            operate(chains, drawn, amounts, self.fill)
        mixed = torch.einsum("nw,nwchx->nchx", parameters.weights, chains.unflatten(0, (-1, self.width)) / 255)
        return torch.lerp(mixed, plain / 255, parameters.keep.view(-1, 1, 1, 1)).clamp_(0, 1).to(images.device)


def amount(operations: Tensor, level: Tensor, negative: Tensor, size: int) -> Tensor:
    """Turn levels of 0 to 10 into degrees, thresholds, shears, pixels and bits; all but shears are whole numbers."""
    greatest = torch.tensor([0, 0, 4, 256, 30, 0.3, 0.3, size / 3, size / 3], dtype=torch.float64)[operations]
    scaled = level * greatest / LEVELS
    shears = (operations == SHEAR_X) | (operations == SHEAR_Y)
    scaled = torch.where(shears, scaled, scaled.trunc())
    scaled = torch.where(operations == POSTERIZE, 4 - scaled, scaled)
    scaled = torch.where(operations == SOLARIZE, 256 - scaled, scaled)
    return torch.where(negative & (operations >= ROTATE), -scaled, scaled)


def crop(images: Tensor, corner: Tensor, flip: Tensor, pad: int) -> Tensor:
    """Pad images (n, 3, H, H) with black, cut out H x H pixels from ``corner`` on, and mirror where ``flip`` says so."""
    size = images.shape[-1]
    down = corner[:, :1] + torch.arange(size)
    across = corner[:, 1:] + torch.where(flip[:, None], torch.arange(size - 1, -1, -1), torch.arange(size))
    padded = F.pad(images, [pad] * 4)
    which = torch.arange(len(images))[:, None, None]
    return padded[which, :, down[:, :, None], across[:, None, :]].movedim(-1, 1)


def operate(images: Tensor, operations: Tensor, amounts: Tensor, fill: tuple[int, int, int]) -> None:
    """Apply to each uint8 image its own operation, in place."""
    for operation, tables in TABLES.items():
        rows = (operations == operation).nonzero()[:, 0]
        if len(rows):
            images[rows] = pillow.look_up(images[rows], tables(images[rows], amounts[rows]))
    rows = (operations >= ROTATE).nonzero()[:, 0]
    if len(rows):
        images[rows] = pillow.affine(images[rows], maps(operations[rows], amounts[rows], images.shape[-1]), fill)


TABLES: dict[int, Callable[[Tensor, Tensor], Tensor]] = {
    AUTOCONTRAST: lambda images, amounts: pillow.autocontrast_tables(images),
    EQUALIZE: lambda images, amounts: pillow.equalize_tables(images),
    POSTERIZE: lambda images, amounts: pillow.posterize_tables(amounts),
    SOLARIZE: lambda images, amounts: pillow.solarize_tables(amounts),
}


def maps(operations: Tensor, amounts: Tensor, size: int) -> Tensor:
    """Return the affine matrices (n, 2, 3) of rotations, shears and translations."""
    matrices = torch.eye(2, 3, dtype=torch.float64).repeat(len(operations), 1, 1)
    for operation, row, column in ((SHEAR_X, 0, 1), (SHEAR_Y, 1, 0), (TRANSLATE_X, 0, 2), (TRANSLATE_Y, 1, 2)):
        matrices[operations == operation, row, column] = amounts[operations == operation]
    turned = operations == ROTATE
    matrices[turned] = pillow.rotation(amounts[turned], size)
    return matrices
