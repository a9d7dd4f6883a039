"""Whose a run folder is: one run's settings, and one process at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ttaps.config import from_dict, read_toml, to_toml
from ttaps.errors import TtapsError, UsageError
from ttaps.files import file_lock, remove_partials, write_text
from ttaps.model.checkpoint import WEIGHTS
from ttaps.training.config import TrainConfig
from ttaps.training.state import STATE

SETTINGS = "train.toml"
ONLY_WATCHED = ("checkpoint_minutes", "validate_every", "stop_on_collapse")
"""Settings that change no weight, and may change on the way."""


@contextmanager
def locked_run_dir(folder: Path, config: TrainConfig) -> Iterator[None]:
    """Make ``folder`` this run's and keep others out, or refuse if it holds a run with other settings."""
    check_settings(folder, config)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TtapsError(f"Cannot make the folder {folder}: {error.strerror}.") from error
    with file_lock(folder / ".lock", "training here"):
        remove_partials(folder)
        check_settings(folder, config)  # by now
        if not _begun(folder):
            write_text(folder / SETTINGS, to_toml(config))
        yield


def _begun(folder: Path) -> bool:
    """Say whether a folder holds more of a run than what it was told: one that was refused at its first step leaves only that."""
    return any((folder / name).exists() for name in (STATE, WEIGHTS))


def check_settings(folder: Path, config: TrainConfig) -> None:
    """Refuse a folder that holds a run with other settings."""
    path = folder / SETTINGS
    if not path.exists() or not _begun(folder):
        return
    # As settings, not as text: a file from before a setting existed has its default.
    before = from_dict(TrainConfig, read_toml(path), where=str(path))
    if replace(before, **{name: getattr(config, name) for name in ONLY_WATCHED}) != config:
        raise UsageError(
            f"{folder} holds a run with other settings (see {path}).\n"
            f"Use another --out; ttaps train --resume --out {folder} goes on with those."
        )
