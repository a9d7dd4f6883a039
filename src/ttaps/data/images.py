"""The user's own images: one file, or a folder with a sub-folder per class."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from ttaps.data.cifar import ImageSet
from ttaps.errors import DataError
from ttaps.progress import bar, log_info

MAX_PIXELS = 100_000_000
MAX_SIDE = 20_000


def read_image(path: Path, size: int = 32) -> tuple[NDArray[np.uint8], str | None]:
    """Read any image Pillow can, as (3, size, size); the note says what was done if it had another size."""
    return fit(_decode(path), size)


def fit(image: Image.Image, size: int = 32) -> tuple[NDArray[np.uint8], str | None]:
    """Return any image as (3, size, size), and a note on what was done if it had another size.

    It is turned upright (EXIF), transparent parts become white, and if it is not square it is cropped around its center
    before it is resized with antialiasing.
    """
    image = _over_white(_eight_bits(_upright(image)))
    width, height = image.size
    note = None
    if (width, height) != (size, size):
        side = min(width, height)
        left, top = (width - side) // 2, (height - side) // 2
        # crop() first: resize(box=...) lets pixels from outside the box into its edges.
        image = image.crop((left, top, left + side, top + side)).resize((size, size), Image.Resampling.BICUBIC)
        crop = "" if width == height else "cropped to a square and "
        note = f"{crop}resized from {width}x{height} to {size}x{size}"
    return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1)), note


@dataclass(frozen=True, eq=False)
class ImageFolder:
    """A folder with a sub-folder of images per class; an image is read when it is needed."""

    path: Path
    size: int
    files: tuple[str, ...]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]

    def read(self, index: int) -> NDArray[np.uint8]:
        """Read one image as (3, size, size)."""
        return read_image(Path(self.files[index]), self.size)[0]

    def read_all(self) -> Iterator[NDArray[np.uint8]]:
        """Read one image after the other, and report at the end how many had another size."""
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


def open_image_folder(path: Path, size: int = 32) -> ImageFolder:
    """List the images of a folder that has one sub-folder per class; the classes are numbered in the order of their names."""
    layout = f"Expected one sub-folder per class: {path / 'CLASS' / 'image.png'}"
    if not path.is_dir():
        raise DataError(f"{path} is not a folder.\n{layout}")
    folders = sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not folders:
        raise DataError(f"{path} has no sub-folders, so the images have no labels.\n{layout}")
    files = [_image_files(folder) for folder in folders]
    labels = np.repeat(np.arange(len(folders), dtype=np.int64), [len(names) for names in files])
    return ImageFolder(path, size, tuple(chain(*files)), labels, tuple(folder.name for folder in folders))


def read_image_folder(path: Path, size: int = 32) -> ImageSet:
    """Read all images of a folder that has one sub-folder per class."""
    folder = open_image_folder(path, size)
    images = np.empty((len(folder.files), 3, size, size), dtype=np.uint8)
    for index, image in enumerate(folder.read_all()):
        images[index] = image
    return ImageSet(str(path), images, folder.labels, folder.classes)


def _decode(path: Path) -> Image.Image:
    """Open an image and read all of it, or say what is wrong with it."""
    try:
        with warnings.catch_warnings():
            # Pillow warns from 89 megapixels on; the limit here is checked before anything is decoded.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(path) as image:
                _check_size(path, *image.size)
                image.load()
                return image
    except DataError:
        raise
    except Exception as error:  # on damaged bytes Pillow's decoders raise whatever their parser ran into
        raise DataError(_what_is_wrong(path, error)) from error


def _what_is_wrong(path: Path, error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return f"There is no file {path}."
    if isinstance(error, IsADirectoryError | PermissionError):
        return f"Cannot read {path}: {error.strerror}."
    if isinstance(error, UnidentifiedImageError):
        return f"{path} is not an image that Pillow can read.\nGive a PNG, JPEG, WebP or similar file."
    if isinstance(error, Image.DecompressionBombError):
        return f"{path} is too large: over {MAX_PIXELS // 10**6} megapixels.\nMake it smaller first."
    return f"{path} is damaged or truncated ({error})."


def _check_size(path: Path, width: int, height: int) -> None:
    """Refuse an image that would take gigabytes to decode."""
    if width * height > MAX_PIXELS or max(width, height) > MAX_SIDE:
        raise DataError(
            f"{path} is too large: {width}x{height} pixels, at most {MAX_PIXELS // 10**6} megapixels and "
            f"{MAX_SIDE:,} pixels a side are read.\nMake it smaller first."
        )


def _upright(image: Image.Image) -> Image.Image:
    """Turn an image as its EXIF says; one whose EXIF is damaged stays as it is."""
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # Pillow's parser raises whatever it ran into
        return image


def _eight_bits(image: Image.Image) -> Image.Image:
    """Scale 16-bit gray values, which Pillow would clip at 255, and floats from 0 to 1, which it would make black, to 8 bits."""
    if not image.mode.startswith(("I", "F")):
        return image
    gray = np.nan_to_num(np.asarray(image).astype(np.float64))
    scale = 1 / 257 if image.mode.startswith("I") else 255 if gray.max() <= 1 else 1
    return Image.fromarray(np.rint(gray * scale).clip(0, 255).astype(np.uint8))


def _over_white(image: Image.Image) -> Image.Image:
    """Return the image as RGB, transparent parts over white."""
    if not image.has_transparency_data:
        return image.convert("RGB")
    layer = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")


def _image_files(folder: Path) -> list[str]:
    """Return the image files of a class's folder, in the order of their names; hidden files and folders are left out."""
    suffixes = Image.registered_extensions()
    files = sorted(
        file
        for file in folder.rglob("*")
        if file.suffix.lower() in suffixes
        and not any(part.startswith(".") for part in file.relative_to(folder).parts)
        and file.is_file()
    )
    if not files:
        raise DataError(f"{folder} holds no images.\nEvery sub-folder is a class: remove it or put its images there.")
    if all(file.parent != folder for file in files):  # as in dataset/train/cat/1.png, where "train" is no class
        raise DataError(
            f"{folder} holds no images, only folders of images, so '{folder.name}' is not a class.\n"
            f"Give the folder whose sub-folders are the classes, such as {folder}."
        )
    return list(map(str, files))
