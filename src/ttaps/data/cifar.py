"""CIFAR-10 and CIFAR-100 from their official files, and the set of images everything else works on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ttaps.data.cifar_files import CIFAR10, CIFAR100, Layout
from ttaps.data.pickles import read_pickle
from ttaps.data.root import asking_for
from ttaps.errors import DataError, UsageError


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images with their labels; the images may be a view of a memory-mapped file."""

    name: str
    images: NDArray[np.uint8]  # (N, 3, H, W)
    labels: NDArray[np.int64]  # (N,)
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        images, labels = self.images, self.labels
        if images.ndim != 4 or images.shape[1] != 3 or images.dtype != np.uint8:
            raise DataError(f"{self.name}: images are {images.dtype} {images.shape}, expected uint8 (N, 3, H, W).")
        if labels.shape != (len(images),) or labels.dtype != np.int64:
            raise DataError(f"{self.name}: labels are {labels.dtype} {labels.shape}, expected int64 ({len(images)},).")
        if len(labels) and not 0 <= labels.min() <= labels.max() < len(self.classes):
            raise DataError(
                f"{self.name}: labels run from {labels.min()} to {labels.max()}, expected 0 to {len(self.classes) - 1}."
            )

    def __len__(self) -> int:
        return len(self.images)


def read_cifar10(root: Path, split: str = "test") -> ImageSet:
    """Read a split ("train" or "test") of ``root/cifar-10-batches-py``."""
    return read_split(CIFAR10, root, split)


def read_cifar100(root: Path, split: str = "test") -> ImageSet:
    """Read a split ("train" or "test") of ``root/cifar-100-python``, with the 100 fine labels."""
    return read_split(CIFAR100, root, split)


def read_split(layout: Layout, root: Path, split: str) -> ImageSet:
    """Read a split of a set in the given layout."""
    if split not in layout.files:
        raise UsageError(f"{layout.name} has no split {split!r}; choose one of: {', '.join(layout.files)}.")
    files = layout.files[split]
    count = layout.sizes[split] // len(files)
    parts = [_read_file(layout, root / layout.folder / file, count) for file in files]
    images = np.concatenate([images for images, _ in parts])
    return ImageSet(layout.name, images, np.concatenate([labels for _, labels in parts]), layout.classes)


def split_train(n: int = 50_000, seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split ``n`` training images into four fifths to learn from and one fifth to validate on; return both indices.

    A function of ``n`` and ``seed`` alone: keep the seed and every run validates on the same images. Sorting raw draws
    gives the same permutation in every numpy version, which ``Generator.permutation`` does not promise.
    """
    order = np.argsort(np.random.PCG64(seed).random_raw(n), kind="stable").astype(np.int64)
    return order[n // 5 :], order[: n // 5]


def _read_file(layout: Layout, path: Path, count: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Read one file of ``count`` images, stored as rows of three 32x32 color planes."""
    remedy = f"Get it with: ttaps data get {layout.name}{asking_for(path.parent.parent)}"
    batch = read_pickle(path, remedy)
    data, labels = batch.get(b"data"), _labels(batch.get(layout.label_key), len(layout.classes))
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape != (count, 3072):
        found = f"{data.dtype} {data.shape}" if isinstance(data, np.ndarray) else type(data).__name__
        raise DataError(f"{path}: its images are {found}, expected uint8 ({count}, 3072).\n{remedy}")
    if labels is None or labels.shape != (count,):
        key = layout.label_key.decode()
        raise DataError(f"{path}: expected {count} {key} from 0 to {len(layout.classes) - 1}.\n{remedy}")
    return data.reshape(count, 3, 32, 32), labels


def _labels(values: Any, classes: int) -> NDArray[np.int64] | None:
    """Return a list of labels as an array, or None if it is anything else."""
    if not isinstance(values, list) or not all(type(value) is int and 0 <= value < classes for value in values):
        return None
    return np.array(values, dtype=np.int64)
