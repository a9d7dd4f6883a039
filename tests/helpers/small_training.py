"""A run to be killed: ``python small_training.py FOLDER PICTURES.npz`` trains the tiny network, slowly, and waits before it is done."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import torch

from ttaps.data import read_npz
from ttaps.model import ModelConfig
from ttaps.training.config import LossConfig, OptimizerConfig, TrainConfig
from ttaps.training.loop import Run
from ttaps.training.split import Split

TINY = ModelConfig(
    num_classes=4, num_prototypes=30, projection_dim=16, hidden_dim=32, depth=8, width=4, num_groups=4, image_size=8
)

STARTS = replace(TINY, zero_init_residual=True, classifier_scale=10.0)
"""The tiny network with the start that gets away from ln K."""

SHORT = TrainConfig(
    objective="jt+ent",
    epochs=5,
    batch_size=16,
    resolutions=(6, 8),
    resolution_milestones=(0.4, 1.0),
    ema_decay=0.9,
    checkpoint_minutes=0.002,
    model=replace(STARTS, norm="batch"),
    optimizer=OptimizerConfig(name="muon", lr=0.1, nesterov=True, warmup_epochs=0.5, lr_schedule="linear"),
    loss=LossConfig(
        joint_start_epoch=1, joint_ramp_epochs=1, freeze_prototypes_epochs=0.5, init_prototypes_from_data=True
    ),
)
"""Forty steps that use everything a resumed run must take up: momentum, average, statistics, sizes, ramps."""


class Slow(Run):
    """A run that takes its time, so that there is a moment to kill it in."""

    pause = 0.0
    waits_at = 10**9

    def step(self, step: int) -> dict[str, torch.Tensor]:
        time.sleep(self.pause if step < self.waits_at else 300)
        return super().step(step)


if __name__ == "__main__":
    torch.set_num_threads(1)
    run = Slow(SHORT, Path(sys.argv[1]), Split.of(read_npz(Path(sys.argv[2]))))
    run.pause, run.waits_at = 0.05, 30
    run.train()
