"""PRIME views against slow, obvious versions: loops over pixels for filters, numpy's sines for colors, scipy for bends."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.ndimage import map_coordinates
from torch import Tensor

from ttaps.data import ImageSet
from ttaps.training.data import TrainBatch
from ttaps.training.objectives import with_prime
from ttaps.views import CropViews, PrimeViews
from ttaps.views.augmix import NOTHING
from ttaps.views.prime import BEND, COLOR, FILTER, FREQUENCIES, PrimeParameters, bent, filtered, recolored

SIZE = 12
KIND = PrimeViews()


def draw(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def images() -> Tensor:
    return torch.randint(0, 256, (7, 3, SIZE, SIZE), generator=draw(1), dtype=torch.uint8)


@pytest.fixture
def parameters() -> PrimeParameters:
    return KIND.sample(7, SIZE, draw())


# --- the same with loops


def slow_filter(image: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Filter (3, H, W) by a sum over the nine neighbors of every pixel; beyond the border is its mirror image."""
    _, height, width = image.shape
    result = np.zeros_like(image)
    for y in range(height):
        for x in range(width):
            for down in range(-1, 2):
                for across in range(-1, 2):
                    row, column = mirrored(y + down, height), mirrored(x + across, width)
                    result[:, y, x] += kernel[down + 1, across + 1] * image[:, row, column]
    return result


def mirrored(place: int, size: int) -> int:
    return -place if place < 0 else 2 * (size - 1) - place if place >= size else place


def slow_color(image: np.ndarray, frequencies: np.ndarray, curves: np.ndarray) -> np.ndarray:
    result = image.copy()
    for channel in range(3):
        for frequency, amplitude in zip(frequencies, curves[channel], strict=True):
            result[channel] += amplitude * np.sin(np.pi * frequency * image[channel])
    return result


def slow_bend(image: np.ndarray, waves: np.ndarray) -> np.ndarray:
    """Read every pixel where the displacement field says, by scipy; beyond the border is the border."""
    size, cutoff = image.shape[-1], waves.shape[-1]
    rows, columns = np.zeros((size, size)), np.zeros((size, size))
    for row in range(size):
        for column in range(size):
            y, x = row / (size - 1), column / (size - 1)
            moved = [y, x]
            for i in range(1, cutoff + 1):
                for j in range(1, cutoff + 1):
                    wave = math.sin(math.pi * i * y) * math.sin(math.pi * j * x)
                    moved[0] += waves[0, i - 1, j - 1] * wave
                    moved[1] += waves[1, i - 1, j - 1] * wave
            rows[row, column], columns[row, column] = (moved[0] * (size - 1), moved[1] * (size - 1))
    return np.stack([map_coordinates(channel, (rows, columns), order=1, mode="nearest") for channel in image])


def slow_view(image: np.ndarray, drawn: PrimeParameters, row: int) -> np.ndarray:
    """One view of one image that is already cropped: chain by chain, link by link."""
    mixture = np.zeros_like(image)
    width, depth = drawn.operations.shape[1:]
    for chain in range(width):
        result = image
        for link in range(depth):
            one = {name: getattr(drawn, name)[row, chain, link].double().numpy() for name in ("kernels", "waves")}
            operation = int(drawn.operations[row, chain, link])
            if operation == FILTER:
                result = slow_filter(result, one["kernels"])
            elif operation == COLOR:
                curves = drawn.curves[row, chain, link].double().numpy()
                result = slow_color(result, drawn.frequencies[row, chain, link].double().numpy(), curves)
            elif operation == BEND:
                result = slow_bend(result, one["waves"])
            result = result.clip(0, 1)
        mixture += float(drawn.weights[row, chain]) * result
    share = float(drawn.mix[row])
    return ((1 - share) * image + share * mixture).clip(0, 1)


def test_filters_are_sums_over_neighbors(images: Tensor, parameters: PrimeParameters) -> None:
    kernels = parameters.kernels[:, 0, 0].double()
    found = filtered(images / 255.0, kernels.float())
    for one, image, kernel in zip(found, images.double() / 255, kernels, strict=True):
        torch.testing.assert_close(
            one.double(), torch.from_numpy(slow_filter(image.numpy(), kernel.numpy())), rtol=0, atol=1e-5
        )


def test_color_curves_are_sums_of_sines(images: Tensor, parameters: PrimeParameters) -> None:
    frequencies, curves = parameters.frequencies[:, 1, 0].double(), parameters.curves[:, 1, 0].double()
    found = recolored(images.double() / 255, frequencies, curves)
    for row, image in enumerate(images.double().numpy() / 255):
        expected = slow_color(image, frequencies[row].numpy(), curves[row].numpy())
        torch.testing.assert_close(found[row], torch.from_numpy(expected), rtol=0, atol=1e-10)


def test_bends_read_pixels_where_the_field_says(images: Tensor, parameters: PrimeParameters) -> None:
    waves = parameters.waves[:, 2, 1].double()
    found = bent(images.double() / 255, waves)
    for row, image in enumerate(images.double().numpy() / 255):
        expected = torch.from_numpy(slow_bend(image, waves[row].numpy()))
        torch.testing.assert_close(found[row], expected, rtol=0, atol=2e-6)  # its places are in single precision
    assert (found - images.double() / 255).abs().max() > 0.05  # the fields are large enough to tell right from wrong


def test_views_are_mixtures_of_chains(images: Tensor, parameters: PrimeParameters) -> None:
    assert {NOTHING, FILTER, COLOR, BEND} == set(parameters.operations.unique().tolist())
    found = KIND.apply(images, parameters)
    for row, image in enumerate(CropViews().apply(images, parameters.crop)):
        expected = torch.from_numpy(slow_view(image.double().numpy(), parameters, row))
        # single precision, frequencies of 100
        torch.testing.assert_close(found[row].double(), expected, rtol=0, atol=2e-4)


# --- batches


def test_a_batch_is_its_images_one_by_one(images: Tensor, parameters: PrimeParameters) -> None:
    whole = KIND.apply(images, parameters)
    for row in range(len(images)):
        alone = KIND.apply(images[row : row + 1], parameters[row : row + 1])
        torch.testing.assert_close(alone[0], whole[row], rtol=0, atol=1e-6)
    chosen = torch.tensor([4, 1])
    torch.testing.assert_close(KIND.apply(images[chosen], parameters[chosen]), whole[chosen], rtol=0, atol=1e-6)


@pytest.mark.parametrize("size", [8, 12, 16])
def test_views_are_images(images: Tensor, parameters: PrimeParameters, size: int) -> None:
    views = KIND.apply(images, parameters, size)
    assert views.shape == (7, 3, size, size)
    assert views.dtype == torch.float32
    assert 0 <= views.min() < views.max() <= 1
    again = KIND.apply(images, KIND.sample(7, SIZE, draw()), size)
    assert torch.equal(views, again)
    assert not torch.equal(views, KIND.apply(images, KIND.sample(7, SIZE, draw(5)), size))


def identity(parameters: PrimeParameters) -> PrimeParameters:
    """The same operations with parameters that change nothing."""
    kernels = torch.zeros_like(parameters.kernels)
    kernels[..., 1, 1] = 1
    curves, waves = torch.zeros_like(parameters.curves), torch.zeros_like(parameters.waves)
    return replace(parameters, kernels=kernels, curves=curves, waves=waves)


@pytest.mark.parametrize("operation", [FILTER, COLOR, BEND, NOTHING])
def test_parameters_of_the_identity_change_nothing(images: Tensor, parameters: PrimeParameters, operation: int) -> None:
    operations = torch.full_like(parameters.operations, operation)
    plain = CropViews().apply(images, parameters.crop)
    views = KIND.apply(images, replace(identity(parameters), operations=operations))
    torch.testing.assert_close(views, plain, rtol=0, atol=1e-5)
    untouched = KIND.apply(images, replace(parameters, mix=torch.zeros(7)))
    torch.testing.assert_close(untouched, plain, rtol=0, atol=1e-6)


# --- what is drawn

MANY = 20_000


@pytest.fixture(scope="module")
def many() -> PrimeParameters:
    return PrimeViews(color_terms=2, bend_cutoff=3).sample(MANY, 32, draw())


def test_weights_are_dirichlet_and_the_share_is_beta(many: PrimeParameters) -> None:
    """Dirichlet(1, 1, 1): mean 1/3, variance 2/36, covariance -1/36; Beta(1, 1): mean 1/2, variance 1/12. Within 5 standard errors."""
    weights = many.weights.double()
    torch.testing.assert_close(weights.sum(1), torch.ones(MANY, dtype=torch.float64), rtol=0, atol=1e-6)
    torch.testing.assert_close(weights.mean(0), torch.full((3,), 1 / 3, dtype=torch.float64), rtol=0, atol=0.009)
    expected = torch.full((3, 3), -1 / 36, dtype=torch.float64)
    expected.fill_diagonal_(2 / 36)
    torch.testing.assert_close(weights.T.cov(), expected, rtol=0, atol=0.003)
    assert many.mix.mean().item() == pytest.approx(1 / 2, abs=0.011)
    assert many.mix.var().item() == pytest.approx(1 / 12, abs=0.003)


def test_chains_have_one_to_three_operations_each_as_often(many: PrimeParameters) -> None:
    used = many.operations != NOTHING
    assert used[:, :, 0].all()
    assert not (used[:, :, 1:] & ~used[:, :, :-1]).any()  # no gaps
    for count in (1, 2, 3):
        assert (used.sum(-1) == count).double().mean().item() == pytest.approx(1 / 3, abs=0.01)
    for operation in (FILTER, COLOR, BEND):
        share = (many.operations[used] == operation).double().mean().item()
        assert share == pytest.approx(1 / 3, abs=0.01)


def test_sizes_of_filters_curves_and_bends(many: PrimeParameters) -> None:
    """A filter's deviation is uniform up to 2, so its variance is 4/3; a curve's variance is uniform up to 0.01."""
    identity = torch.zeros(3, 3)
    identity[1, 1] = 1
    noise = (many.kernels - identity).double()
    assert noise.mean().item() == pytest.approx(0, abs=0.01)
    assert noise.square().mean().item() == pytest.approx(4 / 3, rel=0.02)
    assert many.curves.double().square().mean().item() == pytest.approx(0.005, rel=0.02)
    assert (many.frequencies.min().item(), many.frequencies.max().item()) == (1, 100)
    assert many.frequencies.mean().item() == pytest.approx(50.5, abs=0.5)
    high = many.waves[..., 2, 2]
    assert not high.any()  # 9 + 9 is beyond a cut-off of 3


def test_bends_are_half_a_pixel_at_least_and_one_to_one_at_most() -> None:
    """The root of the mean squared displacement, over many fields, lies between the two ends (Petrini et al., 2021)."""
    size, cutoff = 32, 10
    waves = PrimeViews(width=1, depth=1, bend_cutoff=cutoff).sample(4000, size, draw()).waves.double()
    place = torch.linspace(0, 1, size, dtype=torch.float64)
    sines = (math.pi * place[:, None] * torch.arange(1, cutoff + 1)).sin()
    field = sines @ waves[:, 0, 0] @ sines.T  # (n, 2, size, size)
    pixels = field.square().sum(1).mean().sqrt().item() * size
    assert 0.4 < pixels < 5
    slope = field.diff(dim=-1) * (size - 1)
    assert slope.square().mean().sqrt().item() < 1  # the map keeps its order almost everywhere


# --- in a batch of training


def batch_of(textures: ImageSet, count: int = 16) -> TrainBatch:
    images, labels = torch.from_numpy(textures.images[:count]), torch.from_numpy(textures.labels[:count])
    return TrainBatch(images, labels, seed=0, step=3, size=8, rows=slice(len(images)), total=len(images))


@pytest.mark.parametrize(("share", "replaced"), [(0.0, 0), (0.25, 4), (0.5, 8), (0.3, 4), (1.0, 16)])
def test_a_share_of_the_batch_is_replaced_evenly(share: float, replaced: int, textures: ImageSet) -> None:
    batch = batch_of(textures)
    plain = batch.views(CropViews(), "crop")
    views = with_prime(plain.clone(), batch, share, "prime", (0.5, 1.0))
    prime = batch.views(PrimeViews(scale=(0.5, 1.0)), "prime")
    rows = [row for row in range(16) if not torch.equal(views[row], plain[row])]
    assert len(rows) == replaced
    for row in rows:
        torch.testing.assert_close(views[row], prime[row], rtol=0, atol=1e-6)
    if replaced:
        gaps = np.diff([-1, *rows, 16])
        assert gaps.max() <= math.ceil(1 / share) + 1


@pytest.mark.parametrize("shares", [(slice(0, 8), slice(8, 16)), (slice(0, 5), slice(5, 6), slice(6, 16))])
def test_sharing_the_batch_out_changes_no_view(shares: tuple[slice, ...], textures: ImageSet) -> None:
    batch = batch_of(textures)
    whole = with_prime(batch.views(CropViews(), "crop"), batch, 0.3, "prime", (0.5, 1.0))
    parts = [
        with_prime(own.views(CropViews(), "crop"), own, 0.3, "prime", (0.5, 1.0))
        for own in (replace(batch, images=batch.images[rows], rows=rows, total=16) for rows in shares)
    ]
    torch.testing.assert_close(torch.cat(parts), whole, rtol=0, atol=1e-6)


def test_a_draw_that_rounds_to_one_leaves_no_nan(monkeypatch: pytest.MonkeyPatch, images: Tensor) -> None:
    """It happened after 5,470 batches: log(1 - 1) in the shares of the chains."""
    draws = torch.rand

    def nearly_one(*args: Any, **options: Any) -> Tensor:
        return torch.full_like(draws(*args, **options), 1 - 2**-53)

    monkeypatch.setattr(torch, "rand", nearly_one)
    parameters = KIND.sample(7, SIZE, draw())
    assert parameters.weights.sum(1).tolist() == pytest.approx([1.0] * 7)
    assert KIND.apply(images, parameters).isfinite().all()
    assert parameters.frequencies.max() <= FREQUENCIES
