"""One name, one set of images: what ``--data`` on the command line means."""

from __future__ import annotations

from pathlib import Path

from ttaps.config import did_you_mean
from ttaps.data.cifar import ImageSet, read_cifar10, read_cifar100
from ttaps.data.cifar_c import CORRUPTIONS, FOLDERS, read_cifar_c
from ttaps.data.images import read_image_folder
from ttaps.data.npz import read_npz
from ttaps.data.root import data_root
from ttaps.errors import UsageError

CIFAR = {"cifar10": read_cifar10, "cifar100": read_cifar100}
NAMES = (*CIFAR, *FOLDERS, "sample")


def load_set(
    name: str,
    root: Path | None = None,
    *,
    split: str = "test",
    corruption: str | None = None,
    severity: int = 5,
    size: int = 32,
) -> ImageSet:
    """Load a set by name: cifar10, cifar100, cifar10-c, cifar100-c, sample, an image folder or an ``.npz`` file.

    ``split`` is for CIFAR and the sample, ``corruption`` and ``severity`` for the corrupted sets, ``size`` for image folders.
    """
    folder = data_root(root)
    if name in FOLDERS:
        return read_cifar_c(folder, name, _wanted(name, corruption), severity)
    if name == "sample":
        from ttaps.data.sample import read_sample, read_sample_train

        return read_sample_train() if split == "train" else read_sample(corruption)
    if corruption is not None:
        raise UsageError(
            f"{name} has no corruption {corruption!r}.\nCorrupted images are in: {', '.join(FOLDERS)}, sample."
        )
    if name in CIFAR:
        return CIFAR[name](folder, split)
    return _read_path(name, size)


def _wanted(name: str, corruption: str | None) -> str:
    """Refuse to guess which corruption is meant."""
    if corruption is None:
        raise UsageError(f"Which corruption of {name}?\nChoose one of: {', '.join(CORRUPTIONS)}.")
    return corruption


def is_folder(name: str) -> bool:
    """Say whether a set's name is that of an image folder."""
    return name not in NAMES and not name.endswith(".npz") and Path(name).is_dir()


def _read_path(name: str, size: int) -> ImageSet:
    """Read the user's own images from a folder or an ``.npz`` file."""
    if is_folder(name):
        return read_image_folder(Path(name), size)
    if name.endswith(".npz"):
        return read_npz(Path(name))
    raise UsageError(f"There is no data set, folder or .npz file '{name}'{did_you_mean(name, NAMES)}.")
