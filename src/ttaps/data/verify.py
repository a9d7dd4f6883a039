"""Whether each data set is present, complete and right, and what to do if not."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from ttaps.data.cifar import find_problem
from ttaps.data.cifar_c import CORRUPTIONS, EXTRA_CORRUPTIONS, FOLDERS, IMAGES, map_array
from ttaps.data.cifar_files import LAYOUTS, Layout, root_option
from ttaps.data.corruptions import DETERMINISTIC
from ttaps.data.manifest import recorded_md5
from ttaps.errors import DataError
from ttaps.files import file_md5
from ttaps.progress import bar

OFFICIAL_CIFAR100_TEST = "f0ef6b0ae62326f3e7ffdfab6717acfc"  # md5 of the file; it has the images in the official order
# The other corruptions were drawn from an unseeded generator: no rebuilt copy can have the official md5.
MUST_MATCH = {"labels", *DETERMINISTIC}
C_FILES = tuple(f"{name}.npy" for name in ("labels", *CORRUPTIONS, *EXTRA_CORRUPTIONS))
MB = 1_000_000


@dataclass(frozen=True)
class Status:
    """One line of the report: a data set (``file`` is empty) or one file of a corrupted set."""

    name: str
    file: str
    state: str  # of sets: right, missing, incomplete, damaged, unknown; of files: official, built here, unknown, missing, damaged
    detail: str
    remedy: str = ""

    @property
    def ok(self) -> bool:
        """Whether the set or file can be used as it is."""
        return self.state in ("right", "official", "built here")


def verify(root: Path, names: Collection[str] = ()) -> list[Status]:
    """Verify the data sets under ``root``, or only those named; a corrupted set that is present has a line for each file too."""
    rows = [_verify_cifar(layout, root) for name, layout in LAYOUTS.items() if not names or name in names]
    corrupted = [name for name in FOLDERS if not names or name in names]
    return rows + [row for name in corrupted for row in _verify_cifar_c(name, root)]


def _verify_cifar(layout: Layout, root: Path) -> Status:
    remedy = f"ttaps data download {layout.name}{root_option(root)}"
    folder = root / layout.folder
    if not folder.is_dir():
        return Status(layout.name, "", "missing", f"{folder} is not there", remedy)
    absent = [file for files in layout.files.values() for file in files if not (folder / file).is_file()]
    if absent:
        return Status(layout.name, "", "incomplete", f"missing in {folder}: {', '.join(absent)}", remedy)
    if wrong := find_problem(layout, root):
        return Status(layout.name, "", "damaged", wrong, remedy)
    detail = f"{sum(layout.sizes.values()):,} images, every pixel and label right"
    if not layout.ordered and file_md5(folder / layout.files["test"][0]) != OFFICIAL_CIFAR100_TEST:
        detail += "; not in the official order"
    return Status(layout.name, "", "right", detail)


def _verify_cifar_c(name: str, root: Path) -> list[Status]:
    """Return the line for a corrupted set, then a line for each file."""
    folder = root / FOLDERS[name]
    remedy = f"ttaps data build {name}{root_option(root)}"
    if not (folder / "build.json").exists() and any(folder.glob("*.npy")):  # a build refuses files it has not made
        remedy = f"put the official file there; or move {folder} away, then: {remedy}"
    present = [file for file in C_FILES if (folder / file).is_file()]
    if not present:
        return [Status(name, "", "missing", f"{folder} is not there or empty", remedy)]
    found, official, built = _digests(folder, present), _official_md5(FOLDERS[name]), recorded_md5(folder)
    # The order of CIFAR-10 is part of its checksum, so only CIFAR-100-C can be built from images in another order.
    reordered = name == "cifar100-c" and found.get("labels.npy") != official["labels.npy"]
    rows = []
    for file in C_FILES:
        if file not in found:
            rows.append(Status(name, file, "missing", "not built yet", remedy))
            continue
        state, detail = _judge(folder / file, found[file], official[file], built.get(file), reordered)
        wrong = state in ("damaged", "unknown")
        rows.append(Status(name, file, state, detail, _remove_first(str(folder / file), remedy) if wrong else ""))
    return [_summary(name, rows, remedy), *rows]


def _judge(path: Path, found: str, official: str, built: str | None, reordered: bool) -> tuple[str, str]:
    """Return the state of one file, and why: by its shape, and its md5 against the official and the recorded one."""
    try:
        map_array(path, (5 * IMAGES,) if path.name == "labels.npy" else (5 * IMAGES, 32, 32, 3), "")
    except DataError as error:
        return "damaged", str(error).splitlines()[0].rstrip(".")
    if found == official:
        return "official", "the official file, byte for byte"
    if path.stem in MUST_MATCH and not reordered:
        return "damaged", "a deterministic file, but its md5 is not the official one"
    if built is None:
        return "unknown", "not the official file, and no build.json says how it was made"
    if found != built:
        return "damaged", "changed since it was built: its md5 is not that in build.json"
    why = "from images not in the official order" if reordered else "a random corruption"
    return "built here", f"{why}, so its md5 cannot be the official one; as built"


def _summary(name: str, rows: list[Status], remedy: str) -> Status:
    """Return the line for a corrupted set from those of its files."""
    damaged, absent, unknown = (
        [row.file for row in rows if row.state == state] for state in ("damaged", "missing", "unknown")
    )
    remove = _remove_first("these files", remedy)
    if damaged:
        return Status(name, "", "damaged", f"damaged: {', '.join(damaged)}", remove)
    if absent:
        detail = f"{len(rows) - len(absent)} of {len(rows)} files; missing: {', '.join(absent)}"
        return Status(name, "", "incomplete", detail, remedy)
    if unknown:
        return Status(name, "", "unknown", f"of unknown origin: {', '.join(unknown)}", remove)
    official = sum(row.state == "official" for row in rows)
    return Status(name, "", "right", f"{len(rows)} files, {official} official, {len(rows) - official} built here")


def _remove_first(what: str, remedy: str) -> str:
    return f"remove {what}, then: {remedy}" if remedy.startswith("ttaps") else remedy


def _digests(folder: Path, names: list[str]) -> dict[str, str]:
    """Return the md5 of each file, with a progress bar: a full set is 3 GB."""
    total = sum((folder / name).stat().st_size for name in names)
    with bar() as progress:
        task = progress.add_task(f"Verifying {folder.name}", total=total // MB, note="MB")
        return {name: file_md5(folder / name, lambda count: progress.advance(task, count / MB)) for name in names}


def _official_md5(folder: str) -> dict[str, str]:
    """Return the md5 of every official file of a corrupted set."""
    return json.loads(files("ttaps.data").joinpath("cifar_c_md5.json").read_text())[folder]
