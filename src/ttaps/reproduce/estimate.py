"""How long a grid will take here: a few training steps and a few images are timed, and multiplied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from time import perf_counter

from torch import Tensor

from ttaps.adaptation.spec import parse_method
from ttaps.evaluate import Benchmark, Plan, Store
from ttaps.evaluate.coverage import stored
from ttaps.evaluate.run import describe
from ttaps.evaluate.settings import as_stored
from ttaps.evaluate.store import FILE
from ttaps.model import ModelConfig
from ttaps.model.checkpoint import load_model
from ttaps.reproduce.grid import Grid, Job
from ttaps.reproduce.sets import Sets
from ttaps.reproduce.work import MODELS, RESULTS, methods_of
from ttaps.training.config import TrainConfig
from ttaps.training.data import Split
from ttaps.training.run_dir import load_state
from ttaps.training.schedule import Schedule
from ttaps.training.trainer import Trainer, initial_network

CPU_BATCH = 32  # images of a timed step on a CPU: the time grows with them, so there is no need to wait for 256
IMAGES = 2  # adapted to by every method, after one that is not timed


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


def estimate(grid: Grid, jobs: Sequence[Job], pictures: Sequence[Sets], out: Path, device: str) -> Iterator[Estimate]:
    """Yield what is left of each job. Jobs that differ in seed or K only are timed once: these hardly change the time."""
    training: dict[TrainConfig, tuple[int, float]] = {}
    adapting: dict[tuple[ModelConfig, str], float] = {}
    for job, sets in zip(jobs, pictures, strict=True):
        plan = grid.plan(sets.evaluated)
        few = sets.evaluated.read(list(islice(plan, IMAGES))).to(device)
        kind = replace(job.train, seed=0, model=replace(job.train.model, num_prototypes=300))
        if kind not in training:
            steps = Schedule.of(kind, len(sets.learnt.train)).steps
            training[kind] = steps, training_seconds(kind, sets.learnt, device)
        for method in job.methods:
            if (kind.model, method) not in adapting:
                adapting[kind.model, method] = seconds_per_image(kind, method, few)
        steps, seconds = training[kind]
        todo = steps_left(out, job, steps)
        rows = len(plan) * len(job.methods) - (0 if todo else rows_made(out, job, sets.evaluated, plan))
        per_row = sum(adapting[kind.model, method] for method in job.methods) / len(job.methods)
        yield Estimate(job, todo, seconds * todo / steps, rows, per_row * rows)


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


def seconds_per_image(config: TrainConfig, method: str, pictures: Tensor) -> float:
    """Time a method on pictures with a network that is not trained yet."""
    network, chosen = initial_network(config).to(pictures.device).eval(), parse_method(method)
    chosen.adapt(network, pictures[:1], [0])
    began = perf_counter()
    chosen.adapt(network, pictures, range(len(pictures))).cpu()
    return (perf_counter() - began) / len(pictures)


def steps_left(out: Path, job: Job, steps: int) -> int:
    """Return how many steps of a job's training are still to do."""
    state = load_state(out / MODELS / job.name)
    return steps - (state.step if state else 0)


def rows_made(out: Path, job: Job, data: Benchmark, plan: Plan) -> int:
    """Return how many results of a plan a trained model has already."""
    if not (out / RESULTS / FILE).exists():
        return 0
    model = load_model(out / MODELS / job.name)
    asked = [describe(model, data, method, job.train.seed) for method in methods_of(job)]
    with Store(out / RESULTS, write=False) as store:
        found = store.experiments()
        done = [as_stored(experiment, found.values()) for experiment in asked]
        return stored(store, [number for number, experiment in found.items() if experiment in done], plan)


def _fastest(trainer: Trainer, step: int) -> float:
    """Do a step three times and return the seconds of the faster of the last two; ``item`` waits for a GPU."""
    times = []
    for _ in range(3):
        began = perf_counter()
        trainer.step(step)["loss"].item()
        times.append(perf_counter() - began)
    return min(times[1:])
