"""The corruptions that settings are tuned on: what each must do by its definition, and that none is one of the test's."""

from __future__ import annotations

import numpy as np
import pytest

from ttaps.data.corruptions import (
    CORRUPTIONS,
    SEVERITIES,
    TUNING_CORRUPTIONS,
    UNLIKE_CORRUPTIONS,
    cbar,
    corrupt,
    corrupt_set,
)
from ttaps.data.sample import read_sample

FLAT = np.full((32, 48, 3), 100, dtype=np.uint8)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_tuning_never_sees_a_corruption_of_the_test() -> None:
    assert len(CORRUPTIONS) == 15
    assert not set(CORRUPTIONS) & set(TUNING_CORRUPTIONS)


@pytest.mark.parametrize("name", UNLIKE_CORRUPTIONS)
def test_damage_grows_with_the_severity(name: str) -> None:
    images = np.ascontiguousarray(read_sample().images[:60].transpose(0, 2, 3, 1))
    errors = [float(((corrupt_set(images, name, s) - images.astype(float)) ** 2).mean()) for s in SEVERITIES]
    assert errors == sorted(errors)
    assert errors[0] > 1


@pytest.mark.parametrize("name", ["ripple", "pinch_and_twirl", "circular_motion_blur", "chromatic_aberration"])
def test_what_only_moves_pixels_leaves_one_color_alone(name: str) -> None:
    changed = FLAT - corrupt(FLAT, name, 5, rng())
    assert changed.max() <= 1  # a fraction is cut off


def test_moves_have_the_stated_reach() -> None:
    """Of an image whose red is the row and whose green is the column, the change of a value is the distance moved."""
    rows, columns = np.mgrid[:32, :32]
    places = np.stack([rows, columns, 0 * rows], -1).astype(np.uint8)
    moved = np.abs(cbar.ripple(places, 5, rng())[4:-4, 4:-4] - places[4:-4, 4:-4])[..., :2]
    assert 0.9 * 32 * 0.036 < np.hypot(*np.moveaxis(moved, -1, 0)).max() <= 32 * 0.036 + 1e-9
    bent = cbar.pinch_and_twirl(places, 5, rng())
    still = np.all(np.isclose(bent, places), -1)
    assert still[[0, 0, -1, -1], [0, -1, 0, -1]].all()
    assert not still.all()
    magnified = cbar.chromatic_aberration(places, 5)
    middle = 15.5
    assert np.allclose(magnified[4:-4, 4:-4, 0] - middle, (1 - 0.16) * (places[4:-4, 4:-4, 0] - middle))
    assert np.array_equal(magnified[..., 1], places[..., 1])


def test_a_turn_about_the_center_keeps_circles() -> None:
    rows, columns = np.mgrid[:33, :33] - 16
    disk = np.repeat((255 * np.exp(-(rows**2 + columns**2) / 200))[..., None], 3, -1).astype(np.uint8)
    inside = np.hypot(rows, columns) < 14
    assert np.abs(cbar.circular_motion_blur(disk, 5) - disk)[inside].max() < 4
    bar = np.where((np.abs(rows) < 2)[..., None], disk, 0).astype(np.uint8)
    assert np.abs(cbar.circular_motion_blur(bar, 5) - bar)[inside].max() > 50


def test_the_board_covers_half() -> None:
    covered = np.any(cbar.checkerboard_cutout(FLAT[:, :32], 1, rng()) != 100, -1)
    assert covered.mean() == 0.5
    assert np.array_equal(covered[:-4], ~covered[4:])
    assert np.array_equal(covered[:, :-4], ~covered[:, 4:])


def test_glints_only_add_light_and_lines_stay_lines() -> None:
    assert (cbar.sparkles(FLAT, 5, rng()) >= FLAT).all()
    touched = np.any(np.abs(cbar.lines(FLAT, 1, rng(1)) - FLAT) > 1e-6, -1)
    rows, columns = np.nonzero(touched)
    centered = np.stack([rows - rows.mean(), columns - columns.mean()])
    width, length = np.sqrt(np.linalg.eigvalsh(centered @ centered.T / len(rows)))
    assert width < 1
    assert length > 8


def test_brown_noise_has_its_spectrum() -> None:
    """Mean power over many draws at two frequencies: the ratio is (f2 / f1)^3."""
    gray = np.full((32, 32, 3), 128, dtype=np.uint8)
    noise = np.stack([cbar.brownish_noise(gray, 1, rng(n))[..., 0] for n in range(400)])
    power = (np.abs(np.fft.fft2(noise - noise.mean((1, 2), keepdims=True))) ** 2).mean(0)
    assert power[0, 2] / power[0, 8] == pytest.approx(4**3, rel=0.3)
    assert noise.std() == pytest.approx(0.06 * 255, rel=0.02)
