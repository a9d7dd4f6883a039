"""One of several processes that work together, started by :func:`start` or by torchrun.

``python small_parallel.py train OPTIONS...`` is ``ttaps train OPTIONS...`` with a rest before every step, so that there is a moment to
kill it in; ``evaluate`` likewise. ``steps FOLDER IMAGES.npz`` writes what 20 steps of every case came to, and trains without being
disturbed.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args
from unittest.mock import patch

import torch
from safetensors.torch import save_file
from torch import Tensor

from helpers.small_training import STARTS, slow
from ttaps.cli import main
from ttaps.data.images import read_arrays
from ttaps.distributed import Ranks, init_distributed
from ttaps.evaluation.plan import Item
from ttaps.evaluation.run import ExperimentRun
from ttaps.evaluation.store import Row
from ttaps.losses import sinkhorn_codes
from ttaps.training.config import OptimizerConfig, ScheduleConfig, TrainConfig
from ttaps.training.data import Split
from ttaps.training.run import Run
from ttaps.training.trainer import Trainer

PATHS = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]))
"""Where the processes of a job find these helpers."""

STEPS = 20
Objective = Literal["baseline", "jt", "jt+ent", "ttt", "mt3"]
Case = Objective | Literal["muon"]
"""An objective, or JT+ENT with Muon for the convolutions."""
CASES: tuple[Case, ...] = (*get_args(Objective), "muon")
SHARED = TrainConfig(
    epochs=3,
    batch_size=15,  # not even: one process has seven rows, the other eight
    init_prototypes_from_data=True,
    ema_decay=0.9,
    checkpoint_minutes=0.002,
    validate_every=1,
    model=STARTS,
    optimizer=OptimizerConfig(lr=0.1),
    schedule=ScheduleConfig(warmup_epochs=0.5, lr_schedule="linear", joint_start_epoch=0.5, resolutions=(8,)),
)
"""24 steps: cross-entropy alone for four, then the objective's own loss."""


def shared_config(case: Case) -> TrainConfig:
    """Return the settings of a case; MT3 has three tasks of eight, which cannot be shared out evenly either."""
    config = replace(SHARED, model=replace(SHARED.model, heads=("rotation", "predictor")))
    if case == "muon":
        muon = replace(config.optimizer, name="muon", nesterov=True, clip_grad_per_param=1.0)
        return replace(config, objective="jt+ent", optimizer=muon)
    tasks = replace(config, batch_size=24) if case == "mt3" else config
    return replace(tasks, objective=case)


def twenty_steps(case: Case, image_file: Path, ranks: Ranks) -> dict[str, Tensor]:
    """Return codes, parts of the loss, gradients and weights of a run's first 20 steps (MT3: 4), in double precision."""
    torch.set_default_dtype(torch.float64)
    run = Trainer(shared_config(case), Split.of(read_arrays(image_file)), ranks=ranks)
    found: dict[str, Tensor] = {}
    steps = 4 if case == "mt3" else STEPS  # a step through a step takes its time
    for step in range(steps):
        parts = run.step(step)
        found |= {f"{name} {step}": part.detach() for name, part in parts.items()}
    found |= {f"gradient {name}": w.grad for name, w in run.network.named_parameters() if w.grad is not None}
    found |= {f"weight {name}": w.detach() for name, w in run.network.named_parameters()}
    batch = run.batch(steps)
    with torch.no_grad():
        codes = sinkhorn_codes(run.network.scores(run.network.project(batch.images)), logsumexp=batch.logsumexp)
    torch.set_default_dtype(torch.float32)
    return {**found, "codes": codes}


def start(arguments: Sequence[str | Path], count: int = 2) -> list[subprocess.Popen[str]]:
    """Start processes that know of each other as those of ``torchrun`` do; so each can be killed by itself."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": str(count)}
    return [
        subprocess.Popen(
            [sys.executable, __file__, *arguments],
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ
            | meeting
            | {"PYTHONPATH": PATHS, "RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"},
        )
        for rank in range(count)
    ]


def write_steps(folder: Path, image_file: Path) -> None:
    """Write this process's results of all cases, then train in FOLDER/run."""
    torch.set_num_threads(1)
    with init_distributed() as ranks:
        for case in CASES:
            found = twenty_steps(case, image_file, ranks)
            save_file({name: t.contiguous() for name, t in found.items()}, folder / f"{case}-{ranks.rank}")
        config = replace(SHARED, data=str(image_file))
        Run(config, folder / "run", Split.of(read_arrays(image_file)), ranks=ranks).train()


def train_slowly(options: list[str]) -> int:
    """Train with time to be killed in."""
    with patch.object(Trainer, "step", slow(0.1)):
        return main(["train", *options])


def evaluate_slowly(options: list[str]) -> int:
    """Evaluate with time to be killed in, and leave a note in the folder above the results (the last option) of whom to kill."""
    Path(options[-1]).with_name(f"process-{os.environ['RANK']}").write_text(str(os.getpid()))
    adapt = ExperimentRun.adapt

    def slowly(track: ExperimentRun, items: Sequence[Item], images: Tensor) -> list[Row]:
        time.sleep(1)  # torchrun needs a moment to notice: the other one must not be done by then
        return adapt(track, items, images)

    with patch.object(ExperimentRun, "adapt", slowly):
        return main(["evaluate", *options])


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "steps":
        write_steps(Path(rest[0]), Path(rest[1]))
    else:
        sys.exit(train_slowly(rest) if what == "train" else evaluate_slowly(rest))
