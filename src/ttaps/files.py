"""Files that are complete or absent (written to a temporary file, then renamed), and locks between processes."""

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path

from filelock import FileLock, Timeout

from ttaps.errors import Locked, TtapsError
from ttaps.progress import log_info

NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)  # what some network file systems answer to flock


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; on success it replaces ``path`` in one step, on failure it is removed."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for left in path.parent.glob(f".{escape(path.name)}.*.part"):
            if Path("/proc/self").exists() and not Path("/proc", left.name.split(".")[-2]).exists():
                left.unlink(missing_ok=True)  # its process was killed while it wrote
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())  # before the rename: a power cut must not leave an empty file
        partial.replace(path)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        with suppress(OSError):  # already renamed, or its folder could not be made
            partial.unlink()


def cannot_write(path: Path, error: OSError) -> TtapsError:
    """Return the error to raise if a disk is full or a folder is not writable."""
    remedies = dict.fromkeys((errno.ENOTDIR, errno.EEXIST), "A part of that path is a file, not a folder: move it away")
    remedies[errno.EISDIR] = "Give the name of a file"
    remedies |= dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "Make room there")
    remedy = remedies.get(error.errno or 0, "Get permission to write there")
    return TtapsError(
        f"Cannot write {path}: {error.strerror or error}.\n{remedy}, or choose another folder; nothing already written was changed."
    )


def cannot_read(path: Path, error: OSError) -> TtapsError:
    """Return the error to raise if a file is there, but the system does not let us read it."""
    remedy = "Get permission to read it, or check the disk; then run the command again."
    return TtapsError(f"Cannot read {path}: {error.strerror or error}.\n{remedy}")


def make_room(path: Path) -> None:
    """Make the folder of a file that a long command writes at its end, or fail before the work starts."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        if not os.access(path.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise cannot_write(path, error) from error


def write_bytes(path: Path, content: bytes) -> None:
    """Write a whole file atomically."""
    with atomic_write(path) as partial:
        partial.write_bytes(content)


def write_text(path: Path, content: str) -> None:
    """Write a whole text file atomically."""
    write_bytes(path, content.encode())


def remove_partials(folder: Path) -> None:
    """Remove the temporary files of processes killed while writing; no other process may be writing there."""
    for partial in folder.glob(".*.part"):
        partial.unlink()


@contextmanager
def file_lock(path: Path, doing: str, wait: bool = False) -> Iterator[None]:
    """Hold a lock that the system releases when the process ends; ``wait``, or raise if another process is already ``doing`` this."""
    lock = FileLock(path, timeout=-1 if wait else 0)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(poll_interval=1)
    except Timeout as error:
        raise Locked(f"Another process is {doing} (it holds {path}).\nWait for it to end.") from error
    except (OSError, NotImplementedError) as error:  # the second is what an older filelock makes of ENOSYS
        if isinstance(error, OSError) and error.errno not in NO_LOCKS:
            raise cannot_write(path, error) from error
        log_info(f"This file system has no locks: make sure that no other process is {doing} ({path.parent}).")
    try:
        yield
    finally:
        lock.release()


def file_md5(path: Path, advance: Callable[[int], object] = lambda count: None) -> str:
    """Return the md5 of a file; ``advance`` is called with the number of bytes after each chunk."""
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
            advance(len(chunk))
    return digest.hexdigest()
