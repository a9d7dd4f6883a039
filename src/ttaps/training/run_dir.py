"""The folder of a run: settings, lock, the state to resume from, metrics, and the model card."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from jinja2 import Template
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from ttaps.config import flat, to_toml
from ttaps.errors import CheckpointError, UsageError
from ttaps.files import cannot_write, file_lock, remove_partials, write_bytes, write_text
from ttaps.model.folder import WEIGHTS, notes, read_whole
from ttaps.training.config import TrainConfig, load_preset

SETTINGS, METRICS, STATE = "train.toml", "metrics.jsonl", "resume.safetensors"
FORK = "fork.safetensors"  # the state in which the joint loss began, where other runs may fork
ONLY_WATCHED = ("checkpoint_minutes", "validate_every", "stop_on_collapse")  # change no weight; may differ on resuming


@contextmanager
def locked_run_dir(folder: Path, config: TrainConfig) -> Iterator[None]:
    """Create and lock the folder of a run, or refuse one that holds a run with other settings."""
    check_settings(folder, config)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error) from error
    with file_lock(folder / ".lock", "training here"):
        remove_partials(folder)
        if not check_settings(folder, config):  # again: another process may have changed them
            write_text(folder / SETTINGS, to_toml(config))
        yield


def check_settings(folder: Path, config: TrainConfig) -> bool:
    """Refuse a folder that holds a run with other settings, and return whether it holds any run."""
    begun = any((folder / name).exists() for name in (STATE, WEIGHTS))  # not if it failed at its first step
    watched, settings = {name: getattr(config, name) for name in ONLY_WATCHED}, folder / SETTINGS
    if begun and settings.exists() and replace(load_preset(str(settings)), **watched) != config:
        remedy = f"Use another --out; ttaps train --resume --out {folder} resumes that run."
        raise UsageError(f"{folder} holds a run with other settings (see {settings}).\n{remedy}")
    return begun


@dataclass(frozen=True)
class State:
    """Steps done, and named groups of named tensors (weights, momentum, average). There is no generator state: see rng.py."""

    step: int
    seconds: float  # spent on those steps, resumed or not
    groups: dict[str, dict[str, Tensor]]
    images: str = ""  # checksum of the training images; older files have none
    start: str = ""  # fingerprint of the model that the run started from, if any
    numerics: str = ""  # memory format and precision, where they were measured

    def check_origin(self, folder: Path, images: str, start: str) -> None:
        """Refuse to continue the run in ``folder`` with other images or from other weights."""
        remedy = "Restore those, or train in another folder."
        if self.images not in ("", images):
            raise UsageError(f"{folder} was trained on other images than the data contains now.\n{remedy}")
        if start and self.start not in ("", start):
            raise UsageError(f"{folder} started from other weights than the model in init_from has now.\n{remedy}")


def save_state(folder: Path, state: State, name: str = STATE) -> None:
    """Write the state; a kill at any time leaves the old or the new one."""
    groups = state.groups.items()
    tensors = {f"{group}/{name}": t.detach().cpu().contiguous() for group, named in groups for name, t in named.items()}
    noted = {name: str(value) for name, value in vars(state).items() if name != "groups"}
    write_bytes(folder / name, save(tensors, metadata=noted))


def load_state(folder: Path, name: str = STATE) -> State | None:
    """Read the state, or return None if a run has not saved one yet."""
    path = folder / name
    if not path.exists():
        return None
    groups: dict[str, dict[str, Tensor]] = {}
    try:
        content = read_whole(path)
        for key, tensor in load(content).items():
            group, _, name = key.partition("/")
            groups.setdefault(group, {})[name] = tensor
        metadata = notes(content)
        step, seconds = int(metadata["step"]), float(metadata.get("seconds", 0))
    except (SafetensorError, KeyError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged ({error}).\nDelete it to start this run again.") from error
    return State(step, seconds, groups, *(metadata.get(name, "") for name in ("images", "start", "numerics")))


def rewind_metrics(folder: Path, step: int) -> None:
    """Drop what was logged after ``step``: those steps will be repeated. Truncated or damaged lines are dropped too."""
    path, kept = folder / METRICS, ""
    if path.exists():
        for line in path.read_text("utf-8", "replace").splitlines():
            with suppress(ValueError, KeyError, TypeError, RecursionError):
                kept += f"{line}\n" if json.loads(line)["step"] <= step else ""
        write_text(path, kept)


def log_metrics(folder: Path, row: dict[str, float | int]) -> None:
    """Append one row."""
    try:
        with (folder / METRICS).open("a") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())  # a power cut must not take rows from before the saved state
    except OSError as error:
        raise cannot_write(folder / METRICS, error) from error


def model_card(config: TrainConfig, info: dict[str, Any], images: int) -> str:
    """Return the README of a model folder: what users must know before using the model."""
    paper, ours = flat(asdict(TrainConfig())), flat(asdict(config))
    not_listed = ("objective", "data", "seed", "init_from", "model.num_classes", *ONLY_WATCHED)
    changed = {name: ours[name] for name in ours if ours[name] != paper[name] and name not in not_listed}
    card = Template(Path(__file__).with_name("card.md.j2").read_text("utf-8"), trim_blocks=True)
    return card.render(config=config, model=config.model, info=info, images=images, changed=changed)
