"""A fork is bit for bit what its run would have been alone, or it is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.small_training import SHORT
from ttaps.data import ImageSet
from ttaps.errors import TtapsError, UsageError
from ttaps.files import file_lock
from ttaps.training.config import AugmentationConfig, Mt3Config, ScheduleConfig, TrainConfig
from ttaps.training.data import Split
from ttaps.training.fork import first_difference, fork
from ttaps.training.run import Run
from ttaps.training.run_dir import locked_run_dir


def stopped(config: TrainConfig, folder: Path, split: Split, steps: int) -> Path:
    """Return a run's folder as a kill after so many steps leaves it."""
    run = Run(config, folder, split)
    with locked_run_dir(folder, config):
        for step in range(steps):
            run.trainer.step(step)
        run.save(steps)
    return folder


@pytest.mark.parametrize(
    ("objective", "heads"), [("baseline", ()), ("jt", ()), ("ttt", ("rotation",)), ("mt3", ("predictor",))]
)
def test_a_fork_ends_as_the_run_alone_would(objective: Any, heads: Any, textures: ImageSet, tmp_path: Path) -> None:
    norm: Any = "group" if objective == "mt3" else "batch"
    split, grown = Split.of(textures), replace(SHORT, model=replace(SHORT.model, norm=norm))
    other = replace(grown, objective=objective, model=replace(grown.model, heads=heads))
    trunk = stopped(grown, tmp_path / "trunk", split, 8)  # where the joint loss begins
    fork(trunk, other, tmp_path / "early", split)
    Run(grown, trunk, split).train()  # the trunk goes its own way, and keeps the state in which it began to
    fork(trunk, other, tmp_path / "late", split)
    for name in ("early", "late", "alone"):
        Run(other, tmp_path / name, split).train()
    weights = {(tmp_path / name / "model.safetensors").read_bytes() for name in ("early", "late", "alone")}
    assert len(weights) == 1
    fork(trunk, other, tmp_path / "early", split)
    assert (tmp_path / "early" / "model.safetensors").read_bytes() in weights, "a run under way was set back"


def test_a_folder_in_use_is_left_alone(textures: ImageSet, tmp_path: Path) -> None:
    split = Split.of(textures)
    trunk = stopped(SHORT, tmp_path / "trunk", split, 8)
    (tmp_path / "busy").mkdir()
    with file_lock(tmp_path / "busy" / ".lock", "training here"), pytest.raises(TtapsError, match="Another process"):
        fork(trunk, SHORT, tmp_path / "busy", split)
    assert [path.name for path in (tmp_path / "busy").iterdir()] == [".lock"], "the other's folder has our settings"


def test_runs_that_differ_are_refused(textures: ImageSet, tmp_path: Path) -> None:
    split = Split.of(textures)
    trunk = stopped(SHORT, tmp_path / "trunk", split, 9)
    with pytest.raises(UsageError, match=r"at step 9, but this one differs from step 8 on \(objective\)"):
        fork(trunk, replace(SHORT, objective="jt"), tmp_path / "jt", split)
    other = replace(SHORT, seed=1, validate_every=9.0, optimizer=replace(SHORT.optimizer, lr=0.7))
    with pytest.raises(UsageError, match=r"differs from step 0 on \(seed, optimizer\.lr\)"):
        fork(trunk, other, tmp_path / "seed", split)
    with pytest.raises(UsageError, match="there is no run in"):
        fork(tmp_path, SHORT, tmp_path / "new", split)
    done = stopped(SHORT, tmp_path / "done", split, Run(SHORT, tmp_path / "done", split).schedule.steps)
    with pytest.raises(UsageError, match="nothing is left to do"):
        fork(done, SHORT, tmp_path / "again", split)
    brighter = Split.of(replace(textures, images=textures.images + 1))
    with pytest.raises(UsageError, match="trained on other images"):
        fork(trunk, SHORT, tmp_path / "brighter", brighter)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["done", "trunk"]


@pytest.mark.parametrize(
    ("change", "step"),
    [
        ({"checkpoint_minutes": 9.0}, None),
        ({"batch_size": 32}, 0),
        ({"schedule": replace(SHORT.schedule, resolution_milestones=(0.2, 1.0))}, 8),
        ({"epochs": 6, "schedule": replace(SHORT.schedule, resolutions=(), resolution_milestones=(1.0,))}, 0),
        # The learning rate falls more slowly after the warm-up.
        ({"epochs": 6, "schedule": replace(SHORT.schedule, resolution_milestones=(1 / 3, 1.0))}, 5),
        ({"objective": "jt"}, 8),
        ({"objective": "ttt", "model": replace(SHORT.model, heads=("rotation",))}, 8),
        ({"model": replace(SHORT.model, heads=("rotation",))}, None),
        ({"model": replace(SHORT.model, width=8)}, 0),
        ({"loss": replace(SHORT.loss, gamma_ent=0.2)}, 8),
        ({"loss": replace(SHORT.loss, label_smoothing=0.2)}, 0),
        ({"optimizer": replace(SHORT.optimizer, momentum=0.8)}, 0),
        ({"augmentation": AugmentationConfig(ce_view="color")}, 8),
        ({"augmentation": AugmentationConfig(prime_share=0.5)}, 0),
        ({"init_prototypes_from_data": False}, 8),
        ({"schedule": replace(SHORT.schedule, joint_ramp_epochs=2)}, 8),
        ({"schedule": replace(SHORT.schedule, lr_decay_epochs=2)}, 5),
        ({"mt3": Mt3Config(inner_lr=1.0)}, 8),
    ],
)
def test_the_first_step_that_differs(change: dict[str, Any], step: int | None) -> None:
    assert first_difference(SHORT, replace(SHORT, **change), 128, 40) == step


def test_steps_that_a_run_has_not_are_not_compared() -> None:
    level = replace(SHORT, schedule=ScheduleConfig(warmup_epochs=1, lr_schedule="constant", resolutions=(8,)))
    assert first_difference(level, replace(level, epochs=3), 128, 40) is None
