"""Data set x method x seed -> stored rows. Killed at any moment, the same call resumes where it was."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ttaps.adaptation import Method, ensure_supported
from ttaps.adaptation.engine import CarriedState
from ttaps.errors import UsageError
from ttaps.evaluate.benchmark import Benchmark
from ttaps.evaluate.experiments import describe, model_facts, open_experiment, refresh_specs
from ttaps.evaluate.live import Live
from ttaps.evaluate.plan import EVERYTHING, Coverage, Item, Plan, Shard
from ttaps.evaluate.store import Row, Store
from ttaps.model.checkpoint import Model
from ttaps.progress import bar
from ttaps.rng import derive_seed

AT_LEAST, ON_GPU = 8, 64  # images of a group
Watch = Callable[[int, list[Row]], object]


def evaluate(
    model: Model,
    data: Benchmark,
    methods: Sequence[Method],
    seeds: Sequence[int] = (0,),
    *,
    folder: Path,
    images_per_corruption: int | None = None,
    shard: Shard = EVERYTHING,
    distributed: bool = False,
    group: int | None = None,
    watch: Watch = lambda experiment, rows: None,
    timing: Timing | None = None,
) -> list[int]:
    """Evaluate methods with seeds on a data set and return the numbers of their experiments in ``folder``'s store.

    Images are worked on in groups: first all methods and seeds on one group, then the next, so that a run that is stopped has compared
    them on the same images. Each group is stored when it is done, and what is stored is not done again. ``watch`` is called with every
    group. Sequential methods come last, one corruption after the other, each from the trained model on.
    With ``distributed``, other processes work on the other shards in the same folder, and the progress shown is that of all.
    """
    timing = timing or Timing()
    group = default_group(model.network) if group is None else group
    if group < 1:
        raise UsageError(f"A group must have at least 1 image, not {group}.")
    for method in methods:
        ensure_supported(method, model.network, model.objective)
    data = data.aligned_to(model)
    plan = Plan(data.labels, data.corruptions, data.severities, images_per_corruption, shard)
    plan.check(methods)
    with timing.measure("total"), Store(folder) as store, bar() as progress:
        store.describe_model(model.fingerprint, model_facts(model), model.classes)
        refresh_specs(store)
        runs = [ExperimentRun(store, model, data, method, seed, plan, timing) for method in methods for seed in seeds]
        coverages = {run.spec: [other.coverage for other in runs if other.spec == run.spec] for run in runs}
        shown, others = (plan.whole(), runs) if distributed else (plan, [])
        live = Live(progress, f"Evaluating {data.name}", coverages, shown, [run.catch_up for run in others])
        for run, rows in chain(_run_episodic(runs, plan, group), _run_sequential(runs, plan, group)):
            run.save(rows)
            watch(run.number, rows)
            live.update(len(rows))
        live.finish()
    return [run.number for run in runs]


class Timing:
    """Seconds of a run, added up while it works."""

    def __init__(self) -> None:
        self._seconds = {"total": 0.0, "adapting": 0.0, "reading": 0.0, "storing": 0.0}

    @contextmanager
    def measure(self, work: Literal["total", "adapting", "reading", "storing"]) -> Iterator[None]:
        """Add the time of a block."""
        began = perf_counter()
        try:
            yield
        finally:
            self._seconds[work] += perf_counter() - began

    def parts(self) -> dict[str, float]:
        """Return the seconds by what they were spent on; bookkeeping is all else."""
        parts = {name: seconds for name, seconds in self._seconds.items() if name != "total"}
        return {**parts, "bookkeeping": self._seconds["total"] - sum(parts.values())}


def default_group(network: nn.Module) -> int:
    """Return how many images to work on at once: as many for each thread of a CPU, or enough to fill a GPU."""
    if next(network.parameters()).device.type != "cpu":
        return ON_GPU
    threads = torch.get_num_threads()
    return threads * math.ceil(AT_LEAST / threads)


class ExperimentRun:
    """One experiment under way, and what it has already."""

    def __init__(
        self, store: Store, model: Model, data: Benchmark, method: Method, seed: int, plan: Plan, timing: Timing
    ) -> None:
        self.store, self.timing = store, timing
        self.model, self.data, self.method, self.seed = model, data, method, seed
        experiment = describe(model, data, method, seed)
        self.spec = experiment.spec
        self.number = open_experiment(store, experiment)
        self.coverage = Coverage(plan)
        self.catch_up()

    def catch_up(self) -> None:
        """Take note of what is stored, by whichever process."""
        self.coverage.add(self.store.outcomes(self.number))

    def missing(self, items: Sequence[Item]) -> list[int]:
        """Return the places of the images whose results are not stored yet."""
        return [place for place, item in enumerate(items) if not self.coverage.has(item)]

    def read(self, items: Sequence[Item]) -> Tensor:
        """Read images."""
        with self.timing.measure("reading"):
            return self.data.read(items)

    def adapt(self, items: Sequence[Item], images: Tensor, state: CarriedState | None = None) -> list[Row]:
        """Return the rows of images; each is a function of its key, its pixels and the experiment only, and of ``state`` if given."""
        images = images.to(next(self.model.network.parameters()).device)
        keys = [derive_seed(self.seed, self.data.name, *item) for item in items]
        start = perf_counter()
        with self.timing.measure("adapting"):
            traces = self.method.adapt(self.model.network, images, keys, state).cpu().numpy()
        seconds = (perf_counter() - start) / len(items)
        return [
            make_row(item, int(self.data.labels[item.image]), trace, seconds, self.data.file(item.image))
            for item, trace in zip(items, traces, strict=True)
        ]

    def save(self, rows: list[Row]) -> None:
        """Store rows and take note of them."""
        with self.timing.measure("storing"):
            self.store.add(self.number, rows)
        self.coverage.add((*row.item, row.right(0), row.right(-1)) for row in rows)


def make_row(item: Item, label: int, trace: NDArray[np.float32], seconds: float, file: str = "") -> Row:
    """Return the row of an image from its class probabilities before and after every step, shape (steps + 1, classes)."""
    broken = np.isnan(trace).any(-1)  # steps too large for the network: no prediction, so never right by accident
    predictions = np.where(broken, -1, trace.argmax(-1))
    return Row(
        *item,
        label=label,
        predictions=tuple(predictions.tolist()),
        confidence=tuple(trace.max(-1).tolist()),
        label_probability=tuple(trace[:, label].tolist()),
        seconds=seconds,
        file=file,
    )


def _run_episodic(runs: list[ExperimentRun], plan: Plan, size: int) -> Iterator[tuple[ExperimentRun, list[Row]]]:
    """Yield missing rows group by group, all experiments on one group before the next; its images are read once for all of them."""
    runs = [run for run in runs if not run.method.sequential]
    for items in plan.groups(size):
        images: Tensor | None = None
        for run in runs:
            if places := run.missing(items):
                images = run.read(items) if images is None else images
                yield run, run.adapt([items[place] for place in places], images[places])


def _run_sequential(runs: list[ExperimentRun], plan: Plan, size: int) -> Iterator[tuple[ExperimentRun, list[Row]]]:
    """Yield missing rows of sequential methods. A stream that was stopped half-way starts again, for its state is gone."""
    for run in (run for run in runs if run.method.sequential):
        whole = run.method.batch_size * max(1, size // run.method.batch_size)  # a group never ends inside a batch
        for stream in plan.streams():
            if not run.missing(stream):
                continue
            state = CarriedState()
            for items in (stream[first : first + whole] for first in range(0, len(stream), whole)):
                rows = run.adapt(items, run.read(items), state)
                if new := [row for row in rows if not run.coverage.has(row.item)]:
                    yield run, new
