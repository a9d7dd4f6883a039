"""What a table is made of: models by objective, number of prototypes and seed, their data, and the methods each is evaluated with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from ttaps.adaptation import Method, ensure_supported
from ttaps.adaptation.spec import parse_method
from ttaps.config import from_dict, read_toml
from ttaps.data import data_root
from ttaps.errors import UsageError
from ttaps.evaluate.benchmark import Benchmark, open_benchmark
from ttaps.evaluate.plan import EVERYTHING, Plan, Shard
from ttaps.model import ModelConfig
from ttaps.model.checkpoint import Model
from ttaps.training.config import TrainConfig
from ttaps.training.data import Split, training_images
from ttaps.training.presets import merge, read_preset, train_config
from ttaps.training.trainer import initial_network


@dataclass(frozen=True)
class GridColumn:
    """One kind of model, and what it is evaluated with."""

    config: str
    """The preset it is trained with."""
    methods: tuple[str, ...] = ("source",)
    """Methods, as ``ttaps evaluate`` takes them."""
    prototypes: tuple[int, ...] = ()
    """Values of K; the preset's unless given."""


@dataclass(frozen=True)
class Grid:
    """A preset of ``ttaps reproduce``; training settings come from each column's own preset and from the tables ``train``."""

    data: str
    """What is evaluated on."""
    columns: tuple[GridColumn, ...]
    """Kinds of models."""
    about: str = ""
    """What it is, in a line."""
    seeds: tuple[int, ...] = (0,)
    """Seeds of training, each also that of its evaluation."""
    severities: tuple[int, ...] = ()
    """Severities; 5 unless given."""
    corruptions: tuple[str, ...] = ()
    """Corruptions; the paper's unless given."""
    images_per_corruption: int | None = None
    """Images under each corruption; all unless given."""
    gpu: bool = False
    """Whether it is too much for a CPU."""

    def benchmark(self, root: Path | None, size: int) -> Benchmark:
        """Open the data set that is evaluated on; images of a folder are resized to ``size``."""
        return open_benchmark(self.data, root, corruptions=self.corruptions, severities=self.severities, size=size)

    def plan(self, data: Benchmark, shard: Shard = EVERYTHING) -> Plan:
        """Return the images each method is to see."""
        return Plan(data.labels, data.corruptions, data.severities, self.images_per_corruption, shard)


@dataclass(frozen=True)
class Job:
    """One model to train, and what to evaluate it with."""

    train: TrainConfig
    methods: tuple[Method, ...]

    @property
    def name(self) -> str:
        """Name of the model's folder."""
        return f"{self.train.objective}-K{self.train.model.num_prototypes}-seed{self.train.seed}"


@dataclass(frozen=True, eq=False)
class JobData:
    """What a job is trained on, and what it is evaluated on."""

    train: Split
    test: Benchmark


def read_grid(path: Path, find: Callable[[str], Path]) -> tuple[Grid, list[Job]]:
    """Read a preset and return its jobs, those of the first seed first: a table of one seed is of use before the others are done.

    ``find`` returns the file of a training preset. The table ``train`` of the grid, then that of a column, hold what is changed in it.
    """
    values = read_toml(path)
    columns = values.get("columns")
    if "data" not in values or not columns or not _are_tables(columns, "config"):
        raise UsageError(
            f"{path} needs data = ... and [[columns]], each with config = ...; see presets/reproduce in the package."
        )
    changes = [values.pop("train", {}), *(column.pop("train", {}) for column in columns)]
    if not _are_tables(changes):
        raise UsageError(f"{path}: train must be a table of settings, such as [train] or [columns.train].")
    grid = from_dict(Grid, values, where=str(path))
    if not grid.seeds or not all(column.methods for column in grid.columns):
        raise UsageError(f"{path} needs at least one seed, and at least one method in every column.")
    kinds = [
        job
        for column, own in zip(grid.columns, changes[1:], strict=True)
        for job in _jobs(column, find(column.config), changes[0], own)
    ]
    jobs = [replace(job, train=replace(job.train, seed=seed)) for seed in grid.seeds for job in kinds]
    names = [job.name for job in jobs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"{path}: two columns train a model called {twice}.")
    return grid, jobs


def _are_tables(values: Any, *keys: str) -> bool:
    return isinstance(values, list) and all(isinstance(one, Mapping) and one.keys() >= set(keys) for one in values)


def _jobs(column: GridColumn, preset: Path, *changes: Mapping[str, Any]) -> list[Job]:
    """Return a column's jobs of one seed; a method that such a model does not support is refused before any training."""
    values = read_preset(preset)
    for change in changes:
        values = merge(values, change)
    config = train_config(values, where=str(preset))
    methods, network = tuple(map(parse_method, column.methods)), initial_network(config)
    for method in methods:
        ensure_supported(method, network, config.objective)
    sizes = column.prototypes or (config.model.num_prototypes,)
    return [Job(replace(config, model=replace(config.model, num_prototypes=size)), methods) for size in sizes]


def open_data(grid: Grid, jobs: Sequence[Job], root: Path | None) -> list[JobData]:
    """Open the data of every job, each set once, before any work; refuse a job that could be trained but not evaluated."""
    train, test = cache(training_images), cache(partial(grid.benchmark, root))
    found = []
    for job in jobs:
        model = job.train.model
        shape = ModelConfig(num_classes=model.num_classes, image_size=model.image_size)  # the same for every K
        data = JobData(train(job.train.data, data_root(root), shape), test(model.image_size))
        data.test.aligned_to(Model(initial_network(job.train), data.train.train.classes, job.name))
        found.append(data)
    return found
