"""What a table is made of: models by objective, number of prototypes and seed, and the methods each is evaluated with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ttaps.adaptation import ensure_supported
from ttaps.adaptation.spec import parse_method
from ttaps.config import from_dict, read_toml
from ttaps.errors import UsageError
from ttaps.evaluate import Benchmark, Plan, open_benchmark
from ttaps.training.config import TrainConfig
from ttaps.training.presets import merge, read_preset, train_config
from ttaps.training.trainer import initial_network


@dataclass(frozen=True)
class Column:
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
    columns: tuple[Column, ...]
    """Kinds of models."""
    about: str = ""
    """What it is, in a line."""
    seeds: tuple[int, ...] = (0,)
    """Seeds of training, each also that of its evaluation."""
    severities: tuple[int, ...] = ()
    """Severities; 5 unless given."""
    corruptions: tuple[str, ...] = ()
    """Corruptions; the paper's unless given."""
    limit: int | None = None
    """Images per corruption; all unless given."""
    gpu: bool = False
    """Whether it is too much for a CPU."""

    def benchmark(self, root: Path | None, size: int) -> Benchmark:
        """Open the data set that is evaluated on; pictures of a folder get ``size``."""
        return open_benchmark(self.data, root, corruptions=self.corruptions, severities=self.severities, size=size)

    def plan(self, data: Benchmark) -> Plan:
        """Return the images each method is to see."""
        return Plan(data.labels, data.corruptions, data.severities, self.limit)


@dataclass(frozen=True)
class Job:
    """One model to train, and what to evaluate it with."""

    train: TrainConfig
    methods: tuple[str, ...]

    @property
    def name(self) -> str:
        """Name of the model's folder."""
        return f"{self.train.objective}-K{self.train.model.num_prototypes}-seed{self.train.seed}"


def read_grid(path: Path, find: Callable[[str], Path]) -> tuple[Grid, list[Job]]:
    """Read a preset and return its jobs, those of the first seed first: a table of one seed is of use before the others are done.

    ``find`` returns the file of a training preset. The table ``train`` of the grid, then that of a column, hold what is changed in it.
    """
    values = read_toml(path)
    columns = values.get("columns")
    whole = isinstance(columns, list) and all(isinstance(one, dict) and "config" in one for one in columns)
    if "data" not in values or not columns or not whole:
        raise UsageError(
            f"{path} needs data = ... and [[columns]], each with config = ...; see presets/reproduce in the package."
        )
    shared = values.pop("train", {})
    own = [column.pop("train", {}) for column in columns]
    if not all(isinstance(changes, Mapping) for changes in (shared, *own)):
        raise UsageError(f"{path}: train must be a table of settings, such as [train] or [columns.train].")
    grid = from_dict(Grid, values, where=str(path))
    if not grid.seeds or not all(column.methods for column in grid.columns):
        raise UsageError(f"{path} needs at least one seed, and at least one method in every column.")
    configs = [
        _train_config(find(column.config), shared, changes) for column, changes in zip(grid.columns, own, strict=True)
    ]
    for config, column in zip(configs, grid.columns, strict=True):  # what cannot be done is told before any training
        network = initial_network(config)
        for method in column.methods:
            ensure_supported(parse_method(method), network, config.objective)
    jobs = [
        job for seed in grid.seeds for kind in zip(configs, grid.columns, strict=True) for job in _jobs(*kind, seed)
    ]
    names = [job.name for job in jobs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise UsageError(f"{path}: two columns train a model called {twice}.")
    return grid, jobs


def _train_config(preset: Path, *changes: Mapping[str, Any]) -> TrainConfig:
    values = read_preset(preset)
    for change in changes:
        values = merge(values, change)
    return train_config(values, where=str(preset))


def _jobs(config: TrainConfig, column: Column, seed: int) -> Iterator[Job]:
    for prototypes in column.prototypes or (config.model.num_prototypes,):
        yield Job(
            replace(config, seed=seed, model=replace(config.model, num_prototypes=prototypes)), tuple(column.methods)
        )
