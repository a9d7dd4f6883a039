"""Whether each data set is present, complete and correct, and what to do if not."""

import json
from collections.abc import Collection
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from ttaps.data.build import read_manifest
from ttaps.data.cifar import LAYOUTS, Layout, find_problem, map_corrupted, root_option
from ttaps.data.corruptions import CORRUPTIONS, DETERMINISTIC, EXTRA_CORRUPTIONS
from ttaps.errors import DataError
from ttaps.files import file_md5
from ttaps.progress import bar

OFFICIAL_CIFAR100_TEST = "f0ef6b0ae62326f3e7ffdfab6717acfc"  # md5 of the file; it has the images in the official order
OFFICIAL_MD5: dict[str, dict[str, str]] = json.loads((files("ttaps.data") / "cifar_c_md5.json").read_text())
C_FILES = tuple(f"{name}.npy" for name in ("labels", *CORRUPTIONS, *EXTRA_CORRUPTIONS))
# The other corruptions were drawn from an unseeded generator: no rebuilt copy can have the official md5.
MUST_MATCH = {*C_FILES} & {f"{name}.npy" for name in ("labels", *DETERMINISTIC)}
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
        """Whether the set or file can be used as is."""
        return self.state in ("right", "official", "built here")


def verify(root: Path, names: Collection[str] = ()) -> list[Status]:
    """Verify the data sets under ``root``, or only those named; a corrupted set that is present has a line for each file too."""
    clean = [_verify_cifar(layout, root) for name, layout in LAYOUTS.items() if not names or name in names]
    corrupted = [layout for name, layout in LAYOUTS.items() if not names or f"{name}-c" in names]
    return clean + [row for layout in corrupted for row in _verify_cifar_c(layout, root)]


def _verify_cifar(layout: Layout, root: Path) -> Status:
    remedy, folder = f"ttaps data download {layout.name}{root_option(root)}", root / layout.folder
    if not folder.is_dir():
        return Status(layout.name, "", "missing", f"{folder} is not there", remedy)
    if absent := [file for files in layout.files.values() for file in files if not (folder / file).is_file()]:
        return Status(layout.name, "", "incomplete", f"missing in {folder}: {', '.join(absent)}", remedy)
    if wrong := find_problem(layout, root):
        return Status(layout.name, "", "damaged", wrong, remedy)
    detail = f"{sum(layout.sizes.values()):,} images, every pixel and label right"
    if not layout.ordered and file_md5(folder / layout.files["test"][0]) != OFFICIAL_CIFAR100_TEST:
        detail += "; not in the official order"
    return Status(layout.name, "", "right", detail)


def _verify_cifar_c(layout: Layout, root: Path) -> list[Status]:
    """Return the line for a corrupted set, then a line for each file."""
    name, folder = f"{layout.name}-c", root / layout.corrupted_folder
    build = f"ttaps data build {name}{root_option(root)}"
    present = [file for file in C_FILES if (folder / file).is_file()]
    if not present:
        return [Status(name, "", "missing", f"{folder} is not there or empty", build)]
    manifest = read_manifest(folder)
    remove = f"remove these files from {folder}, then: {build}"
    if manifest is None:  # a build refuses files it has not made
        build = remove = f"put the official file there; or move {folder} away, then: {build}"
    with bar() as progress:  # a full set is 3 GB
        total = sum((folder / file).stat().st_size for file in present)
        task = progress.add_task(f"Verifying {folder.name}", total=total // MB, note="MB")
        found = {file: file_md5(folder / file, lambda count: progress.advance(task, count / MB)) for file in present}
    built = manifest["files"] if manifest else {}
    rows = [Status(name, file, *_judge(layout, root, file, found, built)) for file in C_FILES]
    for state, whole, detail, remedy in (
        ("damaged", "damaged", "damaged", remove),
        ("missing", "incomplete", f"{len(present)} of {len(rows)} files; missing", build),
        ("unknown", "unknown", "of unknown origin", remove),
    ):
        if wrong := [row.file for row in rows if row.state == state]:
            return [Status(name, "", whole, f"{detail}: {', '.join(wrong)}", remedy), *rows]
    official = sum(row.state == "official" for row in rows)
    detail = f"{len(rows)} files, {official} official, {len(rows) - official} built here"
    return [Status(name, "", "right", detail), *rows]


def _judge(layout: Layout, root: Path, file: str, found: dict[str, str], built: dict[str, Any]) -> tuple[str, str]:
    """Return the state of one file, and why: by its shape, and its md5 against the official and the recorded one."""
    if file not in found:
        return "missing", "not built yet"
    try:
        map_corrupted(layout, root, file)
    except DataError as error:
        return "damaged", str(error).splitlines()[0].rstrip(".")
    official = OFFICIAL_MD5[layout.corrupted_folder]
    if found[file] == official[file]:
        return "official", "the official file, byte for byte"
    # The order of CIFAR-10 is part of its checksum, so only CIFAR-100-C can be built from images in another order.
    reordered = not layout.ordered and found.get("labels.npy") != official["labels.npy"]
    if file in MUST_MATCH and not reordered:
        return "damaged", "a deterministic file, but its md5 is not the official one"
    if file not in built:
        return "unknown", "not the official file, and no build.json says how it was made"
    if found[file] != built[file]["md5"]:
        return "damaged", "changed since it was built: its md5 is not that in build.json"
    why = "from images not in the official order" if reordered else "a random corruption"
    return "built here", f"{why}, so its md5 cannot be the official one; as built"
