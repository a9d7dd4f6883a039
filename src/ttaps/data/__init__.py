"""Images come in here, and only here: CIFAR and its corrupted versions, image folders, single pictures."""

from ttaps.data.cifar import ImageSet, read_cifar10, read_cifar100, split_train
from ttaps.data.cifar_c import CORRUPTIONS, EXTRA_CORRUPTIONS, read_cifar_c
from ttaps.data.images import read_image, read_image_folder
from ttaps.data.npz import read_npz
from ttaps.data.root import data_root
from ttaps.data.sets import load_set

__all__ = [
    "CORRUPTIONS",
    "EXTRA_CORRUPTIONS",
    "ImageSet",
    "data_root",
    "load_set",
    "read_cifar10",
    "read_cifar100",
    "read_cifar_c",
    "read_image",
    "read_image_folder",
    "read_npz",
    "split_train",
]
