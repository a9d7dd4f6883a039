"""A run to be killed: ``python small_training.py FOLDER IMAGES.npz`` trains the tiny network, slowly, and waits before it is done."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import torch

from ttaps.data.images import read_arrays
from ttaps.model import ModelConfig
from ttaps.training.config import OptimizerConfig, ScheduleConfig, TrainConfig
from ttaps.training.data import Split
from ttaps.training.run import Run
from ttaps.training.trainer import Trainer

TINY = ModelConfig(
    num_classes=4, num_prototypes=30, projection_dim=16, hidden_dim=32, depth=8, width=4, num_groups=4, image_size=8
)

STARTS = replace(TINY, zero_init_residual=True, classifier_scale=10.0)
"""The tiny network with the start that gets away from ln K."""

SHORT = TrainConfig(
    objective="jt+ent",
    epochs=5,
    batch_size=16,
    init_prototypes_from_data=True,
    ema_decay=0.9,
    checkpoint_minutes=0.002,
    model=replace(STARTS, norm="batch"),
    optimizer=OptimizerConfig(name="muon", lr=0.1, nesterov=True),
    schedule=ScheduleConfig(
        warmup_epochs=0.5,
        lr_schedule="linear",
        joint_start_epoch=1,
        joint_ramp_epochs=1,
        freeze_prototypes_epochs=0.5,
        resolutions=(6, 8),
        resolution_milestones=(0.4, 1.0),
    ),
)
"""Forty steps that use everything a resumed run must take up: momentum, average, statistics, sizes, ramps."""


Step = Callable[[Trainer, int], dict[str, torch.Tensor]]


def dying_at(death: int) -> Step:
    """Return a ``Trainer.step`` that never takes step number ``death``."""
    original = Trainer.step

    def step(trainer: Trainer, step: int) -> dict[str, torch.Tensor]:
        if step == death:
            raise KeyboardInterrupt
        return original(trainer, step)

    return step


def slow(pause: float, waits_at: int = 10**9) -> Step:
    """Return a ``Trainer.step`` that takes its time, so that there is a moment to kill the run in."""
    original = Trainer.step

    def step(trainer: Trainer, step: int) -> dict[str, torch.Tensor]:
        time.sleep(pause if step < waits_at else 300)
        return original(trainer, step)

    return step


if __name__ == "__main__":
    torch.set_num_threads(1)
    with patch.object(Trainer, "step", slow(0.05, waits_at=30)):
        Run(SHORT, Path(sys.argv[1]), Split.of(read_arrays(Path(sys.argv[2])))).train()
