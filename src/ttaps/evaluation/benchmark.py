"""The data to evaluate on: a named set of images, clean or under corruptions, read a few at a time."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
from numpy.typing import NDArray

from ttaps.config import did_you_mean
from ttaps.data import CORRUPTIONS, EXTRA_CORRUPTIONS, ImageSet, data_root, is_folder, load_set, split_train
from ttaps.data.build import origin
from ttaps.data.cifar import FOLDERS, LAYOUTS
from ttaps.data.corrupted import corrupted_digest, corrupted_name, open_corrupted_folder, stored_conditions
from ttaps.data.corruptions import SEVERITIES, TUNING_CORRUPTIONS, corrupt_one
from ttaps.data.images import ImageFolder, open_image_folder, resized, set_digest, split_folder
from ttaps.data.sample import SAMPLE_CORRUPTIONS
from ttaps.errors import DataError, UsageError
from ttaps.evaluation.plan import EVERYTHING, Item, Plan, Shard
from ttaps.progress import log_info
from ttaps.rng import derive_seed

if TYPE_CHECKING:
    from torch import Tensor

    from ttaps.model.checkpoint import Model

UNCORRUPTED = ("clean",), (0,)  # the corruptions and severities of images as they are
VALIDATION = {"cifar10-val-c": "cifar10", "cifar100-val-c": "cifar100"}
"""The training set's held-out fifth under the extra corruptions: for choosing settings without the test set."""
# Of test images, as ``ttaps data build`` and ``ttaps data corrupt`` draw, and of others.
CORRUPTION_SEED, VALIDATION_SEED = 0, 1

Pixels = NDArray[np.uint8]
Severities = Sequence[int] | Literal["all"]


@dataclass(frozen=True, eq=False)
class Benchmark:
    """Images under some corruptions; the same image has the same index and label under each of them."""

    name: str
    classes: tuple[str, ...]
    labels: NDArray[np.int64]
    corruptions: tuple[str, ...]
    severities: tuple[int, ...]
    digest: str  # of classes and labels, and of the images where they are the user's own: a changed folder is another data set
    pixels: Callable[[Item], Pixels]  # reads one image (3, H, W)
    file: Callable[[int], str] = lambda image: ""  # the path of an image within an image folder; empty for other data
    # What to open for these images again, and the root of data sets; nothing for arrays in memory.
    source: tuple[str, str] = "", ""

    def read(self, items: Sequence[Item]) -> "Tensor":
        """Return images, uint8 (N, 3, H, W)."""
        import torch  # here: a report shows images without it

        return torch.from_numpy(np.stack([self.pixels(item) for item in items]))

    def keys(self, items: Sequence[Item], seed: int) -> list[int]:
        """Return the seeds of all that methods draw for these images."""
        return [derive_seed(seed, self.name, *item) for item in items]

    def plan(self, images_per_corruption: int | None = None, shard: Shard = EVERYTHING) -> Plan:
        """Return the images to evaluate, in order."""
        return Plan(self.labels, self.corruptions, self.severities, images_per_corruption, shard)

    def aligned_to(self, model: "Model") -> Self:
        """Return this set with its labels in the order of the model's classes; refuse other classes or another image size."""
        size = model.image_size
        shape = self.pixels(Item(self.corruptions[0], self.severities[0], 0)).shape
        if shape != (wanted := (3, size, size)):
            raise UsageError(f"{self.name} has images of shape {shape}, model '{model.name}' wants {wanted}.")
        if found := self.numbered_as(model.classes):
            return found
        strange = next(name for name in self.classes if name not in model.classes)
        unnamed = model.classes[0] == "0"
        names = "Name those of your network: --classes cat,dog,owl, or a file of names; classes=[...] in Python."
        raise UsageError(
            f"{self.name} has {len(self.classes)} classes ('{strange}', ...), model '{model.name}' knows {len(model.classes)} "
            f"('{model.classes[0]}', ...).\n"
            + (names if unnamed else "Evaluate on data with the same classes as the model's, or some of them.")
        )

    def numbered_as(self, classes: tuple[str, ...]) -> Self | None:
        """Return this set with labels that index these classes; None if it has others."""
        if set(self.classes) <= set(classes):  # by name, in whatever order; some may be missing
            numbers = np.array([classes.index(name) for name in self.classes], dtype=np.int64)
            return replace(self, classes=classes, labels=numbers[self.labels])
        if self.classes == tuple(map(str, range(len(self.classes)))) and len(self.classes) <= len(classes):
            return replace(self, classes=classes)  # labels without names are the model's numbers
        return None


def open_benchmark(
    name: str, root: Path | None = None, *, corruptions: Sequence[str] = (), severities: Severities = (), size: int = 32
) -> Benchmark:
    """Open ``sample``, cifar10, cifar100, cifar10-c, cifar100-c, cifar10-val-c, cifar100-val-c, or your own data: a folder of class
    folders, one with such folders in ``train`` and ``test`` (or ``val``; the second is used), one in ImageNet-C's layout, or arrays.
    A corrupted set has the corruptions of the paper's tables (the validation sets the four extra ones) and severity 5 unless others are
    chosen; ``all`` are these corruptions, and all its severities. Your own clean images are corrupted if ``corruptions`` are
    given, on the fly, after cropping and resizing to ``size``, the network's. Files are memory-mapped or read on demand.
    """
    source = name if name in (*LAYOUTS, *FOLDERS, *VALIDATION, "sample") else str(Path(name).resolve())
    found = _open(name, root, corruptions, severities, size)
    return replace(found, source=(source, str(data_root(root).resolve())))


def _open(name: str, root: Path | None, corruptions: Sequence[str], severities: Severities, size: int) -> Benchmark:
    if name in FOLDERS:
        return _corrupted(name, root, *_choose(name, corruptions, severities, CORRUPTIONS + EXTRA_CORRUPTIONS))
    if name == "sample":
        known = SAMPLE_CORRUPTIONS
        return _corrupted(name, root, *_choose(name, corruptions, severities, known, (5,), known))
    if name in VALIDATION:
        return _validation(name, root, *_choose(name, corruptions, severities, default=EXTRA_CORRUPTIONS))
    if name in LAYOUTS:
        if corruptions or severities:
            raise UsageError(f"{name} has no corruptions or severities to choose from; {name}-c has.")
        return clean_benchmark(load_set(name, root))
    if not is_folder(name):
        return corrupted_benchmark(clean_benchmark(load_set(name, root), size), corruptions, severities)
    path = Path(name)
    if stored := stored_conditions(path):
        levels = sorted(set().union(*stored.values()))
        usual = [one for one in CORRUPTIONS if one in stored]
        return _layout(path, size, *_choose(name, corruptions, severities, list(stored), levels, usual or list(stored)))
    _choose_own(name, corruptions, severities)  # a wrong choice is refused before all images are read
    folder = folder_benchmark(path.resolve().name, open_image_folder(split_folder(path, "test"), size))
    return corrupted_benchmark(folder, corruptions, severities)


def clean_benchmark(images: ImageSet, size: int | None = None) -> Benchmark:
    """Return a set of images, cropped and resized to ``size`` if given; one from a path is named after its last part."""

    def pixels(item: Item) -> Pixels:
        image = images.images[item.image]
        return image if size is None else resized(image, size)

    name, shape = Path(images.name).resolve().name, images.images.shape[2:]
    if size is not None and shape != (size, size):
        log_info(f"{name}: images of {shape[1]}x{shape[0]} pixels are resized to {size}x{size}.")
    digest = set_digest(images.classes, images.labels, (pixels(Item("", 0, index)) for index in range(len(images))))
    return Benchmark(name, images.classes, images.labels, *UNCORRUPTED, digest, pixels)


def folder_benchmark(name: str, folder: ImageFolder) -> Benchmark:
    """Return the images of a folder: read once for the digest, which also finds damaged ones, and again for evaluation."""
    shared = folder.classes, folder.labels, *UNCORRUPTED, set_digest(folder.classes, folder.labels, folder.read_all())
    return Benchmark(name, *shared, lambda item: folder.read(item.image), _texts(folder.names).__getitem__)


def corrupted_benchmark(clean: Benchmark, corruptions: Sequence[str], severities: Severities = ()) -> Benchmark:
    """Return a clean set as it is if no corruptions are chosen, or its images corrupted on the fly: no files to keep, and
    the same pixels and rows as from files that ``ttaps data corrupt`` writes at this size."""
    chosen = _choose_own(clean.name, corruptions, severities)
    if chosen == UNCORRUPTED:
        return clean
    found = with_corruptions(clean, *chosen, CORRUPTION_SEED, range(len(clean.labels)))

    def pixels(item: Item) -> Pixels:  # in memory as from a file: the order there changes the last bit of a confidence
        return np.ascontiguousarray(found.pixels(item))

    digest = corrupted_digest(clean.digest, CORRUPTION_SEED)
    return replace(found, name=corrupted_name(clean.name), digest=digest, pixels=pixels)


def with_corruptions(
    clean: Benchmark, corruptions: tuple[str, ...], severities: tuple[int, ...], seed: int, indices: Sequence[int]
) -> Benchmark:
    """Corrupt images when they are read, each with the draws of its index; those of severity 0 are clean."""

    def pixels(item: Item) -> Pixels:
        image = clean.pixels(item)
        return corrupt_one(image, *item[:2], seed, indices[item.image]) if item.severity else image

    return replace(clean, corruptions=corruptions, severities=severities, pixels=pixels)


def _layout(path: Path, size: int, corruptions: tuple[str, ...], severities: tuple[int, ...]) -> Benchmark:
    """Return images in ImageNet-C's layout."""
    folder = open_corrupted_folder(path, list(product(corruptions, severities)), size)
    shared = folder.classes, folder.labels, corruptions, severities, folder.digest
    return Benchmark(folder.name, *shared, lambda item: folder.read(*item), _texts(folder.files).__getitem__)


def _texts(paths: Sequence[str]) -> list[str]:
    """Return paths as texts, which a file's name need not be."""
    return [os.fsencode(path).decode(errors="backslashreplace") for path in paths]


def _corrupted(name: str, root: Path | None, corruptions: tuple[str, ...], severities: tuple[int, ...]) -> Benchmark:
    """Map every part at once, so that a missing file is found before any work is done."""
    parts = {
        (corruption, severity): load_set(name, root, corruption=corruption, severity=severity)
        for corruption, severity in product(corruptions, severities)
    }
    first = next(iter(parts.values()))
    for (corruption, severity), part in parts.items():
        if not np.array_equal(part.labels, first.labels):
            raise DataError(f"{name}: {corruption} at severity {severity} has other labels than {corruptions[0]}.")
    made = origin(data_root(root) / FOLDERS[name]) if name in FOLDERS else ""
    digest = set_digest((*first.classes, made), first.labels)
    shared = first.classes, first.labels, corruptions, severities, digest
    return Benchmark(name, *shared, pixels=lambda item: parts[item[:2]].images[item.image])


def _validation(name: str, root: Path | None, corruptions: tuple[str, ...], severities: tuple[int, ...]) -> Benchmark:
    """Corrupt the held-out training images when they are needed: milliseconds each, and no file to keep."""
    train = load_set(VALIDATION[name], root, split="train")
    held_out = split_train(len(train))[1]
    part = train.part(held_out)
    shared = part.classes, part.labels, *UNCORRUPTED, set_digest(part.classes, part.labels)
    clean = Benchmark(name, *shared, lambda item: part.images[item.image])
    return with_corruptions(clean, corruptions, severities, VALIDATION_SEED, held_out.tolist())


def _choose_own(
    name: str, corruptions: Sequence[str], severities: Severities
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the corruptions and severities for clean images: none unless some are given."""
    if severities and not corruptions:
        raise UsageError(f"{name} is clean: severities need corruptions, by name or 'all'.")
    return _choose(name, corruptions, severities) if corruptions else UNCORRUPTED


def _choose(
    name: str,
    corruptions: Sequence[str],
    severities: Severities,
    known: Sequence[str] = CORRUPTIONS + TUNING_CORRUPTIONS,
    levels: Sequence[int] = SEVERITIES,
    default: Sequence[str] = CORRUPTIONS,
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the given corruptions and severities, each once, or the default ones."""
    chosen = default if list(corruptions) in ([], ["all"]) else corruptions
    severities = levels if severities == "all" else severities
    for corruption in (one for one in chosen if one not in known):
        raise UsageError(f"{name} has no corruption '{corruption}'{did_you_mean(corruption, list(known))}.")
    for severity in (one for one in severities if one not in levels):
        raise UsageError(f"{name} has no severity {severity!r}; choose from {', '.join(map(str, levels))}.")
    return tuple(dict.fromkeys(chosen)), tuple(dict.fromkeys(severities)) or (max(levels),)
