"""Runs with a common start need it only once: a fork starts from another run's state and ends as it would have from scratch."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ttaps.config import flat
from ttaps.errors import UsageError
from ttaps.files import write_text
from ttaps.model.own import Factory
from ttaps.training import run_dir
from ttaps.training.config import TrainConfig, load_preset
from ttaps.training.data import Split
from ttaps.training.schedule import Schedule
from ttaps.training.trainer import Trainer

# Settings that no step depends on, or only some: _at says which.
VARYING = (
    *("objective", "epochs", "schedule", "loss", "augmentation", "ttt", "mt3", "init_prototypes_from_data"),
    *("wise_ft", "select_wise_ft", *run_dir.ONLY_WATCHED),
)


def fork(source: Path, config: TrainConfig, folder: Path, split: Split, backbone: Factory | None = None) -> None:
    """Start a run in ``folder`` from the state of the run in ``source``; refused unless both take the same steps before."""
    if run_dir.load_state(folder):  # it has begun: the same command resumes it, wherever ``source`` is by then
        return
    if not (source / run_dir.SETTINGS).exists():
        raise UsageError(f"--fork-from: there is no run in {source}.")
    state, trainer = _shared_state(source, config, len(split.train)), Trainer(config, split, backbone=backbone)
    state.check_origin(source, split.digest, trainer.fingerprint)
    groups = {  # the heads that only this run has are as before the first step: until their loss begins they do not change
        group: {name: t for name, t in tensors.items() if name.startswith("heads.")} | state.groups[group]
        for group, tensors in trainer.tensors().items()
    }
    with run_dir.locked_run_dir(folder, config):
        if run_dir.load_state(folder):  # another process was faster
            return
        if (source / run_dir.METRICS).exists():
            write_text(folder / run_dir.METRICS, (source / run_dir.METRICS).read_text("utf-8"))
        run_dir.save_state(folder, replace(state, groups=groups))


def _shared_state(source: Path, config: TrainConfig, images: int) -> run_dir.State:
    """Return the state of the run in ``source`` to start from: its last, or else the one in which its joint loss began."""
    other, steps = load_preset(str(source / run_dir.SETTINGS)), Schedule.of(config, images).steps
    states = [state for state in (run_dir.load_state(source), run_dir.load_state(source, run_dir.FORK)) if state]
    if not states:
        raise UsageError(f"--fork-from: the run in {source} has saved no state yet.")
    partings = [first_difference(other, config, images, state.step) for state in states]
    for state, parting in zip(states, partings, strict=True):
        if parting is None and state.step < steps:  # the last steps write the model, so there must be some
            return state
    where = f"--fork-from: the run in {source} is at step {states[0].step}"
    if partings[0] is None:
        raise UsageError(f"{where}, but this one has only {steps}: nothing is left to do.")
    ours, theirs = flat(asdict(config)), flat(asdict(other))
    differing = [name for name in ours if ours[name] != theirs[name] and name not in run_dir.ONLY_WATCHED]
    raise UsageError(
        f"{where}, but this one differs from step {partings[0]} on ({', '.join(differing)}).\n"
        "A run keeps only its last state and the one when its joint loss began. Train from the beginning."
    )


def first_difference(one: TrainConfig, other: TrainConfig, images: int, steps: int) -> int | None:
    """Return the first of ``steps`` steps that two runs on the same number of images take differently; None if there is none."""
    heads = min(len(one.model.heads), len(other.model.heads))  # heads are made in order: those after may differ
    defaults: dict[str, Any] = {name: getattr(TrainConfig(), name) for name in VARYING}
    models = [replace(config.model, heads=config.model.heads[:heads]) for config in (one, other)]
    first, second = (replace(one, model=model, **defaults) for one, model in zip((one, other), models, strict=True))
    if first != second:  # in what every step depends on
        return 0
    mine, yours = Schedule.of(one, images), Schedule.of(other, images)
    both_have = range(min(steps, mine.steps, yours.steps))
    return next((step for step in both_have if _at(mine, step) != _at(yours, step)), None)


def _at(schedule: Schedule, step: int) -> tuple[Any, ...]:
    """Return what one step depends on besides: learning rate, resolution and loss."""
    config, joint = schedule.config, schedule.joint_weight(step)
    common = schedule.lr_factor(step), schedule.size(step), joint
    if joint == 0:  # the cross-entropy alone, whatever the objective
        views = config.augmentation
        return *common, config.loss.label_smoothing, views.ce_only_view, views.crop_scale, views.prime_share
    own = config.objective, config.loss, config.augmentation, config.ttt, config.mt3, config.init_prototypes_from_data
    return *common, *own, schedule.prototypes_frozen(step)
