"""CIFAR-10-C and CIFAR-100-C: the test images under 19 corruptions, from the official files or from ones built here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ttaps.config import did_you_mean
from ttaps.data.cifar import ImageSet
from ttaps.data.cifar_files import CIFAR10_CLASSES, CIFAR100_CLASSES, root_option
from ttaps.data.npz import map_npy
from ttaps.errors import DataError, UsageError

# In the order of the paper's tables.
CORRUPTIONS = (
    "brightness", "contrast", "defocus_blur", "elastic_transform", "fog", "frost", "gaussian_noise", "glass_blur",
    "impulse_noise", "jpeg_compression", "motion_blur", "pixelate", "shot_noise", "snow", "zoom_blur",
)  # fmt: skip
EXTRA_CORRUPTIONS = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
FOLDERS = {"cifar10-c": "CIFAR-10-C", "cifar100-c": "CIFAR-100-C"}
CLASSES = {"cifar10-c": CIFAR10_CLASSES, "cifar100-c": CIFAR100_CLASSES}
SEVERITIES = range(1, 6)
IMAGES = 10_000  # at each severity; a file holds the severities one after the other


def read_cifar_c(root: Path, name: str, corruption: str, severity: int = 5) -> ImageSet:
    """Map the test images of ``name`` ("cifar10-c" or "cifar100-c") under one corruption at one severity, 1 to 5."""
    if name not in FOLDERS:
        raise UsageError(f"No corrupted set {name!r}; choose one of: {', '.join(FOLDERS)}.")
    check_corruption(corruption)
    if severity not in SEVERITIES:
        raise UsageError(f"Severity {severity} does not exist; choose 1, 2, 3, 4 or 5.")
    remedy = f"Build it with: ttaps data build {name}{root_option(root)}"
    images = map_array(root / FOLDERS[name] / f"{corruption}.npy", (5 * IMAGES, 32, 32, 3), remedy)
    labels = map_array(root / FOLDERS[name] / "labels.npy", (5 * IMAGES,), remedy)
    part = slice((severity - 1) * IMAGES, severity * IMAGES)
    return ImageSet(name, images[part].transpose(0, 3, 1, 2), labels[part].astype(np.int64), CLASSES[name])


def check_corruption(corruption: str) -> None:
    """Refuse a name that is not one of the 19 corruptions, and suggest the nearest."""
    known = CORRUPTIONS + EXTRA_CORRUPTIONS
    if corruption not in known:
        raise UsageError(f"Unknown corruption '{corruption}'{did_you_mean(corruption, known)}.")


def map_array(path: Path, shape: tuple[int, ...], remedy: str) -> NDArray[Any]:
    """Memory-map a ``.npy`` file that must hold uint8 numbers of the given shape."""
    array = map_npy(path, remedy)
    if array.shape != shape or array.dtype != np.uint8:
        raise DataError(f"{path} holds {array.dtype} {array.shape}, expected uint8 {shape}.\n{remedy}")
    return array
