"""The folder of a run: its settings, one process at a time, the state to resume from, and the metrics."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ttaps.config import from_dict, read_toml, to_toml
from ttaps.errors import CheckpointError, TtapsError, UsageError
from ttaps.files import cannot_write, file_lock, remove_partials, write_bytes, write_text
from ttaps.model.checkpoint import WEIGHTS
from ttaps.training.config import TrainConfig

SETTINGS = "train.toml"
STATE = "resume.safetensors"
FORK = "fork.safetensors"
"""The state in which the joint loss began, where other runs may fork."""
METRICS = "metrics.jsonl"
ONLY_WATCHED = ("checkpoint_minutes", "validate_every", "stop_on_collapse")
"""Settings that change no weight, and may differ when a run is resumed."""


@contextmanager
def locked_run_dir(folder: Path, config: TrainConfig) -> Iterator[None]:
    """Create and lock the folder of a run, or refuse one that holds a run with other settings."""
    check_settings(folder, config)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TtapsError(f"Cannot make the folder {folder}: {error.strerror}.") from error
    with file_lock(folder / ".lock", "training here"):
        remove_partials(folder)
        check_settings(folder, config)  # another process may have changed them
        if not _begun(folder):
            write_text(folder / SETTINGS, to_toml(config))
        yield


def _begun(folder: Path) -> bool:
    """Whether a folder holds more of a run than its settings: a run that failed at its first step leaves only those."""
    return any((folder / name).exists() for name in (STATE, WEIGHTS))


def read_settings(folder: Path) -> TrainConfig:
    """Return the settings of the run in ``folder``; a setting newer than the file has its default."""
    path = folder / SETTINGS
    return from_dict(TrainConfig, read_toml(path), where=str(path))


def check_settings(folder: Path, config: TrainConfig) -> None:
    """Refuse a folder that holds a run with other settings."""
    if not (folder / SETTINGS).exists() or not _begun(folder):
        return
    if replace(read_settings(folder), **{name: getattr(config, name) for name in ONLY_WATCHED}) != config:
        raise UsageError(
            f"{folder} holds a run with other settings (see {folder / SETTINGS}).\n"
            f"Use another --out; ttaps train --resume --out {folder} resumes that run."
        )


@dataclass(frozen=True)
class State:
    """Steps done, and named groups of named tensors (weights, momentum, average). There is no generator state: see rng.py."""

    step: int
    seconds: float
    """Time spent on those steps, resumed or not."""
    groups: dict[str, dict[str, Tensor]]
    images: str = ""
    """Checksum of the training images; older files have none."""
    start: str = ""
    """Fingerprint of the model that the run started from, if any."""
    numerics: str = ""
    """Memory format and precision, where they were measured."""


def save_state(folder: Path, state: State, name: str = STATE) -> None:
    """Write the state; a kill at any moment leaves the old one or the new one."""
    tensors = {
        f"{group}/{name}": t.detach().cpu().contiguous()
        for group, named in state.groups.items()
        for name, t in named.items()
    }
    noted = {"step": str(state.step), "seconds": f"{state.seconds:.1f}"}
    noted |= {"images": state.images, "start": state.start, "numerics": state.numerics}
    write_bytes(folder / name, save(tensors, metadata=noted))


def load_state(folder: Path, name: str = STATE) -> State | None:
    """Read the state, or return None where a run has not saved one yet."""
    path = folder / name
    if not path.exists():
        return None
    groups: dict[str, dict[str, Tensor]] = {}
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
            step, seconds = int(metadata["step"]), float(metadata.get("seconds", 0))
            for key in file.keys():  # noqa: SIM118 (safe_open is no mapping)
                group, _, name = key.partition("/")
                groups.setdefault(group, {})[name] = file.get_tensor(key)
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged ({error}).\nDelete it to start this run again.") from error
    return State(step, seconds, groups, *(metadata.get(name, "") for name in ("images", "start", "numerics")))


def check_images(folder: Path, state: State, images: str) -> None:
    """Refuse to resume from a state that was trained on other images."""
    if state.images and state.images != images:
        raise UsageError(
            f"{folder} was trained on other images than those that the data holds now.\n"
            "Restore those, or train in another folder."
        )


def rewind_metrics(folder: Path, step: int) -> None:
    """Drop what was logged after ``step``: those steps will be repeated. A line cut short by a kill is dropped too."""
    path = folder / METRICS
    if path.exists():
        whole = [line for line in path.read_text("utf-8").splitlines() if line.startswith("{") and line.endswith("}")]
        write_text(path, "".join(f"{line}\n" for line in whole if json.loads(line)["step"] <= step))


def log_metrics(folder: Path, row: dict[str, float | int]) -> None:
    """Append one row."""
    path = folder / METRICS
    try:
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")
    except OSError as error:
        raise cannot_write(path, error) from error
