"""All reading of images: CIFAR and its corrupted versions, image folders, numpy arrays, single images."""

from ttaps.data.cifar import ImageSet, read_cifar, split_train
from ttaps.data.cifar_c import CORRUPTIONS, EXTRA_CORRUPTIONS, read_cifar_c
from ttaps.data.cifar_files import data_root
from ttaps.data.images import read_image, read_image_folder
from ttaps.data.npz import read_npy_folder, read_npz
from ttaps.data.sets import load_set

__all__ = [
    "CORRUPTIONS",
    "EXTRA_CORRUPTIONS",
    "ImageSet",
    "data_root",
    "load_set",
    "read_cifar",
    "read_cifar_c",
    "read_image",
    "read_image_folder",
    "read_npy_folder",
    "read_npz",
    "split_train",
]
