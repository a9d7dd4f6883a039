"""Build CIFAR-10-C or CIFAR-100-C from the clean test images, in the official layout.

``<root>/CIFAR-10-C/<corruption>.npy`` holds severities 1 to 5 one after the other, uint8 (5 N, 32, 32, 3), and
``labels.npy`` the labels five times. Chunks of work are kept in a hidden folder until their file is
complete: a build that was killed resumes when it is started again.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread

import numpy as np
import numpy.typing as npt

from ttaps.data.cifar import read_cifar
from ttaps.data.cifar_c import FOLDERS, SEVERITIES, check_corruption
from ttaps.data.corruptions import DETERMINISTIC, RANDOM, corrupt_set
from ttaps.data.corruptions.tools import Pixels, require
from ttaps.data.manifest import Manifest, save
from ttaps.errors import TtapsError, UsageError
from ttaps.files import cannot_write, file_lock, remove_partials
from ttaps.progress import bar

CHUNK = 500  # images: 0.03 to 2 seconds of work, which is all that a kill can lose


@dataclass(frozen=True)
class Chunk:
    """Consecutive images of one corruption at one severity, and the file that keeps the result."""

    corruption: str
    severity: int
    start: int
    images: Pixels
    seed: int
    path: Path

    def compute(self) -> int:
        """Write the chunk's file unless it exists; return the number of images."""
        if not self.path.exists():
            places = range(self.start, self.start + len(self.images))
            save(self.path, corrupt_set(self.images, self.corruption, self.severity, self.seed, places))
        return len(self.images)


def build(
    name: str, root: Path, seed: int = 0, corruptions: Sequence[str] | None = None, workers: int | None = None
) -> Path:
    """Build the corrupted test set ``name`` under ``root`` from the clean one there; return its folder.

    ``corruptions`` is all 19 if not given, ``workers`` all cores. Every pixel is a function of the clean images, the seed,
    the corruption, the severity and the image's index. With several workers, processes are spawned: a script that calls
    this needs the usual ``if __name__ == "__main__":``.
    """
    if name not in FOLDERS:
        raise UsageError(f"No corrupted set {name!r} to build; choose one of: {', '.join(FOLDERS)}.")
    for corruption in corruptions or ():  # before the clean images are read
        check_corruption(corruption)
    clean = read_cifar(name.removesuffix("-c"), root, "test")
    folder = root / FOLDERS[name]
    images = clean.images.transpose(0, 2, 3, 1)
    build_from(images, clean.labels, folder, seed=seed, corruptions=corruptions, workers=workers)
    return folder


def build_from(
    images: Pixels,
    labels: npt.NDArray[np.int64],
    folder: Path,
    *,
    seed: int = 0,
    corruptions: Sequence[str] | None = None,
    workers: int | None = None,
) -> None:
    """Build the files of ``folder`` from clean images of shape (N, 32, 32, 3) and their labels."""
    wanted = tuple(dict.fromkeys(corruptions if corruptions is not None else (*DETERMINISTIC, *RANDOM)))
    for corruption in wanted:
        check_corruption(corruption)
    workers = os.cpu_count() or 1 if workers is None else workers
    if workers < 1:
        raise UsageError(f"A build needs at least one worker, not {workers}.")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error) from error
    with file_lock(folder.parent / f".{folder.name}.lock", f"building {folder}"):
        _build_missing(images, labels, folder, seed, wanted, workers)


def _build_missing(
    images: Pixels, labels: npt.NDArray[np.int64], folder: Path, seed: int, wanted: Sequence[str], workers: int
) -> None:
    """Build the missing files, one corruption after the other."""
    manifest = Manifest.open(folder, seed, images, labels)
    if not manifest.done("labels.npy"):
        manifest.add("labels.npy", np.tile(labels, len(SEVERITIES)).astype(np.uint8))
    missing = [corruption for corruption in wanted if not manifest.done(f"{corruption}.npy")]
    size = len(images) * len(SEVERITIES)
    with bar() as progress, _pool(workers) as compute:
        finished = len(wanted) - len(missing)
        task = progress.add_task("Building", total=len(wanted) * size, completed=finished * size, note="")
        for corruption in missing:
            progress.update(task, note=corruption)
            # origin: seed and source, so that a build resumes only chunks of its own
            scratch = folder / ".build" / manifest.origin / corruption
            chunks = _chunks(images, corruption, seed, scratch)
            for count in compute(chunks):
                progress.advance(task, count)
            manifest.add(f"{corruption}.npy", np.concatenate([np.load(chunk.path) for chunk in chunks]))
            shutil.rmtree(scratch, ignore_errors=True)
    shutil.rmtree(folder / ".build", ignore_errors=True)
    remove_partials(folder)


def _chunks(images: Pixels, corruption: str, seed: int, scratch: Path) -> list[Chunk]:
    """Split one corruption's work, in the order of the finished file."""
    return [
        Chunk(corruption, severity, start, images[start : start + CHUNK], seed, scratch / f"{severity}-{start:05}.npy")
        for severity in SEVERITIES
        for start in range(0, len(images), CHUNK)
    ]


@contextmanager
def _pool(workers: int) -> Iterator[Callable[[list[Chunk]], Iterable[int]]]:
    """Yield a function that computes chunks, here or in other processes, and yields their sizes as they finish."""
    if workers == 1:
        yield lambda chunks: (chunk.compute() for chunk in chunks)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_start_worker) as pool:

        def compute(chunks: list[Chunk]) -> Iterator[int]:
            futures = [pool.submit(chunk.compute) for chunk in chunks]
            for future in as_completed(futures):
                yield future.result()

        try:
            yield compute
        except BrokenProcessPool as error:
            raise TtapsError(
                "A worker process was killed, perhaps for lack of memory.\nRun it again with fewer --workers."
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _start_worker() -> None:
    """Use one core per process, as there are as many processes as cores, and exit when the parent is killed."""
    require("cv2").setNumThreads(1)
    Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    if parent := parent_process():
        parent.join()
        os._exit(1)
