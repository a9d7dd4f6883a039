"""What is there of each data set, whether it is whole and right, and what to do if not."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from ttaps.data.checksums import file_md5, problem
from ttaps.data.cifar_c import CORRUPTIONS, EXTRA_CORRUPTIONS, FOLDERS, IMAGES, map_array
from ttaps.data.cifar_files import LAYOUTS, Layout
from ttaps.data.corruptions import DETERMINISTIC
from ttaps.data.fetch import MB
from ttaps.data.manifest import recorded_md5
from ttaps.data.root import asking_for
from ttaps.errors import DataError
from ttaps.progress import bar

OFFICIAL_CIFAR100_TEST = "f0ef6b0ae62326f3e7ffdfab6717acfc"  # md5 of the file: right bytes are in the official order
# The other corruptions were drawn from an unseeded generator: no copy built anywhere can have the official md5.
MUST_MATCH = {"labels", *DETERMINISTIC}
C_FILES = tuple(f"{name}.npy" for name in ("labels", *CORRUPTIONS, *EXTRA_CORRUPTIONS))


@dataclass(frozen=True)
class Status:
    """One line of the check: a whole set (``file`` is empty) or one file of a corrupted set."""

    name: str
    file: str
    state: str  # right, missing, incomplete, damaged; files of corrupted sets: official, built here, unknown, missing, damaged
    detail: str
    remedy: str = ""

    @property
    def ok(self) -> bool:
        """Whether the set or file can be used as it is."""
        return self.state in ("right", "official", "built here")


def check(root: Path, names: Collection[str] = ()) -> list[Status]:
    """Check the data sets under ``root``, or only those named; a corrupted set that is there has a line for each of its files too."""
    rows = [_check_cifar(layout, root) for layout in LAYOUTS.values() if layout.name in (names or LAYOUTS)]
    for name in FOLDERS:
        rows += _check_cifar_c(name, root) if name in (names or FOLDERS) else []
    return rows


def _check_cifar(layout: Layout, root: Path) -> Status:
    """Check one of the plain sets."""
    remedy = f"ttaps data get {layout.name}{asking_for(root)}"
    folder = root / layout.folder
    if not folder.is_dir():
        return Status(layout.name, "", "missing", f"{folder} is not there", remedy)
    absent = [file for files in layout.files.values() for file in files if not (folder / file).is_file()]
    if absent:
        return Status(layout.name, "", "incomplete", f"missing in {folder}: {', '.join(absent)}", remedy)
    wrong = problem(layout, root)
    if wrong is not None:
        return Status(layout.name, "", "damaged", wrong, remedy)
    detail = f"{sum(layout.sizes.values()):,} images, every pixel and label right"
    if not layout.ordered and file_md5(folder / layout.files["test"][0]) != OFFICIAL_CIFAR100_TEST:
        detail += "; not in the official order"
    return Status(layout.name, "", "right", detail)


def _check_cifar_c(name: str, root: Path) -> list[Status]:
    """Check one of the corrupted sets: the line for the whole, then a line for each file."""
    folder = root / FOLDERS[name]
    remedy = f"ttaps data build {name}{asking_for(root)}"
    if not (folder / "build.json").exists() and any(
        folder.glob("*.npy")
    ):  # the build would not touch what is not its own
        remedy = f"put the official file there; or move {folder} away, then: {remedy}"
    present = [file for file in C_FILES if (folder / file).is_file()]
    if not present:
        return [Status(name, "", "missing", f"{folder} is not there or empty", remedy)]
    digests = _digests(folder, present)
    official = _official_md5(FOLDERS[name])
    # CIFAR-10's order is known, so only CIFAR-100-C can rightly be built from images in another order.
    reordered = name == "cifar100-c" and digests.get("labels.npy") != official["labels.npy"]
    built = recorded_md5(folder)
    rows = [
        _check_file(name, folder / file, digests.get(file), official[file], built.get(file), reordered, remedy)
        for file in C_FILES
    ]
    return [_summary(name, rows, remedy), *rows]


def _check_file(
    name: str, path: Path, found: str | None, official: str, built: str | None, reordered: bool, remedy: str
) -> Status:
    """Judge one file by its presence, its shape, and its md5 against the official one and the one noted when it was built."""
    if found is None:
        return Status(name, path.name, "missing", "not built yet", remedy)
    again = _without(remedy, str(path))
    shape = (5 * IMAGES,) if path.name == "labels.npy" else (5 * IMAGES, 32, 32, 3)
    try:
        map_array(path, shape, again)
    except DataError as error:
        return Status(name, path.name, "damaged", str(error).splitlines()[0].rstrip("."), again)
    if found == official:
        return Status(name, path.name, "official", "the official file, byte for byte")
    if path.stem in MUST_MATCH and not reordered:
        return Status(name, path.name, "damaged", "a deterministic file, but its md5 is not the official one", again)
    if built is None:
        return Status(
            name, path.name, "unknown", "not the official file, and no build.json says how it was made", again
        )
    if found != built:
        return Status(
            name, path.name, "damaged", "it has changed since it was built: its md5 is not build.json's", again
        )
    why = "from images not in the official order" if reordered else "a random corruption"
    return Status(name, path.name, "built here", f"{why}, so its md5 cannot be the official one; as built")


def _without(remedy: str, what: str) -> str:
    """Return a remedy for files that are there and should not be."""
    return f"remove {what}, then: {remedy}" if remedy.startswith("ttaps") else remedy


def _summary(name: str, rows: list[Status], remedy: str) -> Status:
    """Return the line for a whole corrupted set from those of its files."""
    damaged = [row.file for row in rows if row.state == "damaged"]
    absent = [row.file for row in rows if row.state == "missing"]
    unknown = [row.file for row in rows if row.state == "unknown"]
    if damaged:
        return Status(name, "", "damaged", f"damaged: {', '.join(damaged)}", _without(remedy, "these files"))
    if absent:
        there = len(rows) - len(absent)
        return Status(name, "", "incomplete", f"{there} of {len(rows)} files; missing: {', '.join(absent)}", remedy)
    if unknown:
        return Status(name, "", "unknown", f"of unknown origin: {', '.join(unknown)}", _without(remedy, "these files"))
    official = sum(row.state == "official" for row in rows)
    return Status(name, "", "right", f"{len(rows)} files, {official} official, {len(rows) - official} built here")


def _digests(folder: Path, names: list[str]) -> dict[str, str]:
    """Return the md5 of each file; a full set is 3 GB, so show how far it is."""
    total = sum((folder / name).stat().st_size for name in names)
    digests = {}
    with bar() as progress:
        task = progress.add_task(f"Checking {folder.name}", total=total // MB, note="MB")
        for name in names:
            progress.update(task, note=f"MB, {name}")
            digests[name] = file_md5(folder / name, lambda count: progress.advance(task, count / MB))
    return digests


def _official_md5(folder: str) -> dict[str, str]:
    """Return the md5 of every official file of a corrupted set."""
    table: dict[str, dict[str, str]] = json.loads(files("ttaps.data").joinpath("cifar_c_md5.json").read_text())
    return table[folder]
