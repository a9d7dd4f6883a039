"""Presets: TOML files in ``ttaps/presets/`` that hold what differs from the defaults, or from another preset (``base = "..."``)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ttaps.config import did_you_mean, from_dict, read_toml
from ttaps.errors import UsageError
from ttaps.training.config import TrainConfig

FOLDER = Path(__file__).parents[1] / "presets"
GRIDS = "reproduce"  # folder of the grids of `ttaps reproduce`; all others are presets of `ttaps train`
NUM_CLASSES = {"cifar10": 10, "cifar100": 100, "sample": 10}


def preset_names(grids: bool = False) -> dict[str, Path]:
    """Return the files of the training presets, or of the grids of ``ttaps reproduce``, by name."""
    files = {path.relative_to(FOLDER).with_suffix("").as_posix(): path for path in sorted(FOLDER.rglob("*.toml"))}
    found = {name: path for name, path in files.items() if name.startswith(f"{GRIDS}/") == grids}
    return {name.removeprefix(f"{GRIDS}/"): path for name, path in found.items()}


def find_preset(name: str, grids: bool = False) -> Path:
    """Return the file of a preset: a path, or a name such as ``smoke`` or ``paper/jt+ent``."""
    if Path(name).is_file():
        return Path(name)
    known = preset_names(grids)
    if name in known:
        return known[name]
    raise UsageError(f"There is no {'grid' if grids else 'preset'} '{name}'{did_you_mean(name, known)}.")


def read_preset(path: Path, seen: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Read a preset with what it inherits: ``base`` is a preset's name, or a file beside this one."""
    if path.resolve() in seen:
        raise UsageError(f"{path}: base = ... leads back to itself.")
    values = read_toml(path)
    base = values.pop("base", None)
    if base is None:
        return values
    if not isinstance(base, str):
        raise UsageError(f"{path}: base must be the name of a preset or a file, not {base!r}.")
    file = path.parent / base
    return merge(read_preset(file if file.is_file() else find_preset(base), (*seen, path.resolve())), values)


def merge(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested settings with some replaced."""
    merged = dict(values)
    for name, change in changes.items():
        before = values.get(name)
        if isinstance(change, Mapping) and isinstance(before, Mapping):
            merged[name] = merge(before, change)
        else:
            merged[name] = change
    return merged


def train_config(values: Mapping[str, Any], where: str) -> TrainConfig:
    """Return the settings of a preset; a network for a known data set has as many classes, unless the preset says otherwise."""
    config = from_dict(TrainConfig, values, where)
    num_classes = NUM_CLASSES.get(config.data, config.model.num_classes)
    return from_dict(TrainConfig, merge({"model": {"num_classes": num_classes}}, values), where)


def load_preset(name: str) -> TrainConfig:
    """Return the training settings of a preset, by name or file."""
    path = find_preset(name)
    return train_config(read_preset(path), where=str(path))
