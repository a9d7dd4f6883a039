"""Where a run stands: everything needed to go on exactly, in one safetensors file that is replaced atomically."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ttaps.errors import CheckpointError, UsageError
from ttaps.files import cannot_write, write_bytes, write_text

STATE = "resume.safetensors"
FORK = "fork.safetensors"
"""The state in which the joint loss began, and other runs may go their own way (branch.py)."""
METRICS = "metrics.jsonl"


@dataclass(frozen=True)
class State:
    """Steps done, and named groups of named tensors (weights, momentum, average). There is no generator to save: see keys.py."""

    step: int
    seconds: float
    """Time spent on those steps, resumed or not."""
    groups: dict[str, dict[str, Tensor]]
    images: str = ""
    """Checksum of the images that were learnt from; older files have none."""
    start: str = ""
    """Fingerprint of the model that the run started from, if any."""
    numerics: str = ""
    """How it computes, where that was measured."""


def save_state(folder: Path, state: State, name: str = STATE) -> None:
    """Write the state; a kill at any moment leaves the old one or the new one."""
    tensors = {
        f"{group}/{name}": t.detach().cpu().contiguous()
        for group, named in state.groups.items()
        for name, t in named.items()
    }
    noted = {"step": str(state.step), "seconds": f"{state.seconds:.1f}", "images": state.images, "start": state.start}
    noted["numerics"] = state.numerics
    write_bytes(folder / name, save(tensors, metadata=noted))


def load_state(folder: Path, name: str = STATE) -> State | None:
    """Read the state back, or None where a run has not saved one yet."""
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
    """Refuse to go on with a state that was learnt from other images than those there are now."""
    if state.images and state.images != images:
        raise UsageError(
            f"{folder} was trained on other images than those that the data holds now.\n"
            "Bring those back, or train anew in another folder."
        )


def rewind_metrics(folder: Path, step: int) -> None:
    """Drop what was logged after ``step``: those steps will be done again. A line cut short by a kill goes too."""
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
