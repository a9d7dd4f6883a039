"""PRIME (Modas et al., 2022): random filters, color curves and smooth bends, mixed as in AugMix.

None of the three is a test corruption. The closest is the bend: CIFAR-C's elastic_transform also displaces pixels smoothly, but
by Gaussian-blurred noise plus an affine map; a bend here is a sum of sines that vanishes at the border and is never affine."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor
from torch.nn import functional as F

from ttaps.config import check_min, check_probability, check_range
from ttaps.views.augmix import mixture, shares, shorten
from ttaps.views.swav import CropViews, Parameters, Rows

FILTER, COLOR, BEND = range(3)
BELOW_ONE = 1 - 2**-24  # a draw that rounded to 1 made the shares of the chains inf / inf, once in 5,470 batches
FREQUENCIES = 100  # of color curves: half waves over the range of a pixel


@dataclass(frozen=True)
class PrimeParameters(Rows):
    """Random parameters of PRIME views; w and d are width and depth."""

    crop: Parameters  # crop and flip, before anything else
    operations: Tensor  # FILTER, COLOR, BEND or augmix.NOTHING in the order in which they are applied; (n, w, d)
    kernels: Tensor  # 3x3 filters, the same for all channels; (n, w, d, 3, 3)
    frequencies: Tensor  # half waves of the color curves; (n, w, d, terms)
    curves: Tensor  # amplitudes of the color curves; (n, w, d, 3, terms)
    waves: Tensor  # amplitudes of the displacement's sines down and across, as shares of a view's side; (n, w, d, 2, cutoff, cutoff)
    weights: Tensor  # shares of the chains in their mixture, which sum to 1; (n, w)
    mix: Tensor  # share of the mixture in the result; (n,)


@dataclass(frozen=True)
class PrimeViews:
    """The published settings for CIFAR, except milder filters (published: 4), fewer sines and a smaller cut-off."""

    scale: tuple[float, float] = (0.5, 1.0)  # range of the crop's share of the image area
    flip_p: float = 0.5  # probability of mirroring
    width: int = 3  # chains that are mixed
    depth: int = 3  # most operations in a chain; each has 1 to this many
    filter_sigma: float = 2.0  # a filter is the identity plus this, at most, times standard normal noise
    color_variance: float = 0.01  # largest variance of the amplitudes of a color curve x + Σ c_k sin(π k x)
    color_terms: int = 10  # sines in a color curve, of random frequencies up to 100
    bend_cutoff: int = 10  # largest frequency of a displacement, in half waves over a view

    def __post_init__(self) -> None:
        check_range(self, "scale", most=1)
        check_probability(self, "flip_p")
        check_min(self, width=1, depth=1, filter_sigma=0, color_variance=0, color_terms=1, bend_cutoff=2)

    def sample(self, n: int, size: int, generator: torch.Generator) -> PrimeParameters:
        """Draw ``n`` views of square images of ``size`` pixels from a CPU generator."""
        links = (n, self.width, self.depth)

        def uniform(*shape: int) -> Tensor:
            drawn = torch.rand(shape, generator=generator, dtype=torch.float64).float()
            return drawn.clamp_(max=BELOW_ONE)

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator, dtype=torch.float64).float()

        crop = CropViews(scale=self.scale, flip_p=self.flip_p).sample(n, size, generator)
        length, weights = uniform(n, self.width), shares(uniform(n, self.width))
        noise = self.filter_sigma * uniform(*links, 1, 1) * normal(*links, 3, 3)
        deviation = (self.color_variance * uniform(*links, 1, 1)).sqrt()
        return PrimeParameters(
            crop=crop,
            operations=shorten((uniform(*links) * 3).long(), length),
            kernels=F.pad(torch.ones(1, 1), [1] * 4) + noise,  # the identity is a one in the middle
            frequencies=(uniform(*links, self.color_terms) * FREQUENCIES).floor() + 1,
            curves=deviation * normal(*links, 3, self.color_terms),
            waves=self._waves(size, uniform(2, *links), normal(*links, 2, self.bend_cutoff, self.bend_cutoff)),
            weights=weights,
            mix=uniform(n),  # Beta(1, 1)
        )

    def _waves(self, size: int, draws: Tensor, noise: Tensor) -> Tensor:
        """Scale noise to displacements between half a pixel and as far as the map stays one-to-one (Petrini et al., 2021).
        With a cut-off c, the amplitude of the wave (i, j) has variance T / (i² + j²), and none beyond i² + j² = c²."""
        cutoff = 2 + (draws[0] * (self.bend_cutoff - 1)).floor()
        ends = 1 / (math.pi * size**2 * cutoff.log()), 4 / (math.pi**3 * cutoff**2 * cutoff.log())
        variance = torch.lerp(torch.minimum(*ends), torch.maximum(*ends), draws[1])[..., None, None, None]
        wave = torch.arange(1.0, self.bend_cutoff + 1)
        squares = wave[:, None] ** 2 + wave**2
        return torch.where(squares <= cutoff[..., None, None, None] ** 2, noise * (variance / squares).sqrt(), 0)

    def apply(self, images: Tensor, parameters: PrimeParameters, size: int = 0, index: Tensor | None = None) -> Tensor:
        """Make one view per row of ``parameters``: (len(parameters), 3, size, size), float in [0, 1]; see :meth:`CropViews.apply`."""
        plain = CropViews().apply(images, parameters.crop, size, index)
        chains = plain.repeat_interleave(self.width, 0)
        for link, (operation, (function, names)) in product(range(self.depth), OPERATIONS.items()):
            rows = (parameters.operations[:, :, link].flatten() == operation).nonzero()[:, 0]
            if len(rows):
                drawn = (getattr(parameters, name)[:, :, link].flatten(0, 1)[rows].to(chains) for name in names)
                chains[rows.to(chains.device)] = function(chains[rows.to(chains.device)], *drawn).clamp_(0, 1)
        mixed = mixture(chains, parameters.weights.to(plain))
        return torch.lerp(plain, mixed, parameters.mix.to(plain).view(-1, 1, 1, 1)).clamp_(0, 1)


def filtered(images: Tensor, kernels: Tensor) -> Tensor:
    """Filter images (n, 3, H, W) by kernels (n, 3, 3), each all of its channels by its own, reflecting at the border."""
    padded = F.pad(images, (1, 1, 1, 1), mode="reflect").transpose(0, 1)
    return F.conv2d(padded, kernels[:, None], groups=len(kernels)).transpose(0, 1)


def recolored(images: Tensor, frequencies: Tensor, curves: Tensor) -> Tensor:
    """Add to every pixel x the sum Σ c_k sin(π k x) of its image's frequencies (n, terms) and its channel's amplitudes (n, 3, terms)."""
    result = images.clone()
    for frequency, amplitude in zip(frequencies.unbind(-1), curves.unbind(-1), strict=True):
        wave = (images * (math.pi * frequency)[:, None, None, None]).sin_()
        result.addcmul_(wave, amplitude[:, :, None, None])
    return result


def bent(images: Tensor, waves: Tensor) -> Tensor:
    """Displace pixels by Σ a_ij sin(π i y) sin(π j x), with the amplitudes (n, 2, c, c) down and across; y and x run from 0 to 1."""
    size, cutoff = images.shape[-1], waves.shape[-1]
    place = torch.linspace(0, 1, size).to(images)
    sines = (math.pi * place[:, None] * torch.arange(1, cutoff + 1).to(images)).sin()  # (size, c)
    down, across = (sines @ waves @ sines.T).unbind(1)
    grid = torch.stack([place + across, place[:, None] + down], dim=-1)
    return F.grid_sample(images, 2 * grid - 1, padding_mode="border", align_corners=True)


OPERATIONS: dict[int, tuple[Callable[..., Tensor], tuple[str, ...]]] = {
    FILTER: (filtered, ("kernels",)),
    COLOR: (recolored, ("frequencies", "curves")),
    BEND: (bent, ("waves",)),
}
