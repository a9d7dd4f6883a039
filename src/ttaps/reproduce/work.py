"""Do a grid's jobs, one after the other, or estimate how long they take; what is done already, in part or whole, is not done again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from time import perf_counter

from torch import Tensor

from ttaps.adaptation import Method
from ttaps.distributed import Ranks
from ttaps.evaluate.benchmark import CORRUPTED, VALIDATION, Benchmark, open_benchmark
from ttaps.evaluate.experiments import describe, find_experiment
from ttaps.evaluate.frame import read_rows
from ttaps.evaluate.plan import Plan, Shard
from ttaps.evaluate.projections import projections_file, write_projections
from ttaps.evaluate.run import evaluate
from ttaps.evaluate.store import FILE, Store
from ttaps.model import ModelConfig
from ttaps.model.checkpoint import load_model
from ttaps.progress import log_info
from ttaps.reproduce.grid import Grid, Job, JobData, open_data
from ttaps.training.config import TrainConfig
from ttaps.training.data import Split
from ttaps.training.run import Run
from ttaps.training.run_dir import check_settings, load_state
from ttaps.training.schedule import Schedule
from ttaps.training.trainer import ALONE, Trainer, initial_network

MODELS, RESULTS = "models", "results"
PROJECTED = 2000  # images on a map of projections
CLEAN = VALIDATION | {name: name.removesuffix("-c") for name in CORRUPTED}
"""Which images as they are belong to a corrupted set; others are their own."""
CPU_BATCH = 32  # images of a timed step on a CPU: the time grows with them, so there is no need to wait for 256
TIMED_IMAGES = 2  # adapted to by every method, after one that is not timed


@dataclass(frozen=True)
class Estimate:
    """What is left of a job, and how long that takes."""

    job: Job
    steps: int
    """Training steps left."""
    training: float
    """Seconds for them, without validation and checkpoints."""
    rows: int
    """Results left to make: images times methods."""
    evaluation: float
    """Seconds for them."""


def reproduce(
    grid: Grid, jobs: Sequence[Job], out: Path, root: Path | None, device: str = "cpu", ranks: Ranks = ALONE
) -> None:
    """Train and evaluate all models: those go to ``out/models``, the rows of all to ``out/results``."""
    opened = open_data(grid, jobs, root)
    for job, data in zip(jobs, opened, strict=True):  # before any training
        check_settings(out / MODELS / job.name, job.train)
        grid.plan(data.test, Shard(ranks.rank, ranks.size)).check(job.methods)
    for number, (job, data) in enumerate(zip(jobs, opened, strict=True), 1):
        log_info(f"{number} of {len(jobs)}: {job.name}")
        Run(job.train, out / MODELS / job.name, data.train, device, ranks).train()
        ranks.wait()  # until the first has written the model
        evaluate_job(grid, job, data.test, out, device, ranks)
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
        job.methods,
        (job.train.seed,),
        folder=out / RESULTS,
        images_per_corruption=grid.images_per_corruption,
        shard=Shard(ranks.rank, ranks.size),
        distributed=ranks.size > 1,
    )


def store_projections(grid: Grid, job: Job, out: Path, root: Path | None, device: str) -> None:
    """Store a model's projections of the clean images, as in the paper's figure, unless they are there."""
    model = load_model(out / MODELS / job.name)
    clean = open_benchmark(CLEAN.get(grid.data, grid.data), root, size=job.train.model.image_size)
    if not projections_file(out / RESULTS, model, clean).exists():
        model.network.to(device)
        write_projections(model, clean, out / RESULTS, PROJECTED)


def estimate(grid: Grid, jobs: Sequence[Job], opened: Sequence[JobData], out: Path, device: str) -> Iterator[Estimate]:
    """Yield what is left of each job. Jobs that differ in seed or K only are timed once: these hardly change the time."""
    training: dict[TrainConfig, float] = {}
    adapting: dict[tuple[ModelConfig, Method], float] = {}
    for job, data in zip(jobs, opened, strict=True):
        plan = grid.plan(data.test)
        images = data.test.read(list(islice(plan, TIMED_IMAGES))).to(device)
        kind = replace(job.train, seed=0, model=replace(job.train.model, num_prototypes=300))
        if kind not in training:
            training[kind] = training_seconds(kind, data.train, device)
        for method in job.methods:
            if (kind.model, method) not in adapting:
                adapting[kind.model, method] = seconds_per_image(kind, method, images)
        steps, state = Schedule.of(kind, len(data.train.train)).steps, load_state(out / MODELS / job.name)
        left = steps - (state.step if state else 0)
        rows = len(plan) * len(job.methods) - (0 if left else count_rows(out, job, data.test, plan))
        per_row = sum(adapting[kind.model, method] for method in job.methods) / len(job.methods)
        yield Estimate(job, left, training[kind] * left / steps, rows, per_row * rows)


def training_seconds(config: TrainConfig, split: Split, device: str) -> float:
    """Time one step of each kind (resolution; with the joint loss or before it) and multiply by how many there are."""
    whole = config.batch_size % CPU_BATCH == 0 and (
        config.objective != "mt3" or CPU_BATCH % config.mt3.task_images == 0
    )
    shortened = device == "cpu" and whole and len(split.train) >= CPU_BATCH
    trainer = Trainer(replace(config, batch_size=CPU_BATCH) if shortened else config, split, device)
    kinds: dict[tuple[int, bool], list[int]] = {}
    for step in range(trainer.schedule.steps):
        kinds.setdefault((trainer.schedule.size(step), trainer.schedule.joint_weight(step) > 0), []).append(step)
    return sum(len(steps) * _fastest(trainer, steps[-1]) for steps in kinds.values())


def seconds_per_image(config: TrainConfig, method: Method, images: Tensor) -> float:
    """Time a method with a network that is not trained yet."""
    network = initial_network(config).to(images.device).eval()
    method.adapt(network, images[:1], [0])
    began = perf_counter()
    method.adapt(network, images, range(len(images))).cpu()
    return (perf_counter() - began) / len(images)


def count_rows(out: Path, job: Job, data: Benchmark, plan: Plan) -> int:
    """Return how many results of a plan a trained model has already."""
    if not (out / RESULTS / FILE).exists():
        return 0
    model = load_model(out / MODELS / job.name)
    with Store(out / RESULTS, write=False) as store:
        found = [find_experiment(store, describe(model, data, method, job.train.seed)) for method in job.methods]
        rows = read_rows(store, [number for number in found if number is not None])
    return int(plan.covers(rows).sum())


def _fastest(trainer: Trainer, step: int) -> float:
    """Do a step three times and return the seconds of the faster of the last two; ``item`` waits for a GPU."""
    times = []
    for _ in range(3):
        began = perf_counter()
        trainer.step(step)["loss"].item()
        times.append(perf_counter() - began)
    return min(times[1:])
