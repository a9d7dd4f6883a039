"""CIFAR-10, CIFAR-100 and their corrupted versions: the official files, their locations, reading and verification.

The clean files are pickles; this unpickler accepts only arrays, bytes and plain containers, and runs no code from them."""

import hashlib
import io
import os
import pickle
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ttaps.data.corruptions import SEVERITIES, check_corruption
from ttaps.data.images import ImageSet, map_npy
from ttaps.errors import DataError, UsageError

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_CIFAR100 = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle caterpillar cattle
    chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish forest fox girl hamster house
    kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange
    orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal
    shark shrew skunk skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger
    tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm"""
CIFAR100_CLASSES = tuple(_CIFAR100.split())


@dataclass(frozen=True)
class Layout:
    """One CIFAR set: its official files, the checksums of their contents, and the folder of its corrupted version."""

    name: str
    folder: str
    files: Mapping[str, tuple[str, ...]]  # split -> its files, in order
    sizes: Mapping[str, int]  # split -> images in all its files
    meta: str
    label_key: bytes
    classes: tuple[str, ...]
    archive: str
    archive_md5: str
    digests: Mapping[str, str]  # split -> checksum over pixels and labels
    ordered: bool  # whether the digests depend on the order of the images
    corrupted_folder: str


# The digests were checked against independent sources: CIFAR-10's test labels, and its test images under pixelate, have the md5
# of the official CIFAR-10-C files; the training images of both sets have the published means and standard deviations,
# CIFAR-100's to 14 digits.
CIFAR10 = Layout(
    name="cifar10",
    folder="cifar-10-batches-py",
    files={"train": tuple(f"data_batch_{k}" for k in range(1, 6)), "test": ("test_batch",)},
    sizes={"train": 50_000, "test": 10_000},
    meta="batches.meta",
    label_key=b"labels",
    classes=CIFAR10_CLASSES,
    archive="cifar-10-python.tar.gz",
    archive_md5="c58f30108f718f92721af3b95e74349a",
    digests={"train": "973ef2abb5897efc795681a4d79a6f5f", "test": "2c33b053d1cd726af8d86e174a96dd89"},
    ordered=True,
    corrupted_folder="CIFAR-10-C",
)
CIFAR100 = Layout(
    name="cifar100",
    folder="cifar-100-python",
    files={"train": ("train",), "test": ("test",)},
    sizes={"train": 50_000, "test": 10_000},
    meta="meta",
    label_key=b"fine_labels",
    classes=CIFAR100_CLASSES,
    archive="cifar-100-python.tar.gz",
    archive_md5="eb9058c3a382ffc7106e4002c42a8d85",
    digests={"train": "1da8df67380306c898752e07630834ea", "test": "b6e44deb19674d574732e6b7ad0eda9a"},
    ordered=False,
    corrupted_folder="CIFAR-100-C",
)
LAYOUTS = {layout.name: layout for layout in (CIFAR10, CIFAR100)}
FOLDERS = {f"{layout.name}-c": layout.corrupted_folder for layout in LAYOUTS.values()}


def data_root(option: Path | None = None) -> Path:
    """Return the folder of the data sets: ``option`` (``--data-root``), else ``$TTAPS_DATA``, else ``./data``."""
    return option or Path(os.environ.get("TTAPS_DATA") or "data")


def root_option(root: Path) -> str:
    """Return the option that a recommended command needs to use ``root``; empty if it is the default."""
    return "" if root == data_root() else f" --data-root {shlex.quote(str(root))}"


def split_train(n: int = 50_000, seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split ``n`` training images into four fifths for training and one fifth for validation; return both indices.
    Depends only on ``n`` and ``seed``: with the same seed, every run validates on the same images. Sorting raw draws
    gives the same permutation in every numpy version, which ``Generator.permutation`` does not promise."""
    order = np.argsort(np.random.PCG64(seed).random_raw(n), kind="stable").astype(np.int64)
    return order[n // 5 :], order[: n // 5]


def read_cifar(layout: Layout, root: Path, split: str = "test") -> ImageSet:
    """Read a split, "train" or "test", of CIFAR-10 or of CIFAR-100 with its 100 fine labels."""
    if split not in layout.files:
        raise UsageError(f"{layout.name} has no split {split!r}; choose one of: {', '.join(layout.files)}.")
    count, classes = layout.sizes[split] // len(layout.files[split]), len(layout.classes)
    remedy = f"Download it with: ttaps data download {layout.name}{root_option(root)}"
    images: list[NDArray[np.uint8]] = []
    labels: list[int] = []
    for file in layout.files[split]:
        path = root / layout.folder / file
        batch = read_pickle(path, remedy)
        pixels, numbers = batch.get(b"data"), batch.get(layout.label_key, [])
        if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape != (count, 3072):
            raise DataError(f"{path}: expected its images to be uint8 ({count}, 3072).\n{remedy}")
        right = isinstance(numbers, list) and len(numbers) == count
        if not right or not all(type(number) is int and 0 <= number < classes for number in numbers):
            raise DataError(f"{path}: expected {count} {layout.label_key.decode()} from 0 to {classes - 1}.\n{remedy}")
        images.append(pixels.reshape(count, 3, 32, 32))  # stored as rows of three color planes
        labels += numbers
    return ImageSet(layout.name, np.concatenate(images), np.array(labels, dtype=np.int64), layout.classes)


def read_cifar_c(layout: Layout, root: Path, corruption: str, severity: int = 5) -> ImageSet:
    """Memory-map the test images under one corruption and severity, 1 to 5, from official files or ones built by ttaps."""
    check_corruption(corruption, severity)
    images, labels = (map_corrupted(layout, root, file) for file in (f"{corruption}.npy", "labels.npy"))
    count = layout.sizes["test"]
    part = slice((severity - 1) * count, severity * count)  # a file holds the severities one after the other
    pixels, numbers = images[part].transpose(0, 3, 1, 2), labels[part].astype(np.int64)
    return ImageSet(f"{layout.name}-c", pixels, numbers, layout.classes)


def map_corrupted(layout: Layout, root: Path, file: str) -> NDArray[Any]:
    """Memory-map a file of a corrupted set: the test images, or labels, at all severities."""
    path, remedy = root / layout.corrupted_folder / file, f"ttaps data build {layout.name}-c{root_option(root)}"
    array = map_npy(path, f"Build it with: {remedy}")
    shape = (len(SEVERITIES) * layout.sizes["test"], *(() if file == "labels.npy" else (32, 32, 3)))
    if array.shape != shape or array.dtype != np.uint8:
        raise DataError(f"{path} holds {array.dtype} {array.shape}, expected uint8 {shape}.\nBuild it with: {remedy}")
    return array


def digest(images: ImageSet, ordered: bool) -> str:
    """Return 128 bits of the sha256 of all pixels, image by image as (3, H, W), and then all labels as little-endian int64.
    If not ``ordered``, of the sorted sha256s of every image with its label: the same in any order of the images."""
    pixels, labels = np.ascontiguousarray(images.images), images.labels.astype("<i8")
    if ordered:
        whole = hashlib.sha256(pixels.data)
        whole.update(labels.data)
    else:
        each = (hashlib.sha256(image.tobytes() + label.tobytes()) for image, label in zip(pixels, labels, strict=True))
        whole = hashlib.sha256(b"".join(sorted(one.digest() for one in each)))
    return whole.hexdigest()[:32]


def find_problem(layout: Layout, root: Path) -> str:
    """Return what is wrong with the set under ``root`` by its checksums; empty if every pixel and label is right."""
    try:
        for split, expected in layout.digests.items():
            if digest(read_cifar(layout, root, split), layout.ordered) != expected:
                return f"{root / layout.folder}: {split} images or labels are not {layout.name}'s (wrong checksum)"
    except DataError as error:
        return str(error).splitlines()[0].rstrip(".")
    return ""


def _encode(text: str, codec: str) -> bytes:
    """Stand in for ``_codecs.encode``, which protocol 2 uses to store bytes, always as latin1."""
    if codec != "latin1":
        raise DataError(f"its bytes are encoded as {codec!r}, not as latin1")
    return text.encode("latin1")


ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],  # of numpy 1
    ("numpy._core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],  # of numpy 2
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _encode,
}


class _Unpickler(pickle.Unpickler):
    """An unpickler that refuses all globals except those of arrays and bytes."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise DataError(f"it tries to load {module}.{name}, which a data file does not need")
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
