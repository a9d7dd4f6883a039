"""Where data sets are on disk, the official files of CIFAR-10 and CIFAR-100, and the checksums that prove them right."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_CIFAR100 = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
    caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant
    flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree
    motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate
    poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider
    squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
    wardrobe whale willow_tree wolf woman worm
"""
CIFAR100_CLASSES = tuple(_CIFAR100.split())


@dataclass(frozen=True)
class Layout:
    """One CIFAR set: its official files, and the checksums of what is inside them."""

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
    digests={
        "train": "973ef2abb5897efc795681a4d79a6f5f642fa2bcb1a828f7476017c89db53a57",
        "test": "2c33b053d1cd726af8d86e174a96dd89d7000ba1412add026d68142375b89d51",
    },
    ordered=True,
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
    digests={
        "train": "1da8df67380306c898752e07630834ea42f7ab26c3f384f3cb27280383e9a74f",
        "test": "b6e44deb19674d574732e6b7ad0eda9a598ed0f3d30fc0b69707ea53e2d150bc",
    },
    ordered=False,
)
LAYOUTS = {"cifar10": CIFAR10, "cifar100": CIFAR100}


def data_root(option: Path | None = None) -> Path:
    """Return the folder of the data sets: ``option`` (``--data-root``), else ``$TTAPS_DATA``, else ``./data``."""
    return option or Path(os.environ.get("TTAPS_DATA") or "data")


def root_option(root: Path) -> str:
    """Return the option that a recommended command needs to use ``root``; empty where it would use it anyway."""
    return "" if root == data_root() else f" --data-root {shlex.quote(str(root))}"
