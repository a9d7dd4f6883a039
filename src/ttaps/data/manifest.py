"""``build.json``: what a folder of corrupted images was built from, and which of its files are finished."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ttaps.data.corruptions.tools import require
from ttaps.errors import DataError
from ttaps.files import atomic_write, file_md5, write_text

LIBRARIES = ("numpy", "scipy", "skimage", "cv2", "jpeglib", "PIL")


@dataclass(frozen=True)
class Manifest:
    """A folder's ``build.json``: the seed, a checksum of the clean images, md5 and library versions of each finished file."""

    folder: Path
    content: dict[str, Any]
    versions: dict[str, str]

    @classmethod
    def open(cls, folder: Path, seed: int, images: npt.NDArray[np.uint8], labels: npt.NDArray[np.int64]) -> Manifest:
        """Start a build in a folder or resume it; refuse a folder that holds something else."""
        digest = hashlib.md5(images.tobytes() + labels.tobytes(), usedforsecurity=False).hexdigest()
        origin = {"seed": seed, "images": len(images), "source_md5": digest}
        versions = {library: require(library).__version__ for library in LIBRARIES}
        before = _read(folder / "build.json")
        if before is None and any(folder.glob("*.npy")):
            raise DataError(
                f"{folder} holds files that were not built here.\nMove them away or choose another data root."
            )
        manifest = cls(folder, before or {**origin, "files": {}}, versions)
        for what, value in origin.items():
            if manifest.content.get(what) != value:
                raise DataError(
                    f"{folder} was built with {what} {manifest.content.get(what)}, not {value}.\n"
                    "Remove that folder or choose another data root."
                )
        manifest._write()
        return manifest

    @property
    def origin(self) -> str:
        """A name for the inputs of the build: seed and clean images."""
        return f"{self.content['seed']}-{self.content['source_md5'][:8]}"

    def done(self, file: str) -> bool:
        """Return whether a file is finished and still present."""
        return file in self.content["files"] and (self.folder / file).exists()

    def add(self, file: str, values: npt.NDArray[Any]) -> None:
        """Write a finished file, then record it."""
        save(self.folder / file, values)
        self.content["files"][file] = {"md5": file_md5(self.folder / file), "versions": self.versions}
        self._write()

    def _write(self) -> None:
        write_text(self.folder / "build.json", json.dumps(self.content, indent=1) + "\n")


def recorded_md5(folder: Path) -> dict[str, str]:
    """Return the md5 that each file had when it was built; empty without a ``build.json``."""
    content = _read(folder / "build.json") or {"files": {}}
    return {file: str(entry["md5"]) for file, entry in content["files"].items()}


def origin(folder: Path) -> str:
    """Return what distinguishes copies of a corrupted set: the seed it was built with; empty for the official one."""
    content = _read(folder / "build.json")
    return f"built with seed {content.get('seed')}" if content else ""


def save(path: Path, values: npt.NDArray[Any]) -> None:
    """Write an ``.npy`` file atomically."""
    with atomic_write(path) as scratch, scratch.open("wb") as file:
        np.save(file, values)


def _read(path: Path) -> dict[str, Any] | None:
    """Read ``build.json``; None if there is none."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}.\nRemove its folder and build again.") from error
    if not isinstance(content, dict) or not isinstance(content.get("files"), dict):
        raise DataError(f"{path} is not the manifest of a build.\nRemove its folder and build again.")
    return content
