"""What a training step of each objective costs per image, measured in turns: ``python tools/objective_costs.py [FILTERS] [ROUNDS]``."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import get_args, get_type_hints

import numpy as np
import torch

from ttaps.bench import interleaved
from ttaps.data.sample import read_sample_train
from ttaps.model import ModelConfig
from ttaps.training.config import TrainConfig
from ttaps.training.data import Split
from ttaps.training.trainer import Trainer

BATCH = 32


def measure(filters: int, rounds: int, depth: int = 26) -> dict[str, tuple[float, float]]:
    """Return for each objective the milliseconds per image and the ratio to JT+ENT; nothing is written."""
    model = ModelConfig(width=filters, depth=depth, heads=("rotation", "predictor"))
    split = Split.of(read_sample_train())
    trainers = {
        objective: Trainer(TrainConfig(objective=objective, batch_size=BATCH, model=model), split)
        for objective in get_args(get_type_hints(TrainConfig)["objective"])
    }
    steps = {name: partial(trainer.step, 0) for name, trainer in trainers.items()}
    times = interleaved(steps, rounds, clock=time.process_time)  # CPU time: what else the machine does is not counted
    return {name: (1000 * np.median(t) / BATCH, np.median(t / times["jt+ent"])) for name, t in times.items()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    given = [int(number) for number in sys.argv[1:]]
    filters, rounds = (given + [32, 5][len(given) :])[:2]
    for name, (milliseconds, times) in measure(filters, rounds).items():
        print(f"{name:<10} {milliseconds:7.1f} ms per image {times:6.2f} x jt+ent")
