"""Runs that begin alike need their beginning only once: a fork starts from another run's state and ends as it would have alone."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from ttaps.config import flat
from ttaps.errors import UsageError
from ttaps.files import write_text
from ttaps.training import run_dir
from ttaps.training.config import TrainConfig
from ttaps.training.data import Split
from ttaps.training.init_from import init_model
from ttaps.training.run_dir import ONLY_WATCHED, State, load_state
from ttaps.training.schedule import Schedule
from ttaps.training.trainer import initial_network


def fork(source: Path, config: TrainConfig, folder: Path, split: Split) -> None:
    """Start a run in ``folder`` from the state of the run in ``source``; refused unless both take the same steps up to there.

    A run that has begun in ``folder`` is left as it is, so that the same command resumes it wherever ``source`` is by then.
    """
    if load_state(folder) is not None:
        return
    if not (source / run_dir.SETTINGS).exists():
        raise UsageError(f"--fork-from: there is no run in {source}.")
    state = _shared_state(source, config, len(split.train))
    run_dir.check_images(source, state, split.digest)
    with run_dir.locked_run_dir(folder, config):
        if load_state(folder) is not None:  # another process was faster
            return
        if (source / run_dir.METRICS).exists():
            write_text(folder / run_dir.METRICS, (source / run_dir.METRICS).read_text("utf-8"))
        run_dir.save_state(folder, _with_heads(state, config))


def _shared_state(source: Path, config: TrainConfig, images: int) -> State:
    """Return the state of the run in ``source`` to start from: its last, or else the one in which its joint loss began."""
    other = run_dir.read_settings(source)
    states = [state for state in (load_state(source), load_state(source, run_dir.FORK)) if state]
    if not states:
        raise UsageError(f"--fork-from: the run in {source} has saved no state yet.")
    steps = Schedule.of(config, images).steps
    for state in states:
        if state.step < steps and first_difference(other, config, images, state.step) is None:
            return state
    step = states[0].step
    parting = first_difference(other, config, images, step)
    if parting is None:  # the last steps write the model, so there must be some
        raise UsageError(
            f"--fork-from: the run in {source} is at step {step}, and this one has only {steps}: nothing is left to do."
        )
    ours, theirs = flat(asdict(config)), flat(asdict(other))
    differing = [name for name in ours if ours[name] != theirs[name] and name not in ONLY_WATCHED]
    raise UsageError(
        f"--fork-from: the run in {source} is at step {step}, but this one differs from step {parting} on "
        f"({', '.join(differing)}).\n"
        "A run keeps its last state and the one in which its joint loss began. Train from the beginning."
    )


def _with_heads(state: State, config: TrainConfig) -> State:
    """Add the heads that only this run has, as they are before the first step: until their loss begins they do not change."""
    network = initial_network(config, init_model(config.init_from))
    own = {name: t for name, t in network.state_dict().items() if name.startswith("heads.")}
    still = {name: torch.zeros_like(p) for name, p in network.named_parameters() if name in own}
    fresh = {"weights": own, "momentum": still, "average": {name: own[name].clone() for name in still}}
    return replace(state, groups={group: fresh.get(group, {}) | tensors for group, tensors in state.groups.items()})


def first_difference(one: TrainConfig, other: TrainConfig, images: int, steps: int) -> int | None:
    """Return the first of ``steps`` steps that two runs on so many images would take differently; None if there is none.

    Steps that one of them does not have are not compared.
    """
    shared_heads = min(len(one.model.heads), len(other.model.heads))  # heads are made in order: those after may differ
    if _constant(one, shared_heads) != _constant(other, shared_heads):
        return 0
    ours, theirs = Schedule.of(one, images), Schedule.of(other, images)
    both_have = range(min(steps, ours.steps, theirs.steps))
    return next((step for step in both_have if _at(ours, step) != _at(theirs, step)), None)


def _constant(config: TrainConfig, heads: int) -> TrainConfig:
    """Return what every step depends on: a config whose other settings, and those that `_at` compares, are the defaults."""
    varying = ("objective", "epochs", "schedule", "loss", "augmentation", "ttt", "mt3", "init_prototypes_from_data")
    unused = (*ONLY_WATCHED, "wise_ft")
    defaults: dict[str, Any] = {name: getattr(TrainConfig(), name) for name in (*varying, *unused)}
    return replace(config, model=replace(config.model, heads=config.model.heads[:heads]), **defaults)


def _at(schedule: Schedule, step: int) -> tuple[Any, ...]:
    """Return what one step depends on besides: learning rate, resolution and loss."""
    config, joint = schedule.config, schedule.joint_weight(step)
    common = schedule.lr_factor(step), schedule.size(step), joint
    if joint == 0:  # the cross-entropy alone, whatever the objective
        views = config.augmentation
        return *common, config.loss.label_smoothing, views.ce_only_view, views.crop_scale, views.prime_share
    own = config.objective, config.loss, config.augmentation, config.ttt, config.mt3, config.init_prototypes_from_data
    return *common, *own, schedule.prototypes_frozen(step)
