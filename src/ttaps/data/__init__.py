"""All reading of images, and data sets by name, as in ``--data``."""

from pathlib import Path

from ttaps.config import did_you_mean
from ttaps.data.cifar import FOLDERS, LAYOUTS, data_root, read_cifar, read_cifar_c, split_train
from ttaps.data.corruptions import CORRUPTIONS, EXTRA_CORRUPTIONS
from ttaps.data.images import ImageSet, open_image_folder, read_arrays, read_image, split_folder
from ttaps.data.sample import read_sample, read_sample_train
from ttaps.errors import UsageError

__all__ = ["CORRUPTIONS", "EXTRA_CORRUPTIONS", "ImageSet", "data_root", "load_set", "read_image", "split_train"]
NAMES = (*LAYOUTS, *FOLDERS, "sample")


def load_set(
    name: str, root: Path | None = None, *, split: str = "test", corruption: str = "", severity: int = 5, size: int = 32
) -> ImageSet:
    """Load a set by name: cifar10, cifar100, cifar10-c, cifar100-c, sample, an image folder, or arrays.
    ``split`` is for CIFAR, the sample and folders with splits, ``corruption`` and ``severity`` for the corrupted sets, ``size`` for
    image folders."""
    if name in FOLDERS:
        if not corruption:
            raise UsageError(f"Which corruption of {name}?\nChoose one of: {', '.join(CORRUPTIONS)}.")
        return read_cifar_c(LAYOUTS[name.removesuffix("-c")], data_root(root), corruption, severity)
    if name == "sample":
        return read_sample_train() if split == "train" else read_sample(corruption or None)
    if corruption:
        raise UsageError(f"{name} has no corruption {corruption!r}.\nThese have: {', '.join(FOLDERS)}, sample.")
    if name in LAYOUTS:
        return read_cifar(LAYOUTS[name], data_root(root), split)
    if is_folder(name):
        return open_image_folder(split_folder(Path(name), split), size).load()
    if name.endswith(".npz") or Path(name).is_dir():
        return read_arrays(Path(name))
    raise UsageError(f"There is no data set, folder or .npz file '{name}'{did_you_mean(name, NAMES)}.")


def is_folder(name: str) -> bool:
    """Return whether a name is an image folder, whose images are read one by one, and not a folder of arrays."""
    return name not in NAMES and Path(name).is_dir() and not (Path(name) / "images.npy").is_file()
