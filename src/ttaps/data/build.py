"""Build CIFAR-10-C or CIFAR-100-C from the clean test images, in the official layout.

``<root>/CIFAR-10-C/<corruption>.npy`` holds severities 1 to 5 in order, uint8 (5 N, 32, 32, 3), ``labels.npy`` the
labels five times, and ``build.json`` the build's inputs, with the md5 and library versions of each finished file. Chunks
of work are kept in a hidden folder until their file is complete, so a killed build resumes when restarted."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ttaps.data.cifar import FOLDERS, LAYOUTS, read_cifar
from ttaps.data.corruptions import CORRUPTIONS, EXTRA_CORRUPTIONS, SEVERITIES, check_corruption, corrupt_set
from ttaps.data.corruptions.tools import Pixels, require
from ttaps.data.images import ImageSet
from ttaps.errors import DataError, TtapsError, UsageError
from ttaps.files import atomic_write, file_lock, file_md5, remove_partials, write_text
from ttaps.progress import bar

CHUNK = 500  # images: 0.03 to 2 seconds of work, which is all that a kill can lose
LIBRARIES = ("numpy", "scipy", "skimage", "cv2", "jpeglib", "PIL")


def build(
    name: str, root: Path, seed: int = 0, corruptions: Sequence[str] | None = None, workers: int | None = None
) -> Path:
    """Build the corrupted test set ``name`` under ``root`` from the clean one there; return its folder.
    ``corruptions`` is all 19 if not given, ``workers`` all cores. Every pixel is a function of the clean images, the seed, the
    corruption, the severity and the image's index. Workers are spawned: a script needs ``if __name__ == "__main__":``."""
    if name not in FOLDERS:
        raise UsageError(f"No corrupted set {name!r} to build; choose one of: {', '.join(FOLDERS)}.")
    for corruption in corruptions or ():  # before the clean images are read
        check_corruption(corruption)
    clean = read_cifar(LAYOUTS[name.removesuffix("-c")], root, "test")
    build_from(clean, root / FOLDERS[name], seed, corruptions, workers)
    return root / FOLDERS[name]


def build_from(
    clean: ImageSet, folder: Path, seed: int = 0, corruptions: Sequence[str] | None = None, workers: int | None = None
) -> None:
    """Build the missing files of ``folder`` from clean images of 32 x 32 pixels."""
    images, labels = clean.images.transpose(0, 2, 3, 1), clean.labels
    with suppress(OSError):  # the lock says why it cannot be written
        folder.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(folder.parent / f".{folder.name}.lock", f"building {folder}"):
        versions = {library: require(library).__version__ for library in LIBRARIES}
        manifest = _open_manifest(folder, seed, images, labels)

        def finish(file: str, values: NDArray[np.uint8]) -> None:
            _save(folder / file, values)
            manifest["files"][file] = {"md5": file_md5(folder / file), "versions": versions}
            write_text(folder / "build.json", json.dumps(manifest, indent=1) + "\n")

        done = {file for file in manifest["files"] if (folder / file).exists()}
        if "labels.npy" not in done:
            finish("labels.npy", np.tile(labels, len(SEVERITIES)).astype(np.uint8))
        wanted = dict.fromkeys(corruptions or (*CORRUPTIONS, *EXTRA_CORRUPTIONS))
        missing = [corruption for corruption in wanted if f"{corruption}.npy" not in done]
        size = len(images) * len(SEVERITIES)
        with bar() as progress, worker_pool(workers) as pool:
            finished = len(wanted) - len(missing)
            task = progress.add_task("Building", total=len(wanted) * size, completed=finished * size, note="")
            for corruption in missing:
                progress.update(task, note=corruption)
                scratch = folder / ".build" / corruption
                chunks = [
                    (scratch / f"{severity}-{start:05}.npy", images[start : start + CHUNK], severity, start)
                    for severity in SEVERITIES
                    for start in range(0, len(images), CHUNK)
                ]
                for count in pool.map(partial(_write_chunk, corruption, seed), *zip(*chunks, strict=True)):
                    progress.advance(task, count)
                finish(f"{corruption}.npy", np.concatenate([np.load(chunk[0]) for chunk in chunks]))
                shutil.rmtree(scratch, ignore_errors=True)
        shutil.rmtree(folder / ".build", ignore_errors=True)
        remove_partials(folder)


def _write_chunk(corruption: str, seed: int, path: Path, images: Pixels, severity: int, start: int) -> int:
    """Corrupt consecutive images into a file unless it exists; return their number."""
    if not path.exists():
        _save(path, corrupt_set(images, corruption, severity, seed, range(start, start + len(images))))
    return len(images)


def _save(path: Path, values: NDArray[np.uint8]) -> None:
    with atomic_write(path) as scratch, scratch.open("wb") as file:
        np.save(file, values)


@contextmanager
def worker_pool(workers: int | None = None) -> Iterator[Executor]:
    """Yield a pool of one thread or several processes, by default one per core; work not yet begun is dropped on an error."""
    workers = workers or os.cpu_count() or 1
    pool = ThreadPoolExecutor(1) if workers == 1 else ProcessPoolExecutor(workers, get_context("spawn"), _start_worker)
    try:
        yield pool
    except BrokenProcessPool as error:
        reason = "A worker process was killed, perhaps for lack of memory."
        raise TtapsError(f"{reason}\nRun it again with fewer --workers.") from error
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker() -> None:
    """Use one core per process, since there are as many processes as cores, and exit when the parent is killed."""
    require("cv2").setNumThreads(1)

    def exit_with_parent() -> None:
        if parent := parent_process():
            parent.join()
            os._exit(1)

    Thread(target=exit_with_parent, daemon=True).start()


def _open_manifest(folder: Path, seed: int, images: Pixels, labels: NDArray[np.int64]) -> dict[str, Any]:
    """Start or resume a build in a folder; refuse a folder with other contents."""
    digest = hashlib.md5(images.tobytes() + labels.tobytes(), usedforsecurity=False).hexdigest()
    origin = {"seed": seed, "images": len(images), "source_md5": digest}
    manifest = read_manifest(folder)
    if manifest is None:
        if any(folder.glob("*.npy")):
            raise DataError(f"{folder} holds files not built here.\nMove them away or choose another data root.")
        shutil.rmtree(folder / ".build", ignore_errors=True)  # chunks of a build whose build.json was removed
        manifest = {**origin, "files": {}}
        write_text(folder / "build.json", json.dumps(manifest, indent=1) + "\n")
    for what, value in origin.items():
        if manifest.get(what) != value:
            built = f"{folder} was built with {what} {manifest.get(what)}, not {value}."
            raise DataError(f"{built}\nRemove that folder or choose another data root.")
    return manifest


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """Read the ``build.json`` of a folder; None if there is none."""
    path = folder / "build.json"
    try:
        content = json.loads(path.read_text("utf-8"))
        files = content.get("files") if isinstance(content, dict) else None
        if not isinstance(files, dict) or not all(isinstance(one, dict) and "md5" in one for one in files.values()):
            raise ValueError("it is not the manifest of a build")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read: {error}.\nRemove its folder and build again.") from error
    return content


def origin(folder: Path) -> str:
    """Return what distinguishes copies of a corrupted set: the seed of its build; empty for the official one."""
    manifest = read_manifest(folder)
    return f"built with seed {manifest.get('seed')}" if manifest else ""
