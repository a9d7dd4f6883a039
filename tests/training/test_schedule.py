"""Learning rate, resolutions and joint loss over a run."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from ttaps.errors import UsageError
from ttaps.training.config import ScheduleConfig, TrainConfig
from ttaps.training.schedule import Schedule


def test_the_papers_learning_rate() -> None:
    schedule = Schedule(TrainConfig(), epoch_steps=156)
    assert schedule.steps == 46_800
    assert schedule.lr_factor(0) == 1 / 1560
    assert schedule.lr_factor(779) == 0.5
    assert schedule.lr_factor(1559) == schedule.lr_factor(1560) == 1
    assert schedule.lr_factor((1560 + 46_800) // 2) == pytest.approx(0.5)
    assert schedule.lr_factor(1560 + 45_240 // 4) == pytest.approx((1 + math.cos(math.pi / 4)) / 2)
    assert 0 < schedule.lr_factor(46_799) < 1e-8
    rates = [schedule.lr_factor(step) for step in range(0, 46_800, 10)]
    assert rates == sorted(rates[:157]) + sorted(rates[157:], reverse=True)


def test_linear_decay_and_short_warm_ups() -> None:
    settings = ScheduleConfig(warmup_epochs=0.25, lr_schedule="linear")  # the warm-up ends between two steps
    schedule = Schedule(TrainConfig(epochs=2, schedule=settings), epoch_steps=10)
    assert [schedule.lr_factor(step) for step in range(3)] == [0.4, 0.8, 1.0]
    assert max(schedule.lr_factor(step) for step in range(20)) == 1
    assert schedule.lr_factor(15) == pytest.approx(1 - 12.5 / 17.5)
    at_once = Schedule(TrainConfig(epochs=2, schedule=replace(settings, warmup_epochs=0)), epoch_steps=10)
    assert [at_once.lr_factor(0), at_once.lr_factor(10), at_once.lr_factor(19)] == pytest.approx([1, 0.5, 0.05])


def test_a_level_stretch_before_the_decay() -> None:
    settings = ScheduleConfig(warmup_epochs=0.2, lr_hold_epochs=1.0, lr_schedule="linear")
    schedule = Schedule(TrainConfig(epochs=2, schedule=settings), epoch_steps=10)
    assert [schedule.lr_factor(step) for step in (0, 1, 2, 9, 10)] == [0.5, 1, 1, 1, 1]
    assert [schedule.lr_factor(step) for step in (11, 15, 19)] == pytest.approx([0.9, 0.5, 0.1])
    longer = Schedule(TrainConfig(epochs=4, schedule=settings), epoch_steps=10)
    assert [longer.lr_factor(step) for step in range(11)] == [schedule.lr_factor(step) for step in range(11)]


def test_warmup_stable_decay_counts_from_the_end() -> None:
    """Warm up, hold, and decay over the last epochs: the same as a hold until there."""
    for kind in ("linear", "cosine", "step"):
        wsd = TrainConfig(epochs=5, schedule=ScheduleConfig(warmup_epochs=0.5, lr_decay_epochs=2, lr_schedule=kind))
        held = replace(wsd, schedule=replace(wsd.schedule, lr_decay_epochs=0, lr_hold_epochs=3))
        rates = [[Schedule(config, epoch_steps=10).lr_factor(step) for step in range(50)] for config in (wsd, held)]
        assert rates[0] == rates[1]
        assert rates[0][4:31] == [1.0] * 27
        assert rates[0][31] < 1 or kind == "step"
    with pytest.raises(UsageError, match=r"leave out schedule.lr_hold_epochs"):
        replace(held.schedule, lr_decay_epochs=2)
    with pytest.raises(UsageError, match=r"choose schedule.lr_schedule cosine, linear or step"):
        ScheduleConfig(lr_schedule="constant", lr_decay_epochs=2)


def test_a_decay_longer_than_the_run_begins_after_the_warm_up() -> None:
    settings = ScheduleConfig(warmup_epochs=1, lr_decay_epochs=9, lr_schedule="linear")
    schedule = Schedule(TrainConfig(epochs=2, schedule=settings), epoch_steps=10)
    assert [schedule.lr_factor(step) for step in (9, 10, 15)] == [1, 1, 0.5]


def test_resolutions_follow_one_another() -> None:
    settings = ScheduleConfig(resolutions=(16, 24, 32), resolution_milestones=(0.5, 0.8, 1.0))
    schedule = Schedule(TrainConfig(epochs=10, schedule=settings), epoch_steps=10)
    assert [schedule.size(step) for step in (0, 49, 50, 79, 80, 99)] == [16, 16, 24, 24, 32, 32]


def test_the_joint_loss_comes_in() -> None:
    config = TrainConfig(
        epochs=10, schedule=ScheduleConfig(joint_start_epoch=2, joint_ramp_epochs=1, freeze_prototypes_epochs=3)
    )
    schedule = Schedule(config, epoch_steps=10)
    assert [schedule.joint_weight(step) for step in (0, 19, 20, 24, 29, 30, 99)] == pytest.approx(
        [0, 0, 0.1, 0.5, 1, 1, 1]
    )
    assert [schedule.prototypes_frozen(step) for step in (0, 49, 50)] == [True, True, False]
    at_once = Schedule(replace(config, schedule=ScheduleConfig(joint_start_epoch=2)), epoch_steps=10)
    assert [at_once.joint_weight(step) for step in (19, 20)] == [0, 1]
    assert Schedule(replace(config, objective="baseline"), epoch_steps=10).joint_weight(99) == 0
