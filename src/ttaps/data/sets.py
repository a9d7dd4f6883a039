"""Data sets by name: what ``--data`` on the command line means."""

from __future__ import annotations

from pathlib import Path

from ttaps.config import did_you_mean
from ttaps.data.cifar import ImageSet, read_cifar
from ttaps.data.cifar_c import CORRUPTIONS, FOLDERS, read_cifar_c
from ttaps.data.cifar_files import LAYOUTS, data_root
from ttaps.data.images import read_image_folder
from ttaps.data.npz import is_npy_folder, read_npy_folder, read_npz
from ttaps.data.sample import read_sample, read_sample_train
from ttaps.errors import UsageError

NAMES = (*LAYOUTS, *FOLDERS, "sample")


def load_set(
    name: str,
    root: Path | None = None,
    *,
    split: str = "test",
    corruption: str | None = None,
    severity: int = 5,
    size: int = 32,
) -> ImageSet:
    """Load a set by name: cifar10, cifar100, cifar10-c, cifar100-c, sample, an image folder, or arrays (``ttaps.data.npz``).

    ``split`` is for CIFAR and the sample, ``corruption`` and ``severity`` for the corrupted sets, ``size`` for image folders.
    """
    folder = data_root(root)
    if name in FOLDERS:
        if corruption is None:
            raise UsageError(f"Which corruption of {name}?\nChoose one of: {', '.join(CORRUPTIONS)}.")
        return read_cifar_c(folder, name, corruption, severity)
    if name == "sample":
        return read_sample_train() if split == "train" else read_sample(corruption)
    if corruption is not None:
        raise UsageError(
            f"{name} has no corruption {corruption!r}.\nCorrupted images are in: {', '.join(FOLDERS)}, sample."
        )
    if name in LAYOUTS:
        return read_cifar(name, folder, split)
    return _read_path(name, size)


def is_folder(name: str) -> bool:
    """Return whether a name is that of an image folder, whose images are read one by one."""
    path = Path(name)
    return name not in NAMES and not name.endswith(".npz") and path.is_dir() and not is_npy_folder(path)


def _read_path(name: str, size: int) -> ImageSet:
    """Read the user's own images from a folder of images, a folder of arrays or an ``.npz`` file."""
    if is_folder(name):
        return read_image_folder(Path(name), size)
    if is_npy_folder(Path(name)):
        return read_npy_folder(Path(name))
    if name.endswith(".npz"):
        return read_npz(Path(name))
    raise UsageError(f"There is no data set, folder or .npz file '{name}'{did_you_mean(name, NAMES)}.")
