"""What can be evaluated on: a named set of images, clean or under corruptions, read a few at a time."""

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
from numpy.typing import NDArray

from ttaps.config import did_you_mean
from ttaps.data import CORRUPTIONS, EXTRA_CORRUPTIONS, ImageSet, data_root, is_folder, load_set, split_train
from ttaps.data.build import origin
from ttaps.data.cifar import FOLDERS
from ttaps.data.corruptions import SEVERITIES, corrupt_set
from ttaps.data.images import ImageFolder, open_image_folder
from ttaps.data.sample import SAMPLE_CORRUPTIONS
from ttaps.errors import DataError, UsageError
from ttaps.evaluation.plan import Item

if TYPE_CHECKING:
    from torch import Tensor

    from ttaps.model.checkpoint import Model

UNCORRUPTED = ("clean",), (0,)  # the corruptions and severities of images as they are
VALIDATION = {"cifar10-val-c": "cifar10", "cifar100-val-c": "cifar100"}
"""The training set's held-out fifth under the extra corruptions: for choosing settings without the test set."""
VALIDATION_SEED = 1  # the test sets' corruptions are drawn with seed 0

Pixels = NDArray[np.uint8]
Severities = Sequence[int] | Literal["all"]


@dataclass(frozen=True, eq=False)
class Benchmark:
    """Images under some corruptions; the same image has the same number and label under each of them."""

    name: str
    classes: tuple[str, ...]
    labels: NDArray[np.int64]
    corruptions: tuple[str, ...]
    severities: tuple[int, ...]
    digest: str  # of classes and labels, and of the images where they are the user's own: a changed folder is another data set
    pixels: Callable[[Item], Pixels]  # reads one image (3, H, W)
    file: Callable[[int], str] = lambda image: ""  # the path of an image within an image folder; empty for other data

    def read(self, items: Sequence[Item]) -> "Tensor":
        """Return images, uint8 (N, 3, H, W)."""
        import torch  # here: a report shows images without it

        return torch.from_numpy(np.stack([self.pixels(item) for item in items]))

    def aligned_to(self, model: "Model") -> Self:
        """Return this set with its labels in the order of the model's classes; refuse other classes or another image size."""
        size = model.image_size
        shape = self.pixels(Item(self.corruptions[0], self.severities[0], 0)).shape
        if shape != (wanted := (3, size, size)):
            raise UsageError(f"{self.name} has images of shape {shape}, model '{model.name}' wants {wanted}.")
        if set(self.classes) <= set(model.classes):  # by name, in whatever order; some may be missing
            numbers = np.array([model.classes.index(name) for name in self.classes], dtype=np.int64)
            return replace(self, classes=model.classes, labels=numbers[self.labels])
        if self.classes == tuple(map(str, range(len(self.classes)))) and len(self.classes) <= len(model.classes):
            return replace(self, classes=model.classes)  # labels without names are the model's numbers
        strange = next(name for name in self.classes if name not in model.classes)
        raise UsageError(
            f"{self.name} has {len(self.classes)} classes ('{strange}', ...), model '{model.name}' knows {len(model.classes)} "
            f"('{model.classes[0]}', ...).\nEvaluate on data with the same classes as the model's, or some of them."
        )


def open_benchmark(
    name: str, root: Path | None = None, *, corruptions: Sequence[str] = (), severities: Severities = (), size: int = 32
) -> Benchmark:
    """Open ``sample``, cifar10, cifar100, cifar10-c, cifar100-c, cifar10-val-c, cifar100-val-c, an image folder or an ``.npz`` file.
    Without ``corruptions`` a corrupted set has those of the paper's tables (the validation sets the four extra ones), without
    ``severities`` severity 5; ``all`` are those that it has. Files are mapped or read when needed; ``size`` is for image folders."""
    if name in ("sample", *FOLDERS, *VALIDATION):
        open_set = _validation if name in VALIDATION else _corrupted
        return open_set(name, root, *_choose(name, corruptions, severities))
    if corruptions or severities:
        raise UsageError(f"{name} has no corruptions or severities to choose from: leave the option out.")
    if is_folder(name):
        return folder_benchmark(open_image_folder(Path(name), size))
    return clean_benchmark(load_set(name, root, size=size))


def clean_benchmark(images: ImageSet) -> Benchmark:
    """Return a set of images as they are; one that came from a path has the last part of it for a name."""
    digest, name = _digest(images.classes, images.labels, images.images), Path(images.name).resolve().name
    return Benchmark(name, images.classes, images.labels, *UNCORRUPTED, digest, lambda item: images.images[item.image])


def folder_benchmark(folder: ImageFolder) -> Benchmark:
    """Return the images of a folder: read once for the digest, which finds damaged ones too, and again when they are evaluated."""
    digest, name = _digest(folder.classes, folder.labels, folder.read_all()), folder.path.resolve().name
    paths = (os.fsencode(os.path.relpath(file, folder.path)) for file in folder.files)
    files = [path.decode(errors="backslashreplace") for path in paths]  # a file's name need not be text
    shared = folder.classes, folder.labels, *UNCORRUPTED, digest
    return Benchmark(name, *shared, pixels=lambda item: folder.read(item.image), file=files.__getitem__)


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
    digest = _digest((*first.classes, made), first.labels)
    shared = first.classes, first.labels, corruptions, severities, digest
    return Benchmark(name, *shared, pixels=lambda item: parts[item[:2]].images[item.image])


def _validation(name: str, root: Path | None, corruptions: tuple[str, ...], severities: tuple[int, ...]) -> Benchmark:
    """Corrupt the held-out training images when they are needed: milliseconds each, and no file to keep."""
    train = load_set(VALIDATION[name], root, split="train")
    held_out = split_train(len(train))[1]
    images, labels = train.images[held_out], train.labels[held_out]

    def pixels(item: Item) -> Pixels:
        image, index = images[item.image].transpose(1, 2, 0)[None], held_out[item.image : item.image + 1]
        return corrupt_set(image, item.corruption, item.severity, VALIDATION_SEED, index)[0].transpose(2, 0, 1)

    return Benchmark(name, train.classes, labels, corruptions, severities, _digest(train.classes, labels), pixels)


def _choose(name: str, corruptions: Sequence[str], severities: Severities) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the given corruptions and severities, each once, or the default ones."""
    known, levels = (SAMPLE_CORRUPTIONS, (5,)) if name == "sample" else (CORRUPTIONS + EXTRA_CORRUPTIONS, SEVERITIES)
    default = known if name == "sample" else EXTRA_CORRUPTIONS if name in VALIDATION else CORRUPTIONS
    severities = levels if severities == "all" else severities
    for corruption in (one for one in corruptions if one not in known):
        raise UsageError(f"{name} has no corruption '{corruption}'{did_you_mean(corruption, list(known))}.")
    for severity in (one for one in severities if one not in levels):
        raise UsageError(f"{name} has no severity {severity}; choose from {', '.join(map(str, levels))}.")
    return tuple(dict.fromkeys(corruptions)) or default, tuple(dict.fromkeys(severities)) or (5,)


def _digest(classes: tuple[str, ...], labels: NDArray[np.int64], images: Iterable[Pixels] = ()) -> str:
    digest = hashlib.blake2b("\n".join(classes).encode(), digest_size=6)
    digest.update(labels.astype("<i8").tobytes())
    for image in images:
        digest.update(image.tobytes())
    return digest.hexdigest()
