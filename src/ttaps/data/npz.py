"""Images and labels as numpy arrays: in an ``.npz`` file, which is read whole, or in a folder of ``.npy`` files, which are mapped."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ttaps.data.cifar import ImageSet
from ttaps.errors import DataError

MAX_CLASSES = 100_000


def read_npz(path: Path) -> ImageSet:
    """Read ``images`` (uint8, NHWC or NCHW), ``labels`` and, if present, ``classes`` (their names) from an ``.npz`` file."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return _image_set(path, list(arrays), arrays.__getitem__)
    except FileNotFoundError as error:
        raise DataError(f"There is no file {path}.") from error
    except MemoryError as error:
        raise DataError(
            f"{path} does not fit into memory.\nUnzip it into a folder and give that: its arrays are mapped."
        ) from error
    except (OSError, ValueError, TypeError, EOFError, AttributeError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(
            f"{path} is not a complete .npz file ({error}).\nWrite one with numpy.savez: numbers, and class names as strings."
        ) from error


def is_npy_folder(path: Path) -> bool:
    """Return whether a folder holds ``images.npy``, as an unzipped ``.npz`` file does."""
    return (path / "images.npy").is_file()


def read_npy_folder(path: Path) -> ImageSet:
    """Map ``images.npy`` of a folder and read its ``labels.npy`` and ``classes.npy``: memory does not grow with the images."""
    names = sorted(file.stem for file in path.glob("*.npy"))
    return _image_set(path, names, lambda name: map_npy(path / f"{name}.npy", "Write it with numpy.save."))


def map_npy(path: Path, remedy: str) -> NDArray[Any]:
    """Memory-map a ``.npy`` file; pickles in it are refused."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(array, np.ndarray):
            raise ValueError("it is an archive")
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing.\n{remedy}") from error
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path} is damaged or truncated ({error}).\n{remedy}") from error
    return array


def _image_set(path: Path, names: list[str], read: Callable[[str], NDArray[Any]]) -> ImageSet:
    """Check the arrays and put them together."""
    for name in ("images", "labels"):
        if name not in names:
            raise DataError(f"{path} has no array {name!r}, only: {', '.join(names) or 'nothing'}.")
    images, labels = read("images"), read("labels")
    shape = images.shape
    if images.dtype != np.uint8 or len(shape) != 4 or 3 not in (shape[1], shape[3]):
        raise DataError(f"{path}: images are {images.dtype} {shape}, expected uint8 (N, H, W, 3) or (N, 3, H, W).")
    if not np.issubdtype(labels.dtype, np.integer) or labels.shape != shape[:1]:
        raise DataError(f"{path}: labels are {labels.dtype} {labels.shape}, expected integers ({shape[0]},).")
    if not len(labels) or not 0 <= labels.min() <= labels.max() < MAX_CLASSES:
        raise DataError(f"{path}: labels must not be empty, and run from 0 to at most {MAX_CLASSES - 1}.")
    classes = read("classes") if "classes" in names else np.arange(int(labels.max()) + 1)
    if shape[1] != 3:
        images = images.transpose(0, 3, 1, 2)
    return ImageSet(str(path), images, labels.astype(np.int64), tuple(classes.astype(str).ravel().tolist()))
