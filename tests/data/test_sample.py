"""The sample inside the package: real CIFAR-10 images, balanced, and corrupted as the builder corrupts them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from make_sample import to_sheet
from ttaps.data.cifar import CIFAR10_CLASSES
from ttaps.data.corruptions import corrupt_set
from ttaps.data.sample import FOLDER, SAMPLE_CORRUPTIONS, SEVERITY, from_sheet, read_sample, read_sample_train
from ttaps.errors import UsageError

INDICES = np.array(json.loads((FOLDER / "indices.json").read_text())["test"])
"""The place of each of the 200 images in CIFAR-10's test set."""


def test_the_first_images_are_balanced() -> None:
    for images, count in ((read_sample(), 200), (read_sample_train(), 500)):
        assert images.images.shape == (count, 3, 32, 32)
        assert images.classes == CIFAR10_CLASSES
        assert np.array_equal(images.labels, np.tile(np.arange(10), count // 10))


def test_images_are_those_of_cifar10() -> None:
    """The digests are of the official images at these places, of a test set whose checksum was right."""
    test, train = read_sample(), read_sample_train()
    assert hashlib.md5(np.ascontiguousarray(test.images).tobytes()).hexdigest() == "6408d72d1324ab29c03b234d5dac7cd0"
    assert hashlib.md5(np.ascontiguousarray(train.images).tobytes()).hexdigest() == "c59ebc23e4c08a420e03ae65e5439917"


def test_indices_are_the_first_of_each_class() -> None:
    indices = INDICES.reshape(20, 10)
    assert (np.diff(indices, axis=0) > 0).all()
    assert indices[0].tolist() == [3, 6, 25, 0, 22, 12, 4, 13, 1, 11]
    assert indices.max() < 10_000


@pytest.mark.parametrize("name", SAMPLE_CORRUPTIONS)
def test_corrupted_images_are_what_the_builder_makes(name: str) -> None:
    clean, corrupted = read_sample(), read_sample(name)
    made = corrupt_set(clean.images.transpose(0, 2, 3, 1), name, SEVERITY, seed=0, indices=INDICES)
    assert np.array_equal(corrupted.images.transpose(0, 2, 3, 1), made)


def test_sheets_are_cut_as_they_were_laid_out() -> None:
    images = np.random.default_rng(0).integers(0, 256, (30, 32, 32, 3), dtype=np.uint8)
    sheet = to_sheet(images)
    assert sheet.shape == (320, 96, 3)
    assert np.array_equal(sheet[:32, 32:64], images[10])
    assert np.array_equal(from_sheet(sheet), images)


def test_an_unknown_corruption_is_refused() -> None:
    with pytest.raises(UsageError, match="no corruption 'rain'"):
        read_sample("rain")


def test_the_sample_stays_small() -> None:
    folder = Path(__file__).parents[2] / "src" / "ttaps" / "data" / "sample"
    assert sum(file.stat().st_size for file in folder.iterdir()) < 4.5e6
