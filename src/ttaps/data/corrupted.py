"""ImageNet-C's layout, ``corruption/severity/class/image``: writing it from a folder of images, and reading it, also from other sources.

Our files come with a ``corrupted.json``: with it, they give the same rows as images corrupted on the fly."""

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ttaps.data.build import worker_pool
from ttaps.data.corruptions import (
    CORRUPTIONS,
    LEAST,
    MOST,
    SEVERITIES,
    TUNING_CORRUPTIONS,
    check_corruption,
    corrupt_one,
)
from ttaps.data.images import ImageFolder, open_image_folder, read_image, set_digest, split_folder
from ttaps.errors import DataError, UsageError
from ttaps.files import atomic_write, file_lock, write_text
from ttaps.progress import bar, log_info

MANIFEST = "corrupted.json"
SIZE = 224  # pixels a side, as ImageNet-C's
Condition = tuple[str, int]


@dataclass(frozen=True)
class Origin:
    """What files were made from: all that their pixels depend on apart from corruption and severity."""

    name: str
    """Of the corrupted set."""
    seed: int
    size: int
    digest: str
    """Of the clean images at that size."""
    files: list[str]
    """The clean images, ``class/image``, in their order."""


def corrupted_name(name: str) -> str:
    """Return the name of a clean set after its images are corrupted."""
    return f"{name.removesuffix('.npz')}-c"


def corrupted_digest(clean: str, seed: int) -> str:
    """Return the digest of a corrupted set from that of the clean one."""
    return hashlib.blake2b(f"{clean} corrupted with seed {seed}".encode(), digest_size=6).hexdigest()


def corrupt_folder(
    folder: Path,
    out: Path,
    corruptions: Sequence[str] = CORRUPTIONS,
    severities: Sequence[int] = SEVERITIES,
    *,
    size: int = SIZE,
    seed: int = 0,
    workers: int | None = None,
) -> Path:
    """Write the images of a folder of class folders (of ``test`` or ``val`` in it, if it has these splits) under corruptions, as PNG files
    of ``size`` pixels a side: cropped to a square and resized first. Started again, it writes what is missing. Every pixel is a function
    of the clean image, the seed, the corruption, the severity and the image's index. Workers (all cores if not given) are spawned: a
    script needs ``if __name__ == "__main__":``."""
    conditions = list(dict.fromkeys(product(corruptions, severities)))
    for condition in conditions:
        check_corruption(*condition)
    if not LEAST <= size <= MOST:
        raise UsageError(f"Corruptions need images of {LEAST} to {MOST} pixels a side, not {size}.")
    if out.resolve().is_relative_to(folder.resolve()):
        raise UsageError(f"{out} is in {folder}, whose sub-folders are classes.\nChoose a folder outside of it.")
    clean = open_image_folder(split_folder(folder, "test"), size)
    stored = _stored(clean.names)
    with suppress(OSError):  # the lock says why it cannot be written
        out.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(out.parent / f".{out.name}.lock", f"writing {out}"):
        _begin(folder, out, clean, seed)
        with bar() as progress, worker_pool(workers) as pool:
            task = progress.add_task("Corrupting", total=len(stored) * len(conditions), note="")
            write = partial(_write, out, conditions, size, seed)
            for count in pool.map(write, range(len(stored)), clean.files, stored):
                progress.advance(task, count)
        for killed in out.rglob(".*.part"):  # temporary files of processes that were killed while writing
            killed.unlink()
    return out


def _write(out: Path, conditions: Sequence[Condition], size: int, seed: int, index: int, file: str, stored: str) -> int:
    """Write the missing files of one image; return how many it has."""
    paths = {condition: out / condition[0] / str(condition[1]) / stored for condition in conditions}
    missing = {condition: path for condition, path in paths.items() if not path.exists()}
    if missing:
        image, _ = read_image(Path(file), size)
        for condition, path in missing.items():
            pixels = corrupt_one(image, *condition, seed, index)
            with atomic_write(path) as scratch:
                Image.fromarray(pixels.transpose(1, 2, 0)).save(scratch, "PNG")
    return len(conditions)


def _stored(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of lossless files: those of the images if they end in .png, or else with that at the end."""
    stored = [name if name.lower().endswith(".png") else f"{name}.png" for name in names]
    if twice := next((name for name in stored if stored.count(name) > 1), "") if len({*stored}) < len(stored) else "":
        other = twice.removesuffix(".png")
        raise DataError(f"Two images would be written to {twice}.\nRename one of: {twice}, {other}.")
    return tuple(stored)


def _begin(folder: Path, out: Path, clean: ImageFolder, seed: int) -> None:
    """Write down what the files are made from, or check that those that are there were made from the same."""
    digest = set_digest(clean.classes, clean.labels, clean.read_all())
    origin = Origin(corrupted_name(folder.resolve().name), seed, clean.size, digest, clean.names)
    found = read_origin(out)
    if found is None:
        killed = f".{MANIFEST}.*.part"  # what is left if the process that wrote it was killed
        if out.exists() and (not out.is_dir() or not all(path.match(killed) for path in out.iterdir())):
            raise DataError(f"{out} holds something that was not written here.\nChoose another --out, or move it away.")
        write_text(out / MANIFEST, json.dumps(asdict(origin), indent=1) + "\n")
        return
    for what, before, now in (
        ("size", found.size, origin.size),
        ("seed", found.seed, origin.seed),
        ("images", found.name, origin.name),
        ("other images", (found.digest, found.files), (origin.digest, origin.files)),
    ):
        if before != now:
            values = f"{what} {before}, not {now}" if isinstance(before, str | int) else what
            raise DataError(f"{out} was made with {values}.\nChoose another --out, or remove that folder.")


def read_origin(folder: Path) -> Origin | None:
    """Read what the files of a folder were made from; None if not recorded."""
    path = folder / MANIFEST
    try:
        return Origin(**json.loads(path.read_text("utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{path} cannot be read: {error}.\nRemove its folder and make it again.") from error


def stored_conditions(folder: Path) -> dict[str, list[int]]:
    """Return the corruptions of a folder in this layout, with their severities; none for any other folder."""
    names = CORRUPTIONS + TUNING_CORRUPTIONS
    found = {name: [level for level in SEVERITIES if (folder / name / str(level)).is_dir()] for name in names}
    return {name: levels for name, levels in found.items() if levels}


@dataclass(frozen=True, eq=False)
class CorruptedFolder:
    """Images under corruptions in a folder; each is read on demand."""

    path: Path
    name: str
    size: int
    files: tuple[str, ...]
    """``class/image``: the clean files where they are known, or else the stored ones."""
    stored: tuple[str, ...]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    digest: str

    def read(self, corruption: str, severity: int, index: int) -> NDArray[np.uint8]:
        """Read one image as (3, size, size)."""
        return read_image(self.path / corruption / str(severity) / self.stored[index], self.size)[0]


def open_corrupted_folder(path: Path, conditions: Sequence[Condition], size: int) -> CorruptedFolder:
    """List the images of a folder under some conditions, which must all have the same."""
    origin, listed = read_origin(path), [_list(path, condition, size) for condition in conditions]
    files = tuple(origin.files) if origin else tuple(listed[0].names)
    stored = _stored(files) if origin else files
    for (corruption, severity), found in zip(conditions, listed, strict=True):
        if differ := sorted({*stored} ^ {*found.names}):
            remedy = "Complete it with: ttaps data corrupt" if origin else "Every corruption must have the same images."
            some = f"{len(differ)} images are missing there or elsewhere, such as {differ[0]}"
            raise DataError(f"{path / corruption / str(severity)}: {some}.\n{remedy}")
    of_class = [Path(file).parts[0] for file in files]
    classes = tuple(sorted({*of_class}))
    labels = np.searchsorted(np.array(classes), np.array(of_class)).astype(np.int64)
    digest = corrupted_digest(origin.digest, origin.seed) if origin else set_digest((*classes, *files), labels)
    name = origin.name if origin else path.resolve().name
    folder = CorruptedFolder(path, name, size, files, stored, labels, classes, digest)
    _, note = read_image(path / conditions[0][0] / str(conditions[0][1]) / stored[0], size)
    if note:
        advice = f"ttaps data corrupt --size {size} corrupts at the size of this network"
        log_info(f"{path}: images are {note} after they were corrupted, which weakens many corruptions; {advice}.")
    return folder


def _list(path: Path, condition: Condition, size: int) -> ImageFolder:
    corruption, severity = condition
    if not (place := path / corruption / str(severity)).is_dir():
        raise DataError(f"{path} has no {corruption} at severity {severity}: there is no folder {place}.")
    return open_image_folder(place, size)
