"""Images and labels in an ``.npz`` file. The images are mapped, not read: memory does not grow with their number."""

from __future__ import annotations

import math
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from ttaps.data.cifar import ImageSet
from ttaps.errors import DataError
from ttaps.progress import bar

MAX_CLASSES = 100_000
MB = 1 << 20
BLOCK = MB // 4
BIG = 100 * MB  # worth a progress bar
LOCAL_HEADER = (
    30  # bytes before a member's name in a zip file; they end in the lengths of the name and of what follows it
)


class Header(NamedTuple):
    """What an array is, before its first byte."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]


def read_npz(path: Path) -> ImageSet:
    """Map ``images`` (uint8, NHWC or NCHW) of an ``.npz`` file; read its ``labels`` and, if there, ``classes`` (their names).

    Where the images are compressed, they are unpacked into a temporary file first, which ends with the process.
    """
    with _whole(path), zipfile.ZipFile(path) as archive:
        known = [name.removesuffix(".npy") for name in archive.namelist()]
        for name in ("images", "labels"):
            if name not in known:
                raise DataError(f"{path} has no array {name!r}, only: {', '.join(known) or 'nothing'}.")
        with archive.open("images.npy") as stream:
            header = _read_header(stream)
        labels = _read(archive, "labels")
        _check(path, header, labels)
        names = _read(archive, "classes") if "classes" in known else np.arange(int(labels.max()) + 1)
        images = _map(path, archive, "images.npy")
    if images.shape[1] != 3:
        images = images.transpose(0, 3, 1, 2)
    return ImageSet(str(path), images, labels.astype(np.int64), tuple(str(name) for name in names.ravel()))


def _check(path: Path, images: Header, labels: NDArray[Any]) -> None:
    """Refuse what are no images with labels, before any of the images is read."""
    shape = images.shape
    if images.dtype != np.uint8 or len(shape) != 4 or 3 not in (shape[1], shape[3]):
        raise DataError(f"{path}: images are {images.dtype} {shape}, expected uint8 (N, H, W, 3) or (N, 3, H, W).")
    if not np.issubdtype(labels.dtype, np.integer) or labels.shape != shape[:1]:
        raise DataError(f"{path}: labels are {labels.dtype} {labels.shape}, expected integers ({shape[0]},).")
    if not len(labels) or not 0 <= labels.min() <= labels.max() < MAX_CLASSES:
        raise DataError(f"{path}: labels must be there and run from 0 to at most {MAX_CLASSES - 1}.")


def _map(path: Path, archive: zipfile.ZipFile, name: str) -> NDArray[np.uint8]:
    """Map a uint8 array where it lies in the archive, or where it was unpacked to; its checksum is checked on the way."""
    member = archive.getinfo(name)
    with archive.open(member) as stream:
        header, start = _read_header(stream), stream.tell()
        if member.file_size != start + math.prod(header.shape):
            raise ValueError(f"{name} has {member.file_size:,} bytes, not as many as its {header.shape} would take")
        order: Any = "F" if header.fortran else "C"
        if member.compress_type == zipfile.ZIP_STORED:
            for _ in _blocks(stream, member.file_size, f"Checking {path.name}"):
                pass
            return np.memmap(path, np.uint8, "r", _data_offset(path, member) + start, header.shape, order)
        blocks = _blocks(stream, member.file_size, f"Unpacking {path.name}")
        return _unpack(blocks, header.shape, order)


def _data_offset(path: Path, member: zipfile.ZipInfo) -> int:
    """Return where in a zip file a member's bytes begin."""
    with path.open("rb") as file:
        file.seek(member.header_offset)
        name, extra = struct.unpack("<HH", file.read(LOCAL_HEADER)[-4:])
    return member.header_offset + LOCAL_HEADER + int(name) + int(extra)


def _blocks(stream: IO[bytes], size: int, doing: str) -> Iterator[bytes]:
    """Yield what is left of a stream, a little at a time."""
    with bar(shown=size > BIG) as progress:
        task = progress.add_task(doing, total=size // MB, note="MB")
        while block := stream.read(BLOCK):
            yield block
            progress.advance(task, len(block) / MB)


def _unpack(blocks: Iterable[bytes], shape: tuple[int, ...], order: Any) -> NDArray[np.uint8]:
    """Write an array into a temporary file and map it; the file has no name, and is gone with the process."""
    try:
        with tempfile.TemporaryFile() as file:
            file.writelines(blocks)
            file.flush()
            return np.memmap(file, np.uint8, "r", 0, shape, order)
    except OSError as error:
        raise DataError(
            f"Cannot unpack the images into {tempfile.gettempdir()}: {error.strerror}.\n"
            "Let $TMPDIR be a folder with more room, or write the file with numpy.savez, which does not compress."
        ) from error


def _read(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    with archive.open(f"{name}.npy") as stream:
        array: NDArray[Any] = npy.read_array(stream, allow_pickle=False)
        return array


def _read_header(stream: IO[bytes]) -> Header:
    first = npy.read_magic(stream) == (1, 0)
    return Header(*(npy.read_array_header_1_0(stream) if first else npy.read_array_header_2_0(stream)))


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Say what is wrong with a file that is no archive of arrays."""
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(f"There is no file {path}.") from error
    except (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(
            f"{path} is not a whole .npz file ({error}).\nWrite one with numpy.savez, of numbers and of names that are strings."
        ) from error
