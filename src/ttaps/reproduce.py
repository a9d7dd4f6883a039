"""A whole table from scratch: train and evaluate what is missing, and estimate beforehand how long that takes.

A grid is a table's models (objective, number of prototypes, seed) with their methods; a job is one of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import combinations, islice
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ttaps.adaptation import Method, ensure_supported
from ttaps.adaptation.spec import parse_method
from ttaps.config import from_dict, read_toml
from ttaps.data import data_root
from ttaps.data.cifar import FOLDERS
from ttaps.distributed import Ranks
from ttaps.errors import Locked, UsageError
from ttaps.evaluation import run
from ttaps.evaluation.benchmark import VALIDATION, Benchmark, open_benchmark
from ttaps.evaluation.frame import read_rows
from ttaps.evaluation.plan import Plan
from ttaps.evaluation.store import FILE, Store
from ttaps.files import file_lock
from ttaps.model import ModelConfig
from ttaps.model.checkpoint import Model, load_model
from ttaps.model.config import CONFIG
from ttaps.model.folder import read_config
from ttaps.progress import bar, log_info
from ttaps.training.config import TrainConfig, find_preset, merge, read_preset, train_config
from ttaps.training.data import Split, training_images
from ttaps.training.run import Run
from ttaps.training.run_dir import check_settings, load_state
from ttaps.training.schedule import Schedule
from ttaps.training.trainer import Trainer, fastest, initial_network

MODELS, RESULTS = "models", "results"
PROJECTED = 10_000  # images on a map of projections: the whole test set
CLEAN = VALIDATION | {name: name.removesuffix("-c") for name in FOLDERS}  # the clean images of corrupted sets
CPU_BATCH = 32  # images of a timed step on a CPU: the time grows with them, so there is no need to wait for 256
TIMED_IMAGES = 2  # adapted to by every method, after one that is not timed


@dataclass(frozen=True)
class GridColumn:
    """One kind of model, and the methods to evaluate it with."""

    config: str  # the preset it is trained with
    methods: tuple[str, ...] = ("source",)  # methods, as ``ttaps evaluate`` takes them
    prototypes: tuple[int, ...] = ()  # values of K; the preset's unless given
    seeds: tuple[int, ...] = ()  # seeds of training; the grid's unless given
    # For methods too slow for as many as the grid has; another column has the others.
    images_per_corruption: int | None = None


@dataclass(frozen=True)
class Grid:
    """A grid of ``ttaps reproduce``; training settings come from each column's own preset and from the tables ``train``."""

    data: str  # what is evaluated on
    columns: tuple[GridColumn, ...]  # kinds of models
    about: str = ""  # what it is, in a line
    seeds: tuple[int, ...] = (0,)  # seeds of training, each also that of its evaluation
    severities: tuple[int, ...] = ()  # severities; 5 unless given
    corruptions: tuple[str, ...] = ()  # corruptions; the paper's unless given
    images_per_corruption: int | None = None  # images under each corruption; all unless given
    gpu: bool = False  # whether it is too much for a CPU


@dataclass(frozen=True)
class GridJob:
    """One model to train, and the methods to evaluate it with."""

    train: TrainConfig
    methods: tuple[Method, ...]
    images_per_corruption: int | None = None

    @property
    def name(self) -> str:
        """Name of the model's folder."""
        return f"{self.train.objective}-K{self.train.model.num_prototypes}-seed{self.train.seed}"

    def plan(self, data: Benchmark) -> Plan:
        """Return the images for each method."""
        return data.plan(self.images_per_corruption)


JobData = tuple[Split, Benchmark]
"""What a job is trained on, and what it is evaluated on."""


class Estimate(NamedTuple):
    """What is left of a job, and how long it takes."""

    job: GridJob
    steps: int  # of training
    training: float  # seconds for them, without validation and checkpoints
    rows: int  # results to make: images times methods
    evaluation: float  # seconds for them


def read_grid(path: Path) -> tuple[Grid, list[GridJob]]:
    """Read a grid and return its jobs, those of the first seed first: a table of one seed is useful before the others are done.
    The ``train`` table of the grid, then that of a column, override the training preset."""
    values = read_toml(path)
    columns = values.get("columns")
    if "data" not in values or not columns or not _are_tables(columns, "config"):
        needed = "data = ... and [[columns]], each with config = ...; see presets/reproduce in the package"
        raise UsageError(f"{path} needs {needed}.")
    changes = [values.pop("train", {}), *(column.pop("train", {}) for column in columns)]
    if not _are_tables(changes):
        raise UsageError(f"{path}: train must be a table of settings, such as [train] or [columns.train].")
    grid = from_dict(Grid, values, where=str(path))
    if not grid.seeds or not all(column.methods for column in grid.columns):
        raise UsageError(f"{path} needs at least one seed, and at least one method in every column.")
    kinds = []
    for column, own in zip(grid.columns, changes[1:], strict=True):
        preset = find_preset(column.config)
        config = train_config(merge(merge(read_preset(preset), changes[0]), own), where=str(preset))
        methods, network = tuple(map(parse_method, column.methods)), initial_network(config)
        for method in methods:  # refused before any training
            ensure_supported(method, network, config.objective)
        seeds, sizes = column.seeds or grid.seeds, column.prototypes or (config.model.num_prototypes,)
        models = [replace(config.model, num_prototypes=size) for size in sizes]
        images = column.images_per_corruption
        images = grid.images_per_corruption if images is None else images
        kinds += [(GridJob(replace(config, model=model), methods, images), seeds) for model in models]
    every = dict.fromkeys(seed for _, seeds in [((), grid.seeds), *kinds] for seed in seeds)
    jobs = [replace(job, train=replace(job.train, seed=seed)) for seed in every for job, own in kinds if seed in own]
    for one, other in combinations(jobs, 2):  # a second column may evaluate the same model on another number of images
        same = one.train == other.train and one.images_per_corruption != other.images_per_corruption
        if one.name == other.name and not same:
            raise UsageError(f"{path}: two columns train a model called {one.name}.")
    return grid, jobs


def _are_tables(values: Any, *keys: str) -> bool:
    return isinstance(values, list) and all(isinstance(one, Mapping) and one.keys() >= set(keys) for one in values)


def open_job_data(grid: Grid, jobs: Sequence[GridJob], root: Path | None) -> list[JobData]:
    """Open each data set once, before any work; refuse a job that could be trained but not evaluated."""
    test = cache(partial(open_benchmark, grid.data, root, corruptions=grid.corruptions, severities=grid.severities))
    train, found = cache(training_images), []
    for job in jobs:
        model = job.train.model
        shape = ModelConfig(num_classes=model.num_classes, image_size=model.image_size)  # the same for every K
        split, data = train(job.train.data, data_root(root), shape), test(size=model.image_size)
        data.aligned_to(Model(initial_network(job.train), split.train.classes, job.name))
        found.append((split, data))
    return found


def reproduce(grid: Grid, jobs: Sequence[GridJob], out: Path, root: Path | None, device: str = "cpu") -> None:
    """Train and evaluate all models: they go to ``out/models``, their rows to ``out/results``.
    Any number of processes may do so at once, under torchrun or started one by one: each takes models that no other is working on."""
    opened = list(zip(jobs, open_job_data(grid, jobs, root), strict=True))
    for job, (_, data) in opened:  # before any training
        check_settings(out / MODELS / job.name, job.train)
        job.plan(data).check(job.methods)
    clean = cache(partial(open_benchmark, CLEAN.get(grid.data, grid.data), root))
    for wait in (False, True):  # in the end for models that others have begun, and may leave unfinished
        left = []
        for job, (split, data) in opened:
            try:
                with file_lock(out / f".{job.name}.lock", "working on this model", wait):
                    log_info(f"{jobs.index(job) + 1} of {len(jobs)}: {job.name}")
                    model = _complete(job, split, data, out, device)
                    if (
                        job.train.seed == grid.seeds[0]
                    ):  # a map of each kind of model, not of each seed, as in the paper
                        _map(model, clean(size=job.train.model.image_size), out)
            except Locked:
                if wait:
                    raise
                left.append((job, (split, data)))
        opened = left


def _complete(job: GridJob, split: Split, data: Benchmark, out: Path, device: str) -> Model:
    """Train a model and evaluate its methods, as far as that has not been done."""
    folder = out / MODELS / job.name
    if steps_done(folder) < Schedule.of(job.train, len(split.train)).steps:
        Run(job.train, folder, split, Ranks(device=device)).train()
    model = load_model(folder)
    model.to(device)
    run.evaluate(model, data, job.methods, (job.train.seed,), folder=out / RESULTS, plan=job.plan(data))
    return model


def _map(model: Model, clean: Benchmark, out: Path) -> None:
    """Store the projections of clean images for the figure."""
    if not run.projections_file(out / RESULTS, model, clean).exists():
        run.write_projections(model, clean, out / RESULTS, PROJECTED)


def steps_done(folder: Path) -> int:
    """Return the steps that a run has saved. A finished model, with its card, which is written last, needs no state: it may be a copy."""
    if state := load_state(folder):
        return state.step
    noted = read_config(folder / CONFIG) if (folder / "README.md").exists() else {}
    return int(noted["step"]) if noted.get("step") == noted.get("steps", 0) else 0


def estimate(grid: Grid, jobs: Sequence[GridJob], opened: Sequence[JobData], out: Path, device: str) -> list[Estimate]:
    """Return what is left of each job. Jobs that differ in seed or K only are timed once: these hardly change the time.
    The data is ``opened`` before: reading images shows a bar of its own, and rich before 14.1 refuses two."""
    found: list[Estimate] = []
    training: dict[TrainConfig, float] = {}
    adapting: dict[tuple[ModelConfig, Method], float] = {}
    with bar() as progress:
        task = progress.add_task("Measuring", total=len(jobs), note="")
        for job, (split, data) in zip(jobs, opened, strict=True):
            plan = job.plan(data)
            images = data.read(list(islice(plan, TIMED_IMAGES))).to(device)
            kind = replace(job.train, seed=0, model=replace(job.train.model, num_prototypes=300))
            if kind not in training:
                training[kind] = training_seconds(kind, split, device)
            for method in job.methods:
                if (kind.model, method) not in adapting:
                    adapting[kind.model, method] = seconds_per_image(kind, method, images)
            steps, done = Schedule.of(kind, len(split.train)).steps, steps_done(out / MODELS / job.name)
            counted = any(job.name == one.job.name for one in found)  # a second column of the same model
            left = 0 if counted else steps - done
            rows = len(plan) * len(job.methods) - (count_rows(out, job, data, plan) if done == steps else 0)
            per_row = sum(adapting[kind.model, method] for method in job.methods) / len(job.methods)
            found.append(Estimate(job, left, training[kind] * left / steps, rows, per_row * rows))
            progress.update(task, advance=1, note=job.name)
    return found


def training_seconds(config: TrainConfig, split: Split, device: str) -> float:
    """Time one step of each kind (resolution; with the joint loss or before it) and multiply by how many there are."""
    tasks = config.objective != "mt3" or CPU_BATCH % config.mt3.task_images == 0
    if device == "cpu" and tasks and config.batch_size % CPU_BATCH == 0 and len(split.train) >= CPU_BATCH:
        config = replace(config, batch_size=CPU_BATCH)
    trainer = Trainer(config, split, Ranks(device=device))
    trainer.numerics = fastest(config, trainer.network, trainer.device)
    trainer.numerics.place(trainer.network)
    kinds: dict[tuple[int, bool], list[int]] = {}
    for step in range(trainer.schedule.steps):
        kinds.setdefault((trainer.schedule.size(step), trainer.schedule.joint_weight(step) > 0), []).append(step)
    return sum(len(steps) * _fastest(trainer, steps[-1]) for steps in kinds.values())


def seconds_per_image(config: TrainConfig, method: Method, images: Tensor) -> float:
    """Time a method with an untrained network."""
    network = initial_network(config).to(images.device).eval()
    method.adapt(network, images[:1], [0])
    return _seconds(lambda: method.adapt(network, images, range(len(images))).cpu(), images.device) / len(images)


def count_rows(out: Path, job: GridJob, data: Benchmark, plan: Plan) -> int:
    """Return how many results of a plan a trained model already has."""
    if not (out / RESULTS / FILE).exists():
        return 0
    model = load_model(out / MODELS / job.name)
    with Store(out / RESULTS, write=False) as store:
        known, seed = run.known_experiments(store), job.train.seed
        wanted = [run.describe_experiment(model, data, method, seed, plan) for method in job.methods]
        found = [run.find_experiment(known, experiment) for experiment in wanted]
        rows = read_rows(store, [number for number in found if number is not None])
    return int(plan.covers(rows).sum())


def _fastest(trainer: Trainer, step: int) -> float:
    """Do a step four times and return the seconds of the fastest of the last three; ``float`` waits for a GPU."""
    return min([_seconds(lambda: float(trainer.step(step)["loss"].detach()), trainer.device) for _ in range(4)][1:])


def _seconds(call: Callable[[], object], device: torch.device) -> float:
    """Time a call; on a CPU by the CPU time of its threads, so that other load is not counted."""
    clock, threads = (process_time, torch.get_num_threads()) if device.type == "cpu" else (perf_counter, 1)
    began = clock()
    call()
    return (clock() - began) / threads
