"""Files that are whole or not there: written beside their place, then moved into it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ttaps.errors import TtapsError
from ttaps.progress import log_info

NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)  # some network file systems


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a scratch path beside ``path``; on success it takes ``path``'s place in one step, on failure it is removed."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield scratch
        _to_disk(scratch)
        scratch.replace(path)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        with suppress(OSError):  # nothing to remove, or no folder to hold it
            scratch.unlink()


def cannot_write(path: Path, error: OSError) -> TtapsError:
    """Return what to tell a user whose disk is full or whose folder is closed."""
    remedies = {
        errno.ENOSPC: "Make room there",
        errno.EDQUOT: "Make room there",
        errno.ENOTDIR: "A part of that path is a file, not a folder: move it away",
        errno.EEXIST: "A part of that path is a file, not a folder: move it away",
    }
    remedy = remedies.get(error.errno or 0, "Get the right to write there")
    return TtapsError(
        f"Cannot write {path}: {error.strerror or error}.\n{remedy}, or choose another folder; nothing already written was changed."
    )


def write_bytes(path: Path, content: bytes) -> None:
    """Write a whole file atomically."""
    with atomic_write(path) as scratch:
        scratch.write_bytes(content)


def write_text(path: Path, content: str) -> None:
    """Write a whole text file atomically."""
    write_bytes(path, content.encode())


def remove_partials(folder: Path) -> None:
    """Remove what processes that were killed while writing have left; nobody else may be writing there."""
    for leftover in folder.glob(".*.part"):
        leftover.unlink()


@contextmanager
def file_lock(lock: Path, doing: str) -> Iterator[None]:
    """Hold a lock that ends with the process, or say that another process is ``doing`` this already."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    try:
        file = lock.open("a")
    except OSError as error:
        raise cannot_write(lock, error) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise TtapsError(f"Another process is {doing} (it holds {lock}).\nWait for it to end.") from error
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            log_info(f"This file system has no locks: make sure that no other process is {doing} ({lock.parent}).")
        yield


def _to_disk(path: Path) -> None:
    """Make sure the bytes are on the disk before the name points at them: a power cut must not leave an empty file."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
