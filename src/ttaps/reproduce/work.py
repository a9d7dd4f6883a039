"""Do a grid's jobs, one after the other; whatever is done already, in part or whole, is not done again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ttaps.adaptation import Method
from ttaps.adaptation.spec import parse_method
from ttaps.distributed import Ranks
from ttaps.evaluate import Benchmark, Shard, evaluate, open_benchmark
from ttaps.evaluate.benchmark import CORRUPTED, VALIDATION
from ttaps.evaluate.order import check_order
from ttaps.evaluate.projections import projections_file, write_projections
from ttaps.model.checkpoint import load_model
from ttaps.progress import log_info
from ttaps.reproduce.grid import Grid, Job
from ttaps.reproduce.sets import open_sets
from ttaps.training.run import Run
from ttaps.training.run_dir import check_settings
from ttaps.training.trainer import ALONE

MODELS, RESULTS = "models", "results"
PROJECTED = 2000  # images on a map of projections
CLEAN = VALIDATION | {name: name.removesuffix("-c") for name in CORRUPTED}
"""Which images as they are belong to a corrupted set; others are their own."""


def reproduce(
    grid: Grid, jobs: Sequence[Job], out: Path, root: Path | None, device: str = "cpu", ranks: Ranks = ALONE
) -> None:
    """Train and evaluate all models: those go to ``out/models``, the rows of all to ``out/results``."""
    pictures, shard = open_sets(grid, jobs, root), Shard(ranks.rank, ranks.size)
    for job, sets in zip(jobs, pictures, strict=True):  # before any training
        check_settings(out / MODELS / job.name, job.train)
        check_order(methods_of(job), replace(grid.plan(sets.evaluated), shard=shard))
    for number, (job, sets) in enumerate(zip(jobs, pictures, strict=True), 1):
        log_info(f"{number} of {len(jobs)}: {job.name}")
        Run(job.train, out / MODELS / job.name, sets.learnt, device, ranks).train()
        ranks.wait()  # until the first has written the model
        evaluate_job(grid, job, sets.evaluated, out, device, ranks)
        if ranks.first and job.train.seed == grid.seeds[0]:  # a map of each kind of model, not of each seed
            store_projections(grid, job, out, root, device)
        ranks.wait()


def evaluate_job(grid: Grid, job: Job, data: Benchmark, out: Path, device: str, ranks: Ranks) -> None:
    """Evaluate a trained model with all its methods."""
    model = load_model(out / MODELS / job.name)
    model.network.to(device)
    evaluate(
        model,
        data,
        methods_of(job),
        (job.train.seed,),
        folder=out / RESULTS,
        limit=grid.limit,
        shard=Shard(ranks.rank, ranks.size),
        together=ranks.size > 1,
    )


def methods_of(job: Job) -> list[Method]:
    """Return what a job's model is evaluated with."""
    return [parse_method(name) for name in job.methods]


def store_projections(grid: Grid, job: Job, out: Path, root: Path | None, device: str) -> None:
    """Store a model's projections of the images as they are, not corrupted, as in the paper's figure, unless they are there."""
    model = load_model(out / MODELS / job.name)
    clean = open_benchmark(CLEAN.get(grid.data, grid.data), root, size=job.train.model.image_size)
    if not projections_file(out / RESULTS, model, clean).exists():
        model.network.to(device)
        write_projections(model, clean, out / RESULTS, PROJECTED)
