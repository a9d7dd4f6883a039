"""A small bundled sample: 200 test images of CIFAR-10, clean and corrupted, and 500 training images.

The first 20 test images of every class, corrupted at severity 5 exactly as ``ttaps data build cifar10-c`` with seed 0 does,
and the first 50 training images of every class. Classes alternate, so that the first 10 n images are balanced.
``tools/make_sample.py`` writes the files: lossless sheets, one row per class."""

from importlib.resources import files

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ttaps.data.cifar import CIFAR10_CLASSES
from ttaps.data.images import ImageSet
from ttaps.errors import UsageError

SAMPLE_CORRUPTIONS = (
    "contrast", "defocus_blur", "fog", "frost", "gaussian_noise", "glass_blur", "impulse_noise", "jpeg_compression", "snow",
)  # fmt: skip
SEVERITY = 5
FOLDER = files("ttaps.data") / "sample"


def read_sample(corruption: str | None = None) -> ImageSet:
    """Read the 200 test images, clean or under one of ``SAMPLE_CORRUPTIONS``."""
    if corruption is not None and corruption not in SAMPLE_CORRUPTIONS:
        raise UsageError(f"The sample has no corruption {corruption!r}.\nChoose: {', '.join(SAMPLE_CORRUPTIONS)}.")
    return _read("sample", f"test-{corruption or 'clean'}.webp")


def read_sample_train() -> ImageSet:
    """Read the 500 training images."""
    return _read("sample-train", "train.webp")


def from_sheet(sheet: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Cut a sheet (10·32, n·32, 3) into images (10 n, 32, 32, 3), column after column."""
    return sheet.reshape(10, 32, -1, 32, 3).transpose(2, 0, 1, 3, 4).reshape(-1, 32, 32, 3)


def _read(name: str, file: str) -> ImageSet:
    with (FOLDER / file).open("rb") as sheet:
        images = from_sheet(np.asarray(Image.open(sheet)))
    labels = np.arange(len(images), dtype=np.int64) % len(CIFAR10_CLASSES)
    return ImageSet(name, images.transpose(0, 3, 1, 2), labels, CIFAR10_CLASSES)
