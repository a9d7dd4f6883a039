"""Runs that really go wrong are stopped with the reason in plain words; runs that go well are left alone."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Literal
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from helpers.small_training import STARTS, TINY
from ttaps.data import ImageSet
from ttaps.training.collapse import CollapseCheck, TrainingCollapsed
from ttaps.training.config import LossConfig, OptimizerConfig, ScheduleConfig, TrainConfig, load_preset
from ttaps.training.data import Split
from ttaps.training.run import Run
from ttaps.training.schedule import Schedule

STUCK = TrainConfig(
    objective="jt",
    epochs=100,
    batch_size=16,
    validate_every=1000,
    checkpoint_minutes=1000,
    model=TINY,
    optimizer=OptimizerConfig(lr=0.05),
    schedule=ScheduleConfig(warmup_epochs=1, resolutions=(8,)),
)
"""The paper's loss with GroupNorm, plain SGD and no special start: all z become alike within 80 steps."""

LIVELY = replace(
    STUCK,
    objective="jt+ent",
    model=STARTS,
    optimizer=OptimizerConfig(name="muon", lr=0.1, muon_lr=0.05),
)
"""The same with a start that works: passes ln K at about step 80 and leaves it by step 150."""

AT_ONCE = ScheduleConfig(warmup_epochs=0, resolutions=(8,))


def run(config: TrainConfig, folder: Path, textures: ImageSet, window: int | None = None) -> Run:
    """Return a run that is checked over ``window`` steps (as many as usual unless given)."""
    made = Run(config, folder, Split.of(textures))
    if window:
        made.check = CollapseCheck(config.model.num_prototypes, config.model.num_classes, window)
    return made


def rows(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_collapsed_run_is_stopped_and_a_lively_one_is_not(textures: ImageSet, tmp_path: Path) -> None:
    with pytest.raises(
        TrainingCollapsed, match=r"SwAV loss has been at ln K = 3.401 .*\nTry --schedule.joint-start-epoch 1"
    ) as trouble:
        run(STUCK, tmp_path / "stuck", textures).train()
    assert trouble.value.exit_code == 1
    stuck = rows(tmp_path / "stuck")
    assert 300 <= stuck[-1]["step"] <= 400  # a few hundred steps
    assert abs(stuck[-1]["swav"] - math.log(30)) < 1e-4

    steps = int(stuck[-1]["step"]) + 10
    run(replace(LIVELY, epochs=steps / 8), tmp_path / "lively", textures).train()
    lively = [row for row in rows(tmp_path / "lively") if "swav" in row]
    assert sum(row["swav"] for row in lively[-3:]) / 3 < math.log(30) - 0.03


PLATEAU = replace(
    STUCK,
    objective="jt+ent",
    optimizer=OptimizerConfig(lr=0.5),
    schedule=ScheduleConfig(warmup_epochs=50, resolutions=(8,)),
)
"""The paper's learning rate and a long linear warm-up, of 400 steps: SwAV is at ln K from step 85 to 288 and leaves it by itself."""


def test_a_plateau_in_the_warm_up_is_no_collapse(textures: ImageSet, tmp_path: Path) -> None:
    """As the paper's own training starts; judged before the end of the warm-up, it would be stopped."""
    window = 150
    always, losses = CollapseCheck(30, 4, window), []
    made = run(replace(PLATEAU, epochs=69), tmp_path, textures, window)
    step = made.trainer.step

    def recorded(number: int) -> dict[str, Tensor]:
        losses.append(step(number))
        return losses[-1]

    with patch.object(made.trainer, "step", recorded):
        made.train()
    assert len(losses) == 552  # the warm-up, and more than the window after it
    swav = torch.stack([found["swav"] for found in losses])
    near = (swav - math.log(30)).abs() < 0.001
    assert near[100:250].all()
    assert near[400:].double().mean() < 0.5
    with pytest.raises(TrainingCollapsed, match="Collapsed: the SwAV loss has been at ln K"):
        watch(always, losses)


@pytest.mark.parametrize(
    "preset",
    [
        "paper/jt+ent",
        "reference/jt",
        "cpu/jt+ent-cifar10",
        "cpu/jt+ent-cifar100",
        "cpu/small",
    ],
)
def test_every_preset_would_be_stopped(preset: str) -> None:
    """Also where the joint loss is short, or is ramped in while the learning rate falls."""
    config = load_preset(preset)
    times = config.schedule
    ramped = replace(config, schedule=replace(times, joint_ramp_epochs=config.epochs - times.joint_start_epoch))
    for told in (config, ramped):
        schedule = Schedule(told, 40_000 // told.batch_size)
        joint = filter(schedule.joint_weight, range(schedule.steps))
        with pytest.raises(TrainingCollapsed, match="Collapsed: the SwAV loss has been at ln K"):
            watch(CollapseCheck(300, 10), [parts(math.log(300))] * schedule.steps, map(schedule.warm, joint))


def test_a_run_asked_not_to_stop_continues(textures: ImageSet, tmp_path: Path) -> None:
    config = replace(STUCK, epochs=2, optimizer=OptimizerConfig(lr=1e30), schedule=AT_ONCE, stop_on_collapse=False)
    run(config, tmp_path, textures).train()
    assert rows(tmp_path)[-1]["step"] == 16


@pytest.mark.parametrize("objective", ["baseline", "jt"])
def test_a_loss_that_is_no_number_stops_the_run(
    objective: Literal["baseline", "jt"], textures: ImageSet, tmp_path: Path
) -> None:
    config = replace(LIVELY, objective=objective, optimizer=OptimizerConfig(lr=1e30), schedule=AT_ONCE)
    with pytest.raises(
        TrainingCollapsed, match=r"The loss is (nan|inf) at step \d: training has diverged.\nTry a lower learning rate"
    ):
        run(config, tmp_path, textures).train()


@pytest.mark.parametrize("objective", ["baseline", "jt"])
def test_an_exploding_loss_stops_the_run(
    objective: Literal["baseline", "jt"], textures: ImageSet, tmp_path: Path
) -> None:
    config = replace(STUCK, objective=objective, optimizer=OptimizerConfig(lr=2000.0), schedule=AT_ONCE)
    with pytest.raises(TrainingCollapsed, match=r"The loss exploded to .* at step \d\d; .*\nTry a lower learning rate"):
        run(config, tmp_path, textures).train()


def test_dead_prototypes_stop_the_run(textures: ImageSet, tmp_path: Path) -> None:
    """Without Sinkhorn nothing shares the images out, and all of them run to one prototype: the trivial solution."""
    config = replace(STUCK, optimizer=OptimizerConfig(lr=0.1), schedule=AT_ONCE, loss=LossConfig(sinkhorn_iterations=0))
    with pytest.raises(
        TrainingCollapsed, match=r"Dead prototypes: only [12] of 30 .*\nTry --loss.sinkhorn-iterations 3"
    ):
        run(config, tmp_path, textures, window=40).train()


def parts(swav: float, loss: float = 7.0, used: Tensor | None = None) -> dict[str, Tensor]:
    every = torch.arange(30) if used is None else used
    return {"loss": torch.tensor(loss), "swav": torch.tensor(swav), "used": every}


def watch(check: CollapseCheck, run: list[dict[str, Tensor]], warm: Iterable[bool] = repeat(True)) -> None:
    for step, (look, counts) in enumerate(zip(run, warm, strict=False)):
        check.update(step, look, counts)


def test_a_few_jumps_do_not_hide_a_collapse() -> None:
    with pytest.raises(TrainingCollapsed, match="Collapsed"):
        watch(CollapseCheck(30, 4, window=100), [parts(math.log(30) + 0.5 * (step % 20 == 0)) for step in range(100)])


def test_passing_by_ln_k_is_no_collapse() -> None:
    watch(CollapseCheck(30, 4), [parts(math.log(30) + 0.02 - 0.00002 * step) for step in range(2_000)])


def test_standing_still_before_it_counts_is_no_collapse() -> None:
    watch(CollapseCheck(30, 4), [parts(math.log(30), used=torch.zeros(16).long())] * 1_000, repeat(False))


def test_one_spike_is_no_explosion() -> None:
    watch(CollapseCheck(30, 4), [parts(3.0, loss=1e4 if step in (0, 50) else 7.0) for step in range(100)])


def test_a_tenth_of_the_prototypes_alive_is_enough() -> None:
    watch(CollapseCheck(30, 4, window=50), [parts(3.0, used=torch.tensor([step % 3])) for step in range(1_000)])
    with pytest.raises(TrainingCollapsed, match="only 2 of 30"):
        watch(CollapseCheck(30, 4, window=50), [parts(3.0, used=torch.tensor([step % 2])) for step in range(1_000)])
