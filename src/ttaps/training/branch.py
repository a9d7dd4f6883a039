"""Runs that begin alike need their beginning only once: a branch takes it over, and ends with the weights it would have got alone."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from ttaps.config import from_dict, read_toml
from ttaps.errors import UsageError
from ttaps.files import write_text
from ttaps.training.batch import epoch_steps
from ttaps.training.config import TrainConfig
from ttaps.training.folder import ONLY_WATCHED, SETTINGS, locked_run_dir
from ttaps.training.loop import initial_network
from ttaps.training.schedule import Schedule
from ttaps.training.split import Split
from ttaps.training.start import init_model
from ttaps.training.state import FORK, METRICS, State, check_images, load_state, save_state


def branch(source: Path, config: TrainConfig, folder: Path, split: Split) -> None:
    """Start a run in ``folder`` from the state of the run in ``source``; refused unless both do the same steps up to there.

    A run that is already under way in ``folder`` is left as it is, so that the same command goes on with it wherever ``source`` is by then.
    """
    if load_state(folder) is not None:
        return
    if not (source / SETTINGS).exists():
        raise UsageError(f"--fork-from: there is no run in {source}.")
    other = from_dict(TrainConfig, read_toml(source / SETTINGS), where=str(source))
    state = _fork(source, other, config, len(split.train))
    check_images(source, state, split.digest)
    with locked_run_dir(folder, config):
        if load_state(folder) is not None:  # by now
            return
        if (source / METRICS).exists():
            write_text(folder / METRICS, (source / METRICS).read_text("utf-8"))
        save_state(folder, with_heads(state, config))


def _fork(source: Path, other: TrainConfig, config: TrainConfig, images: int) -> State:
    """Return the state of the run in ``source`` to go on from: its last, or else the one in which its joint loss began."""
    states = [state for state in (load_state(source), load_state(source, FORK)) if state]
    if not states:
        raise UsageError(f"--fork-from: the run in {source} has saved no state yet.")
    steps = _schedule(config, images).steps
    fits = [s for s in states if s.step < steps and first_difference(other, config, images, s.step) is None]
    if fits:
        return fits[0]
    step = states[0].step
    parting = first_difference(other, config, images, step)
    if parting is not None:
        raise UsageError(
            f"--fork-from: the run in {source} is at step {step}, but this one differs from step {parting} on "
            f"({', '.join(differing(asdict(other), asdict(config)))}).\n"
            "A run keeps its last state and the one in which its joint loss began. Train from the beginning."
        )
    # What is left to do writes the model, so something must be.
    raise UsageError(
        f"--fork-from: the run in {source} is at step {step}, and this one has only {steps}: nothing is left to do."
    )


def with_heads(state: State, config: TrainConfig) -> State:
    """Add the heads that this run has and the other had not, as they are before the first step: until a loss sees them they rest."""
    network = initial_network(config, init_model(config.init_from))
    own = {name: t for name, t in network.state_dict().items() if name.startswith("heads.")}
    still = {name: torch.zeros_like(p) for name, p in network.named_parameters() if name in own}
    fresh = {"weights": own, "momentum": still, "average": {name: own[name].clone() for name in still}}
    return replace(state, groups={group: fresh.get(group, {}) | tensors for group, tensors in state.groups.items()})


def first_difference(one: TrainConfig, other: TrainConfig, images: int, steps: int) -> int | None:
    """Return the first of ``steps`` steps that two runs on so many images would not do alike; None if there is none.

    Steps that one of them does not have are not looked at.
    """
    both_have = min(len(one.model.heads), len(other.model.heads))  # heads are made in order: those after may differ
    if _everywhere(one, both_have) != _everywhere(other, both_have):
        return 0
    ours, theirs = _schedule(one, images), _schedule(other, images)
    both_do = range(min(steps, ours.steps, theirs.steps))
    return next((step for step in both_do if _at(ours, step) != _at(theirs, step)), None)


def differing(one: dict[str, Any], other: dict[str, Any], prefix: str = "") -> list[str]:
    """Return the names of the settings that differ and may change a weight, nested ones in full (``loss.tau``)."""
    found: list[str] = []
    for name, value in one.items():
        if isinstance(value, dict):
            found += differing(value, other[name], f"{prefix}{name}.")
        elif value != other[name] and name not in ONLY_WATCHED:
            found.append(f"{prefix}{name}")
    return found


def _schedule(config: TrainConfig, images: int) -> Schedule:
    return Schedule(config, epoch_steps(images, config.batch_size))


def _everywhere(config: TrainConfig, heads: int) -> TrainConfig:
    """Return what every step depends on: a config without what is only watched or does something to the result alone, without what
    `_at` looks at step by step, and with no more than so many heads."""
    usual = TrainConfig()
    model = replace(config.model, heads=config.model.heads[:heads])
    plain = replace(config.optimizer, warmup_epochs=0, lr_hold_epochs=0, lr_schedule="constant")
    looked_at = ("objective", "epochs", "resolutions", "resolution_milestones", "loss")
    rest: dict[str, Any] = {name: getattr(usual, name) for name in (*ONLY_WATCHED, *looked_at, "wise_ft")}
    return replace(config, model=model, optimizer=plain, **rest)


def _at(schedule: Schedule, step: int) -> tuple[Any, ...]:
    """Return what one step depends on besides: rate, resolution and loss."""
    config, joint = schedule.config, schedule.joint_weight(step)
    common = schedule.lr_factor(step), schedule.size(step), joint
    if joint == 0:  # the cross-entropy alone, whatever the objective
        return *common, config.loss.label_smoothing, config.loss.crop_scale, config.loss.ce_only_view
    return *common, config.objective, config.loss, schedule.prototypes_frozen(step)
