"""CIFAR-10 and CIFAR-100 from their official files, and the set of images everything else works on.

The official files are pickles; the unpickler here knows arrays, bytes and plain containers, and runs nothing hidden in one.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ttaps.data.cifar_files import LAYOUTS, Layout, root_option
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


def read_cifar(name: str, root: Path, split: str = "test") -> ImageSet:
    """Read a split ("train" or "test") of "cifar10" or "cifar100" (with its 100 fine labels) from the official files."""
    return read_split(LAYOUTS[name], root, split)


def read_split(layout: Layout, root: Path, split: str) -> ImageSet:
    """Read a split of a set in the given layout."""
    if split not in layout.files:
        raise UsageError(f"{layout.name} has no split {split!r}; choose one of: {', '.join(layout.files)}.")
    files = layout.files[split]
    count = layout.sizes[split] // len(files)
    images, labels = zip(*(_read_file(layout, root / layout.folder / file, count) for file in files), strict=True)
    return ImageSet(layout.name, np.concatenate(images), np.concatenate(labels), layout.classes)


def split_train(n: int = 50_000, seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split ``n`` training images into four fifths to learn from and one fifth to validate on; return both indices.

    A function of ``n`` and ``seed`` alone: keep the seed and every run validates on the same images. Sorting raw draws
    gives the same permutation in every numpy version, which ``Generator.permutation`` does not promise.
    """
    order = np.argsort(np.random.PCG64(seed).random_raw(n), kind="stable").astype(np.int64)
    return order[n // 5 :], order[: n // 5]


def _read_file(layout: Layout, path: Path, count: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Read one file of ``count`` images, stored as rows of three 32x32 color planes, and their labels."""
    remedy = f"Download it with: ttaps data download {layout.name}{root_option(path.parent.parent)}"
    batch, classes = read_pickle(path, remedy), len(layout.classes)
    data, labels = batch.get(b"data"), batch.get(layout.label_key, [])
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape != (count, 3072):
        found = f"{data.dtype} {data.shape}" if isinstance(data, np.ndarray) else type(data).__name__
        raise DataError(f"{path}: its images are {found}, expected uint8 ({count}, 3072).\n{remedy}")
    right = isinstance(labels, list) and len(labels) == count
    if not right or not all(type(label) is int and 0 <= label < classes for label in labels):
        raise DataError(f"{path}: expected {count} {layout.label_key.decode()} from 0 to {classes - 1}.\n{remedy}")
    return data.reshape(count, 3, 32, 32), np.array(labels, dtype=np.int64)


def ordered_digest(images: ImageSet) -> str:
    """Return the sha256 of all pixels, image by image as (3, H, W), and then all labels as little-endian int64."""
    digest = hashlib.sha256(np.ascontiguousarray(images.images).data)
    digest.update(images.labels.astype("<i8").data)
    return digest.hexdigest()


def unordered_digest(images: ImageSet) -> str:
    """Return the sha256 of the sorted sha256s of every image with its label: the same in any order of the images."""
    pixels = np.ascontiguousarray(images.images)
    labels = images.labels.astype("<i8")
    each = (hashlib.sha256(image.tobytes() + label.tobytes()) for image, label in zip(pixels, labels, strict=True))
    return hashlib.sha256(b"".join(sorted(one.digest() for one in each))).hexdigest()


def find_problem(layout: Layout, root: Path) -> str | None:
    """Return what is wrong with the set under ``root`` by its checksums; None if every pixel and label is right."""
    digest = ordered_digest if layout.ordered else unordered_digest
    for split, expected in layout.digests.items():
        try:
            found = digest(read_split(layout, root, split))
        except DataError as error:
            return str(error).splitlines()[0].rstrip(".")
        if found != expected:
            return (
                f"{root / layout.folder}: the {split} images or labels are not those of {layout.name} (wrong checksum)"
            )
    return None


_reconstruct: Any = np.empty(0).__reduce__()[0]  # numpy moved its module between versions 1 and 2


def _encode(text: str, codec: str) -> bytes:
    """Stand in for ``_codecs.encode``, which protocol 2 uses to store bytes, always as latin1."""
    if codec != "latin1":
        raise DataError(f"its bytes are encoded as {codec!r}, not as latin1")
    return text.encode("latin1")


ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _encode,
}


class _Unpickler(pickle.Unpickler):
    """An unpickler that refuses every global but those of arrays and bytes."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise DataError(f"it wants to load {module}.{name}, which a data file does not need")
        return ALLOWED[module, name]


def read_pickle(path: Path, remedy: str) -> dict[bytes, Any]:
    """Return the dictionary in a CIFAR file; ``remedy`` ends the message if the file is missing, damaged or unsafe."""
    try:
        content = _Unpickler(io.BytesIO(path.read_bytes()), encoding="bytes").load()
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing.\n{remedy}") from error
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror or error}.\n{remedy}") from error
    except DataError as error:
        raise DataError(f"{path} was refused: {error}.\n{remedy}") from error
    except Exception as error:  # damaged bytes can make an unpickler raise almost anything
        raise DataError(f"{path} is damaged or truncated ({error or type(error).__name__}).\n{remedy}") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} holds a {type(content).__name__}, not a batch of images.\n{remedy}")
    return content
