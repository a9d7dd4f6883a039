"""The pictures of a grid, opened before any work: what is missing or does not fit should be told before hours of training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from ttaps.data import data_root
from ttaps.evaluate import Benchmark
from ttaps.model import ModelConfig
from ttaps.model.checkpoint import Model
from ttaps.reproduce.grid import Grid, Job
from ttaps.training.data import Split, training_images
from ttaps.training.trainer import initial_network


@dataclass(frozen=True, eq=False)
class Sets:
    """What a job learns from, and what it is evaluated on."""

    learnt: Split
    evaluated: Benchmark


def open_sets(grid: Grid, jobs: Sequence[Job], root: Path | None) -> list[Sets]:
    """Open the sets of every job, each set once; refuse a job that could be trained but not evaluated."""
    learnt, evaluated = cache(training_images), cache(partial(grid.benchmark, root))
    found = []
    for job in jobs:
        model = job.train.model
        pictures = ModelConfig(
            num_classes=model.num_classes, image_size=model.image_size
        )  # jobs that differ in K share them
        sets = Sets(learnt(job.train.data, data_root(root), pictures), evaluated(model.image_size))
        sets.evaluated.fitted(Model(initial_network(job.train), sets.learnt.train.classes, job.name))
        found.append(sets)
    return found
