"""Checksums over pixels and labels: they tell whether a set is right, whichever way and in whichever file it came."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ttaps.data.cifar import ImageSet, read_split
from ttaps.data.cifar_files import Layout
from ttaps.errors import DataError

CHUNK = 1 << 20


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


def problem(layout: Layout, root: Path) -> str | None:
    """Return what is wrong with the set under ``root``, or None if every pixel and label is right."""
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


def file_md5(path: Path, advance: Callable[[int], object] = lambda count: None) -> str:
    """Return the md5 of a file; ``advance`` is called with the number of bytes after each chunk."""
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            advance(len(chunk))
    return digest.hexdigest()
