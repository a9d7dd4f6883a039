"""Corruptions: the deterministic ones against the official files, the random ones against exact properties of their recipe."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from fractions import Fraction
from math import erf, exp, lgamma, log, sqrt
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ttaps.data import CORRUPTIONS, EXTRA_CORRUPTIONS
from ttaps.data.corruptions import (
    DETERMINISTIC,
    RANDOM,
    SEVERITIES,
    TUNING_CORRUPTIONS,
    blur,
    corrupt,
    corrupt_one,
    corrupt_set,
    digital,
    noise,
    tools,
    weather,
)
from ttaps.data.sample import read_sample
from ttaps.errors import MissingExtra, UsageError

Array = NDArray[np.uint8]

# Of the first 30 sample images at severities 1 to 5, read from files whose whole md5 is the official one.
OFFICIAL = {
    "defocus_blur": "28f438d6294e0ae8ce7e0e98846a318f",
    "zoom_blur": "0f294b28be6a44c2a664c802e6125d51",
    "brightness": "7499de839548f313248fb506033a16e9",
    "contrast": "b6b480ff1de993a351431d47f304e5ab",
    "pixelate": "c47672ab41324f39c86da452ba1d161b",
    "jpeg_compression": "ab7f74ce2e67d08c6c8c13bd5109a456",
    "gaussian_blur": "64bdb66014f9cf5347aa5071c0289af6",
    "saturate": "f04047535dbb06d79df64efe71875058",
}


def sample(count: int) -> Array:
    return np.ascontiguousarray(read_sample().images[:count].transpose(0, 2, 3, 1))


def flat(level: int) -> Array:
    return np.full((32, 32, 3), level, dtype=np.uint8)


def draws(function: Callable[[np.random.Generator], NDArray[np.float64]], count: int) -> NDArray[np.float64]:
    return np.stack([function(np.random.default_rng(seed)) for seed in range(count)])


def assert_moments(values: NDArray[np.float64], mean: float, variance: float) -> None:
    """Compare mean and variance of independent, nearly normal values with what they must be, within 5 standard errors."""
    assert abs(values.mean() - mean) < 5 * sqrt(variance / values.size)
    assert abs(values.var() / variance - 1) < 5 * sqrt(2 / values.size)


def assert_share(hits: NDArray[np.bool_], share: float) -> None:
    """Compare a share of independent trials with its probability, within 5 standard errors."""
    assert abs(hits.mean() - share) < 5 * sqrt(share * (1 - share) / hits.size)


def test_all_nineteen_are_there() -> None:
    assert {*DETERMINISTIC, *RANDOM} == {*CORRUPTIONS, *TUNING_CORRUPTIONS}
    assert len({*CORRUPTIONS, *EXTRA_CORRUPTIONS}) == 19


@pytest.mark.parametrize("name", OFFICIAL)
def test_deterministic_corruptions_equal_the_official_files(name: str) -> None:
    images = sample(30)
    corrupted = np.stack([corrupt_set(images, name, severity) for severity in SEVERITIES])
    assert hashlib.md5(corrupted.tobytes()).hexdigest() == OFFICIAL[name]


@pytest.mark.parametrize("name", ["gaussian_noise", "contrast", "frost"])
def test_an_image_depends_on_its_own_index_only(name: str) -> None:
    images = sample(6)
    whole = corrupt_set(images, name, 3, seed=1)
    assert np.array_equal(corrupt_set(images[[4, 1]], name, 3, seed=1, indices=[4, 1]), whole[[4, 1]])
    # Another order in memory, as the readers give.
    planes_last = images.transpose(0, 3, 1, 2).copy().transpose(0, 2, 3, 1)
    assert np.array_equal(corrupt_set(planes_last, name, 3, seed=1), whole)
    one = corrupt_one(images[4].transpose(2, 0, 1), name, 3, seed=1, index=4)
    assert np.array_equal(one, whole[4].transpose(2, 0, 1))
    assert (name in DETERMINISTIC) == np.array_equal(corrupt_set(images, name, 3, seed=2), whole)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_gaussian_noise_has_its_sigma(severity: int) -> None:
    sigma = 255 * (0.04, 0.06, 0.08, 0.09, 0.10)[severity - 1]
    values = draws(lambda rng: corrupt(flat(128), "gaussian_noise", severity, rng).astype(float), 40)
    assert_moments(values, mean=128 - 0.5, variance=sigma**2 + 1 / 12)  # fractions are cut off


@pytest.mark.parametrize("severity", SEVERITIES)
def test_speckle_noise_is_proportional_to_light(severity: int) -> None:
    sigma = 100 * (0.06, 0.10, 0.12, 0.16, 0.20)[severity - 1]
    values = draws(lambda rng: corrupt(flat(100), "speckle_noise", severity, rng).astype(float), 40)
    assert_moments(values, mean=100 - 0.5, variance=sigma**2 + 1 / 12)
    assert not corrupt(flat(0), "speckle_noise", severity, np.random.default_rng(0)).any()


@pytest.mark.parametrize("severity", SEVERITIES)
def test_shot_noise_counts_photons(severity: int) -> None:
    photons = (500, 250, 100, 75, 50)[severity - 1]
    rate = 0.2 * photons
    counts = np.arange(photons + 1)
    chances = np.array([exp(k * log(rate) - rate - lgamma(k + 1)) for k in counts])
    levels = counts / photons * 255
    mean = float(chances @ levels)
    values = draws(lambda rng: noise.shot_noise(flat(51), severity, rng), 40)
    assert_moments(values, mean=mean, variance=float(chances @ (levels - mean) ** 2))
    assert set(np.unique(values.round(9))) <= set(levels.round(9))


@pytest.mark.parametrize("severity", SEVERITIES)
def test_impulse_noise_hits_channels_independently(severity: int) -> None:
    amount = (0.01, 0.02, 0.03, 0.05, 0.07)[severity - 1]
    values = draws(lambda rng: noise.impulse_noise(flat(128), severity, rng), 60)
    hit = values != 128
    assert set(np.unique(values)) == {0.0, 128.0, 255.0}
    assert_share(hit, amount)
    assert_share(values[hit] == 255, 0.5)
    assert_share(hit[..., 0] & hit[..., 1], amount**2)


def test_motion_blur_equals_imagemagick() -> None:
    """The reference was blurred by ImageMagick 7.1.2 (``image.motionBlur(...)`` of npm's magick-wasm 0.0.43)."""
    reference = np.load(Path(__file__).parents[1] / "reference" / "motion_blur.npz")
    for image, (radius, sigma, degrees), blurred in zip(
        sample(10), reference["settings"], reference["blurred"], strict=True
    ):
        assert np.array_equal(tools.motion_blur(image, int(radius), sigma, degrees), blurred)


def test_motion_blur_moves_within_45_degrees_of_the_horizontal() -> None:
    dot = flat(0)
    dot[16, 16] = 255
    trails = draws(lambda rng: blur.motion_blur(dot, 5, rng).astype(float), 200)
    _, rows, columns, _ = np.nonzero(trails)
    assert (columns <= 16).all()  # every pixel looks to its right, so a dot is smeared to the left
    assert (abs(rows - 16) <= 16 - columns).all()
    assert rows.min() < 12
    assert rows.max() > 20


@pytest.mark.parametrize(("radius", "sigma"), [(6, 1.0), (9, 2.5), (14, 12.0)])
def test_motion_kernel_is_half_a_gaussian(radius: int, sigma: float) -> None:
    kernel = tools.motion_kernel(radius, sigma)
    assert len(kernel) == 2 * radius + 1
    assert abs(kernel.sum() - 1) < 1e-15
    assert np.allclose(np.log(kernel[1:] / kernel[0]), [-(k**2) / (2 * sigma**2) for k in range(1, len(kernel))], 1e-12)


def test_glass_blur_copies_pixel_by_pixel_from_the_lower_right() -> None:
    image = sample(1)[0]
    moves = np.random.default_rng(0).integers(0, 2, size=(2, 30, 30))
    expected = image.copy()
    for row in range(31, 1, -1):
        for column in range(31, 1, -1):
            up, left = moves[:, row - 2, column - 2]
            expected[row, column] = expected[row - up, column - left]
    assert np.array_equal(blur.copy_neighbors(image, *moves), expected)


def test_glass_blur_moves_each_way_equally_often() -> None:
    rows, columns = np.mgrid[:32, :32]
    places = 8 * np.stack([rows, columns, rows], axis=-1).astype(np.uint8)
    moved = draws(lambda rng: blur.glass_blur(places, 1, rng), 40)  # sigma 0.05 blurs nothing
    up, left = rows - (moved[..., 0] / 8).round(), columns - (moved[..., 1] / 8).round()
    for way in (up, left):
        assert not way[:, :2].any()
        assert not way[:, :, :2].any()
    for move in ((0, 0), (0, 1), (1, 0), (1, 1)):
        assert_share(((up == move[0]) & (left == move[1]))[:, 2:, 2:], 0.25)


def slow_plasma(decay: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Diamond-square, point by point, on a torus."""
    cloud = np.zeros((32, 32))
    step, wibble = 32, 100.0

    def fill(top: int, left: int, around: list[tuple[int, int]]) -> None:
        noise = wibble * rng.uniform(-wibble, wibble, size=(32 // step, 32 // step))
        for row in range(32 // step):
            for column in range(32 // step):
                y, x = row * step + top, column * step + left
                cloud[y, x] = sum(cloud[(y + dy) % 32, (x + dx) % 32] for dy, dx in around) / 4 + noise[row, column]

    while step >= 2:
        half = step // 2
        diamond = [(-half, 0), (half, 0), (0, -half), (0, half)]
        fill(half, half, [(-half, -half), (-half, half), (half, -half), (half, half)])
        fill(0, half, diamond)
        fill(half, 0, diamond)
        step, wibble = half, wibble / decay
    cloud -= cloud.min()
    return np.asarray(cloud / cloud.max())


@pytest.mark.parametrize("decay", [3.0, 2.5, 2.0, 1.75])
def test_fog_is_a_diamond_square_fractal(decay: float) -> None:
    cloud = weather.plasma(32, decay, np.random.default_rng(3))
    assert np.allclose(cloud, slow_plasma(decay, np.random.default_rng(3)), rtol=0, atol=1e-12)
    assert cloud.min() == 0
    assert cloud.max() == 1


@pytest.mark.parametrize("severity", SEVERITIES)
def test_fog_keeps_the_brightest_value(severity: int) -> None:
    thickness = (0.2, 0.5, 0.75, 1.0, 1.5)[severity - 1]
    foggy = weather.fog(flat(200), severity, np.random.default_rng(0))
    assert foggy.max() == pytest.approx(200, abs=1e-9)
    assert foggy.min() == pytest.approx(200 * (200 / 255) / (200 / 255 + thickness), abs=1e-9)


def test_frost_draws_five_images_and_every_place(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []

    def drawn_image(name: str, *_size: float) -> Array:
        drawn.append(name)
        rows, columns = np.mgrid[:70, :105]
        return np.stack([rows, columns, rows], axis=-1).astype(np.uint8)

    monkeypatch.setattr(weather, "frost_image", drawn_image)
    corners = draws(lambda rng: weather.frost(flat(0), 5, rng)[0, 0] / 0.45, 4000).round(9)
    for name in weather.FROST_IMAGES:
        assert_share(np.array([one == name for one in drawn]), 0.2)
    assert set(corners[:, 0]) == set(range(70 - 32))  # the last place of all is never drawn, as in the recipe
    assert set(corners[:, 1]) == set(range(105 - 32))


def test_frost_images_are_the_official_ones_at_a_fifth() -> None:
    shapes = {name: weather.frost_image(name, 0.2, 32, 32).shape for name in weather.FROST_IMAGES}
    assert list(shapes.values()) == [(120, 180, 3), (63, 112, 3), (63, 112, 3), (70, 105, 3), (99, 132, 3)]
    pixels = b"".join(weather.frost_image(name, 0.2, 32, 32).tobytes() for name in weather.FROST_IMAGES)
    assert hashlib.md5(pixels).hexdigest() == "55ff0c40245d79d7c77b37e83625080d"


def test_snow_falls_as_often_as_it_should(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "motion_blur", lambda flakes, *_args, **_keywords: flakes)
    snowy = draws(lambda rng: weather.snow(flat(0), 1, rng), 40)
    untouched = 255 * (1 - 0.95) * 0.5
    no_flake = 0.5 * (1 + erf((0.6 - 0.1) / 0.2 / sqrt(2)))
    half = snowy[:, :16, :, 0]  # the other half is its image: flakes fall once upright and once upside down
    assert_share(np.isclose(half, untouched, rtol=0, atol=1e-5), no_flake**2)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_snow_on_black_is_grey_and_the_same_upside_down(severity: int) -> None:
    snowy = weather.snow(flat(0), severity, np.random.default_rng(severity))
    assert np.allclose(snowy, snowy[::-1, ::-1], rtol=0, atol=1e-9)
    assert np.array_equal(snowy[..., 0], snowy[..., 1])
    assert np.array_equal(snowy[..., 0], snowy[..., 2])
    keep = (0.95, 0.9, 0.9, 0.85, 0.8)[severity - 1]
    assert snowy.min() >= 255 * (1 - keep) * 0.5 - 1e-4
    assert snowy.max() > snowy.min()


@pytest.mark.parametrize("severity", [1, 2, 3])
def test_water_only_brightens_and_is_turquoise(severity: int) -> None:
    wet = weather.spatter(flat(0), severity, np.random.default_rng(severity))
    assert np.allclose(wet.max(axis=(0, 1)), np.array((175, 238, 238)) / 2, atol=1e-4)
    assert np.allclose(wet[..., 0] / 175, wet[..., 1] / 238, atol=1e-6)
    assert (weather.spatter(flat(90), severity, np.random.default_rng(severity)) >= 90 - 1e-4).all()


@pytest.mark.parametrize("severity", [4, 5])
def test_mud_covers_at_least_four_fifths_or_nothing(severity: int) -> None:
    dirty = draws(lambda rng: weather.spatter(flat(200), severity, rng), 20)
    cover = (200 - dirty) / (200 - np.array((63, 42, 20)))
    assert np.allclose(cover[..., 0], cover[..., 2], atol=1e-6)
    blot = cover[..., 0] > 1e-6
    assert (cover[..., 0][blot] >= 0.8 - 1e-6).all()
    assert cover.max() <= 1 + 1e-6
    assert 0 < blot.mean() < 1


@pytest.mark.parametrize(("reach", "smooth"), [(2.56, 1.92), (3.2, 1.28), (3.2, 0.96)])
def test_elastic_ripple_has_the_variance_of_smoothed_noise(reach: float, smooth: float) -> None:
    radius = int(3 * smooth + 0.5)
    weights = np.exp(-0.5 * (np.arange(-radius, radius + 1) / smooth) ** 2)
    weights /= weights.sum()
    variance = reach**2 / 3 * float((weights**2).sum()) ** 2
    maps = draws(lambda rng: digital.ripple((32, 32), reach, smooth, rng).astype(float), 300)
    assert abs(maps).max() <= reach
    apart = maps[:, 8:25:16, 8:25:16]  # 16 pixels apart: no noise is shared
    assert_moments(apart, mean=0, variance=variance)


def test_elastic_shear_moves_three_corners_by_at_most_its_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    cv2 = tools.require("cv2")
    moves = []
    transform = cv2.getAffineTransform

    def watch(corners: NDArray[np.float32], moved: NDArray[np.float32]) -> NDArray[np.float64]:
        moves.append(moved - corners)
        return np.asarray(transform(corners, moved))

    monkeypatch.setattr(cv2, "getAffineTransform", watch)
    for seed in range(200):
        digital.elastic_transform(flat(9), 1, np.random.default_rng(seed))
    assert_moments(np.array(moves, dtype=float), mean=0, variance=2.56**2 / 3)
    assert 2.5 < np.abs(moves).max() <= 2.56
    assert digital.elastic_transform(flat(9), 5, np.random.default_rng(0)) == pytest.approx(9, abs=1e-4)


def test_wrong_requests_are_refused_with_a_remedy() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(UsageError, match="did you mean 'fog'"):
        corrupt(flat(0), "fogg", 1, rng)
    with pytest.raises(UsageError, match=r"1, 2, 3, 4 or 5, not 6"):
        corrupt(flat(0), "fog", 6, rng)
    with pytest.raises(UsageError, match=r"\(32, 32\)"):
        corrupt(np.zeros((32, 32), dtype=np.uint8), "fog", 1, rng)
    with pytest.raises(UsageError, match="8 to 4096 pixels a side, not 32x7"):
        corrupt(np.zeros((7, 32, 3), dtype=np.uint8), "fog", 1, rng)
    with pytest.raises(UsageError, match="2 images and 3 indices"):
        corrupt_set(sample(2), "fog", 1, indices=[1, 2, 3])


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(MissingExtra, match=r"ttaps\[corruptions\]"):
        corrupt(flat(0), "defocus_blur", 1, np.random.default_rng(0))


def test_luminance_is_fused_on_every_machine() -> None:
    """Each step against exact fractions, rounded once to 64 and once to 32 bits."""
    light = np.random.default_rng(0).random((5, 7, 3), dtype=np.float32)
    weights = [Fraction(float(np.float32(weight))) for weight in (0.299, 0.587, 0.114)]
    for place in np.ndindex(5, 7):
        gray = Fraction(0)
        for value, weight in zip(light[place], weights, strict=True):
            gray = Fraction(float(np.float32(float(weight * Fraction(float(value)) + gray))))
        assert float(weather.luminance(light)[place]) == gray
