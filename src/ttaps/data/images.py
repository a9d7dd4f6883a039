"""The image set that everything else uses, and the user's own data: an image, a folder with a sub-folder per class, arrays."""

import hashlib
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple, Self
from zipfile import is_zipfile

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from ttaps.errors import DataError
from ttaps.files import cannot_read
from ttaps.progress import bar, log_info

MAX_CLASSES = 100_000
# Folders of class folders that a folder may have instead of classes.
SPLITS = {"train": ("train",), "test": ("test", "val")}


class Limits(NamedTuple):
    """Which image files are decoded."""

    pixels: int
    side: int  # in pixels
    pixels_of_mode: Mapping[str, int]  # instead of ``pixels``, by Pillow's name of a kind of pixel
    formats: tuple[str, ...] | None  # None: all that Pillow knows

    def most(self, mode: str) -> int:
        """Return how many pixels an image of a mode may have."""
        return self.pixels_of_mode.get(mode.partition(";")[0], self.pixels)


FILES = Limits(100_000_000, 20_000, {}, None)


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
            span = f"{labels.min()} to {labels.max()}"
            raise DataError(f"{self.name}: labels run from {span}, expected 0 to {len(self.classes) - 1}.")

    def __len__(self) -> int:
        return len(self.images)

    def part(self, indices: NDArray[np.int64]) -> Self:
        """Return some of the images."""
        return replace(self, images=self.images[indices], labels=self.labels[indices])


def set_digest(classes: Iterable[str], labels: NDArray[np.int64], images: Iterable[NDArray[np.uint8]] = ()) -> str:
    """Return a hash of class names, labels and images, which identifies a data set."""
    digest = hashlib.blake2b("\n".join(classes).encode(errors="surrogateescape"), digest_size=6)
    digest.update(labels.astype("<i8").tobytes())
    for image in images:
        digest.update(image.tobytes())
    return digest.hexdigest()


def read_image(
    file: Path | IO[bytes], size: int = 32, limits: Limits = FILES, name: str = "What was given"
) -> tuple[NDArray[np.uint8], str | None]:
    """Read an image file with Pillow as (3, size, size); the note says what was done if it had another size."""
    path, mode = file if isinstance(file, Path) else getattr(file, "name", name), ""
    try:
        with warnings.catch_warnings():
            # Pillow warns from 89 megapixels on; the limit here is checked before anything is decoded.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(file, formats=limits.formats) as image:
                if image.format == "EPS":
                    raise UnidentifiedImageError  # it is a program, which Pillow would let Ghostscript run
                (width, height), mode = image.size, image.mode
                if width * height > limits.most(mode) or max(width, height) > limits.side:
                    raise Image.DecompressionBombError(f"{width}x{height} pixels")
                image.load()
    except FileNotFoundError as error:
        raise DataError(f"There is no file {path}.") from error
    except (IsADirectoryError, PermissionError) as error:
        raise DataError(f"Cannot read {path}: {error.strerror}.") from error
    except UnidentifiedImageError as error:
        raise DataError(f"{path} is not an image that Pillow can read.\nGive a PNG, JPEG, WebP or similar.") from error
    except Image.DecompressionBombError as error:
        of = f" of {mode}" if limits.pixels_of_mode and mode else ""
        limit = f"{limits.most(mode) // 10**6} megapixels{of} and {limits.side:,} pixels a side"
        raise DataError(f"{path} is too large ({error}): at most {limit} are read.\nMake it smaller first.") from error
    except Exception as error:  # on damaged bytes Pillow's decoders raise whatever their parser ran into
        raise DataError(f"{path} is damaged or truncated ({error}).\nRestore it from a copy, or remove it.") from error
    return fit(image, size)


def fit(image: Image.Image, size: int = 32) -> tuple[NDArray[np.uint8], str | None]:
    """Return any image as (3, size, size), and a note on what was done if it had another size.
    It is rotated upright (EXIF), transparent parts become white, and it is center-cropped to a square and resized smoothly."""
    image, note = _to_rgb(image), None
    width, height = image.size
    if (width, height) != (size, size):
        side = min(width, height)
        left, top = (width - side) // 2, (height - side) // 2
        # crop() first: resize(box=...) lets pixels from outside the box into its edges.
        image = image.crop((left, top, left + side, top + side)).resize((size, size), Image.Resampling.BICUBIC)
        crop = "" if width == height else "cropped to a square and "
        note = f"{crop}resized from {width}x{height} to {size}x{size}"
    return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1)), note


def resized(image: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Return an image (3, H, W) as (3, size, size), cropped and resized like one from a file."""
    if image.shape[1:] == (size, size):
        return image
    return fit(Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0))), size)[0]


def _to_rgb(image: Image.Image) -> Image.Image:
    """Turn an image upright and convert it to 8 bits per channel, transparent parts over white."""
    with suppress(Exception):  # damaged EXIF: Pillow's parser raises whatever it ran into
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith(("I", "F")):  # Pillow would clip 16-bit values at 255, and make floats from 0 to 1 black
        gray = np.nan_to_num(np.asarray(image).astype(np.float64))
        scale = 1 / 257 if image.mode.startswith("I") else 255 if gray.max() <= 1 else 1
        image = Image.fromarray(np.rint(gray * scale).clip(0, 255).astype(np.uint8))
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer)
    return image.convert("RGB")


@dataclass(frozen=True, eq=False)
class ImageFolder:
    """A folder with a sub-folder of images per class; images are read on demand."""

    path: Path
    size: int
    files: tuple[str, ...]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        """The files' paths within the folder."""
        return [os.path.relpath(file, self.path) for file in self.files]

    def read(self, index: int) -> NDArray[np.uint8]:
        """Read one image as (3, size, size)."""
        return read_image(Path(self.files[index]), self.size)[0]

    def read_all(self) -> Iterator[NDArray[np.uint8]]:
        """Read images one by one, and report at the end how many had another size."""
        resized = 0
        with bar() as progress:
            task = progress.add_task(f"Reading {self.path.name}", total=len(self.files), note="")
            for file in self.files:
                image, note = read_image(Path(file), self.size)
                resized += note is not None
                progress.advance(task)
                yield image
        if resized:
            counts = f"{resized} of {len(self.files)} images"
            log_info(f"{self.path}: {counts} had another size and were resized to {self.size}x{self.size}.")

    def load(self) -> ImageSet:
        """Return all images as one set."""
        images = np.empty((len(self.files), 3, self.size, self.size), dtype=np.uint8)
        for index, image in enumerate(self.read_all()):
            images[index] = image
        return ImageSet(str(self.path), images, self.labels, self.classes)


def open_image_folder(path: Path, size: int = 32) -> ImageFolder:
    """List the images of a folder that has one sub-folder per class; classes are numbered in alphabetical order."""
    layout = f"Expected one sub-folder per class: {path / 'CLASS' / 'image.png'}"
    if not path.is_dir():
        raise DataError(f"{path} is not a folder.\n{layout}")
    folders = sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not folders:
        raise DataError(f"{path} has no sub-folders, so the images have no labels.\n{layout}")
    files = [list(map(str, _class_files(folder))) for folder in folders]
    labels = np.repeat(np.arange(len(folders), dtype=np.int64), [len(names) for names in files])
    return ImageFolder(path, size, tuple(chain(*files)), labels, tuple(folder.name for folder in folders))


def _class_files(folder: Path) -> list[Path]:
    """Return the images of a class's folder."""
    files = image_files(folder)
    if not files:
        raise DataError(f"{folder} holds no images.\nEvery sub-folder is a class: remove it or put its images there.")
    if all(file.parent != folder for file in files):  # as in dataset/train/cat/1.png, where "train" is no class
        wrong = f"{folder} holds no images, only folders of images, so '{folder.name}' is not a class."
        right = files[0].parent.parent
        raise DataError(f"{wrong}\nGive the folder whose sub-folders are the classes, such as {right}.")
    return files


def split_folder(path: Path, split: str) -> Path:
    """Return the part of a folder for ``train`` or ``test`` if it has both, each with class folders; any other folder as it is."""
    parts = {name: [path / one for one in known if _has_only_folders(path / one)] for name, known in SPLITS.items()}
    return parts[split][0] if all(parts.values()) else path


def _has_only_folders(path: Path) -> bool:
    entries = [entry for entry in path.iterdir() if not entry.name.startswith(".")] if path.is_dir() else []
    suffixes = Image.registered_extensions()
    return any(entry.is_dir() for entry in entries) and not any(entry.suffix.lower() in suffixes for entry in entries)


def image_files(folder: Path) -> list[Path]:
    """Return the images in a folder and its sub-folders, sorted by name; hidden files and folders are skipped."""
    suffixes = Image.registered_extensions()
    images = (file for file in folder.rglob("*") if file.suffix.lower() in suffixes and file.is_file())
    return sorted(file for file in images if "/." not in f"/{file.relative_to(folder).as_posix()}")


def read_arrays(path: Path) -> ImageSet:
    """Read ``images`` (uint8, NHWC or NCHW), ``labels`` and, if present, ``classes`` (their names).
    An ``.npz`` file is read whole; images in a folder of ``.npy`` files are memory-mapped, so memory does not grow with them."""
    if path.is_dir():
        names = sorted(file.stem for file in path.glob("*.npy"))
        return _image_set(path, names, lambda name: map_npy(path / f"{name}.npy", "Write it with numpy.save."))
    try:
        with path.open("rb") as file:
            if not is_zipfile(file):
                raise ValueError("it is no zip archive")
            file.seek(0)
            arrays = np.load(file, allow_pickle=False)
            return _image_set(path, list(arrays), arrays.__getitem__)
    except FileNotFoundError as error:
        raise DataError(f"There is no file {path}.") from error
    except OSError as error:
        raise cannot_read(path, error) from error
    except DataError:
        raise
    except MemoryError as error:
        raise DataError(f"{path} does not fit into memory.\nUnzip it into a folder, which is mapped.") from error
    except Exception as error:  # numpy reads headers with Python's own parser, which raises almost anything
        remedy = "Restore it from a copy, or write one with numpy.savez: numbers, and class names as strings."
        raise DataError(f"{path} is not a complete .npz file ({error}).\n{remedy}") from error


def map_npy(path: Path, remedy: str) -> NDArray[Any]:
    """Memory-map a ``.npy`` file; pickles in it are refused."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(array, np.ndarray):
            raise ValueError("it is an archive")
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing.\n{remedy}") from error
    except Exception as error:  # as above
        raise DataError(f"{path} is damaged or truncated ({error}).\n{remedy}") from error
    return array


def _image_set(path: Path, names: list[str], read: Callable[[str], NDArray[Any]]) -> ImageSet:
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
