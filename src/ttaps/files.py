"""Files that are whole or not there: written beside their place, then moved into it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ttaps.errors import TtapsError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a scratch path beside ``path``; on success it takes ``path``'s place in one step, on failure it is removed."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield scratch
        _to_disk(scratch)
        scratch.replace(path)
    except OSError as error:
        raise TtapsError(f"Cannot write {path}: {error.strerror or error}.\nNothing already there was changed.") from error
    finally:
        scratch.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a whole file atomically."""
    with replacing(path) as scratch:
        scratch.write_bytes(content)


def write_text(path: Path, content: str) -> None:
    """Write a whole text file atomically."""
    write_bytes(path, content.encode())


def _to_disk(path: Path) -> None:
    """Make sure the bytes are on the disk before the name points at them: a power cut must not leave an empty file."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
