"""Runs that begin alike need their beginning only once: a branch takes it over, and ends with the weights it would have got alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ttaps.config import from_dict, read_toml
from ttaps.errors import UsageError
from ttaps.files import write_text
from ttaps.training.batch import epoch_steps
from ttaps.training.config import TrainConfig
from ttaps.training.loop import ONLY_WATCHED, claim_folder
from ttaps.training.schedule import Schedule
from ttaps.training.state import METRICS, load_state, save_state

ALIKE_AT_FIRST = ("baseline", "jt", "jt+ent")  # before the joint loss begins, all three are the cross-entropy alone


def branch(source: Path, config: TrainConfig, folder: Path, images: int) -> None:
    """Start a run in ``folder`` from the state of the run in ``source``; refused unless both do the same steps up to there.

    A run that is already under way in ``folder`` is left as it is.
    """
    if not (source / "train.toml").exists():
        raise UsageError(f"--branch: there is no run in {source}.")
    other = from_dict(TrainConfig, read_toml(source / "train.toml"), where=str(source))
    state = load_state(source)
    if state is None:
        raise UsageError(f"--branch: the run in {source} has saved no state yet.")
    parting = first_difference(other, config, images, state.step)
    if parting is not None:
        raise UsageError(
            f"--branch: the run in {source} is at step {state.step}, but this one differs from step {parting} on.\n"
            "Branch from an earlier state, or train from the beginning."
        )
    claim_folder(folder, config)
    if load_state(folder) is None:
        if (source / METRICS).exists():
            write_text(folder / METRICS, (source / METRICS).read_text())
        save_state(folder, state)


def first_difference(one: TrainConfig, other: TrainConfig, images: int, steps: int) -> int | None:
    """Return the first of ``steps`` steps that two runs on so many images would not do alike; None if there is none."""
    if _everywhere(one) != _everywhere(other):
        return 0
    ours, theirs = (Schedule(config, epoch_steps(images, config.batch)) for config in (one, other))
    return next((step for step in range(steps) if _at(ours, step) != _at(theirs, step)), None)


def _everywhere(config: TrainConfig) -> TrainConfig:
    """Return what every step depends on: a config without what is only watched, and without what `_at` looks at step by step."""
    usual = TrainConfig()
    plain = replace(config.optimiser, warmup=0, hold=0, decay="constant")
    looked_at = ("objective", "epochs", "sizes", "size_until", "loss")
    rest: dict[str, Any] = {name: getattr(usual, name) for name in (*ONLY_WATCHED, *looked_at)}
    return replace(config, optimiser=plain, **rest)


def _at(schedule: Schedule, step: int) -> tuple[Any, ...]:
    """Return what one step depends on besides: rate, resolution and loss."""
    config, joint = schedule.config, schedule.joint(step)
    common = schedule.lr(step), schedule.size(step), joint
    if config.objective in ALIKE_AT_FIRST and joint == 0:
        return *common, config.loss.label_smoothing, config.loss.crop_scale
    return *common, config.objective, config.loss, schedule.prototypes_frozen(step)
