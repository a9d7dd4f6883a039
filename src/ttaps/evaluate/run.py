"""Data set x method x seed -> stored rows. Kill it, start it again: it goes on where it was."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ttaps.adaptation import Method, ensure_supported
from ttaps.adaptation.engine import CarriedState
from ttaps.errors import UsageError
from ttaps.evaluate.benchmark import Benchmark
from ttaps.evaluate.coverage import Tally
from ttaps.evaluate.live import Live
from ttaps.evaluate.order import check_order, streams, whole_batches
from ttaps.evaluate.plan import EVERYTHING, Item, Plan, Shard
from ttaps.evaluate.settings import IN_PROTOCOL, as_stored, settings_name
from ttaps.evaluate.store import Experiment, Row, Store
from ttaps.evaluate.timing import Spent
from ttaps.model.checkpoint import Model
from ttaps.progress import bar
from ttaps.rng import derive_seed

AT_LEAST, ON_GPU = 8, 64  # images of a group
FACTS = ("objective", "data", "seed", "step", "steps")
Watch = Callable[[int, list[Row]], object]


def evaluate(
    model: Model,
    data: Benchmark,
    methods: Sequence[Method],
    seeds: Sequence[int] = (0,),
    *,
    folder: Path,
    limit: int | None = None,
    shard: Shard = EVERYTHING,
    together: bool = False,
    group: int | None = None,
    watch: Watch = lambda experiment, rows: None,
    spent: Spent | None = None,
) -> list[int]:
    """Evaluate methods with seeds on a data set and return the numbers of their experiments in ``folder``'s store.

    Images are worked on in groups: first all methods and seeds on one group, then the next, so that a run that is stopped has compared
    them on the same images. Each group is stored when it is done, and what is stored is not done again. ``watch`` is told of every group.
    Methods that depend on the order of the images come last, one corruption after the other; see order.py.
    With ``together``, other processes do the other shards in the same folder, and what is shown is that of all.
    ``spent`` is told what the time was spent on.
    """
    spent = spent or Spent()
    group = usual_group(model.network) if group is None else group
    if group < 1:
        raise UsageError(f"A group must have at least 1 image, not {group}.")
    for method in methods:
        ensure_supported(method, model.network, model.objective)
    data = data.fitted(model)
    plan = Plan(data.labels, data.corruptions, data.severities, limit, shard)
    check_order(methods, plan)
    with spent.on("whole"), Store(folder) as store, bar() as progress:
        store.describe_model(model.fingerprint, model_facts(model))
        tracks = [
            ExperimentRun(store, model, data, method, seed, Tally(plan), spent) for method in methods for seed in seeds
        ]
        shown = dataclasses.replace(plan, shard=EVERYTHING) if together else plan
        catch_up = partial(_catch_up, store, tracks)
        live = Live(progress, f"Evaluating {data.name}", _by_method(tracks), shown, catch_up if together else None)
        for track, rows in chain(_run_episodic(tracks, plan, group), _in_order(tracks, plan, group)):
            with spent.on("storing"):
                store.add(track.number, rows)
            track.tally.add((*row.item, row.right(0), row.right(-1)) for row in rows)
            watch(track.number, rows)
            live.more(len(rows))
        live.end()
    return [track.number for track in tracks]


def usual_group(network: nn.Module) -> int:
    """Return how many images to work on at once: enough for every thread of a CPU to have as many as the others, or to fill a GPU."""
    if next(network.parameters()).device.type != "cpu":
        return ON_GPU
    threads = torch.get_num_threads()
    return threads * math.ceil(AT_LEAST / threads)


class ExperimentRun:
    """One experiment under way, and what it has already."""

    def __init__(
        self, store: Store, model: Model, data: Benchmark, method: Method, seed: int, tally: Tally, spent: Spent
    ) -> None:
        self.model, self.data, self.method, self.seed, self.tally, self.spent = model, data, method, seed, tally, spent
        experiment = describe(model, data, method, seed)
        self.name = f"{method.name} {settings_name(experiment)}".strip()
        self.number = store.experiment(as_stored(experiment, store.experiments().values()))
        self.tally.add(store.outcomes(self.number))

    def read(self, items: Sequence[Item]) -> Tensor:
        """Read images."""
        with self.spent.on("reading"):
            return self.data.read(items)

    def adapt(self, items: Sequence[Item], images: Tensor, memory: CarriedState | None = None) -> list[Row]:
        """Return the rows of images; each is a function of its key, its pixels and the experiment only, and of ``memory`` if given."""
        network = self.model.network
        images = images.to(next(network.parameters()).device)
        keys = [derive_seed(self.seed, self.data.name, *item) for item in items]
        start = perf_counter()
        with self.spent.on("adapting"):
            traces = self.method.adapt(network, images, keys, memory).cpu()
        seconds = (perf_counter() - start) / len(items)
        labels = [int(self.data.labels[item.image]) for item in items]
        return [
            make_row(item, label, trace.numpy(), seconds)
            for item, label, trace in zip(items, labels, traces, strict=True)
        ]


def describe(model: Model, data: Benchmark, method: Method, seed: int) -> Experiment:
    """Return all that a result depends on besides the image."""
    settings: dict[str, Any] = dataclasses.asdict(method)
    stated = {name: value for name, value in settings.items() if name not in IN_PROTOCOL}
    canonical = json.dumps(stated, sort_keys=True, separators=(",", ":"))
    return Experiment(
        model.name, model.fingerprint, data.name, data.digest, method.name, canonical, seed, method.protocol
    )


def model_facts(model: Model) -> dict[str, Any]:
    """Return what a report says about a model: how it was trained and what its network is."""
    known = {name: model.info[name] for name in FACTS if name in model.info}
    return {**known, "model": dataclasses.asdict(model.network.config)}


def make_row(item: Item, label: int, trace: NDArray[np.float32], seconds: float) -> Row:
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
    )


def _by_method(tracks: Sequence[ExperimentRun]) -> dict[str, list[Tally]]:
    """Return what is known of each method, over its seeds."""
    groups: dict[str, list[Tally]] = {}
    for track in tracks:
        groups.setdefault(track.name, []).append(track.tally)
    return groups


def _catch_up(store: Store, tracks: Sequence[ExperimentRun]) -> None:
    """Take note of what other processes have stored."""
    for track in tracks:
        track.tally.add(store.outcomes(track.number))


def _run_episodic(tracks: list[ExperimentRun], plan: Plan, size: int) -> Iterator[tuple[ExperimentRun, list[Row]]]:
    """Yield missing rows group by group, all experiments on one group before the next; its images are read once for all of them."""
    free = [track for track in tracks if not track.method.sequential]
    for items in _groups(plan, size):
        if all(track.tally.has(item) for track in free for item in items):
            continue
        images = free[0].read(items)
        for track in free:
            todo = [place for place, item in enumerate(items) if not track.tally.has(item)]
            if todo:
                yield track, track.adapt([items[place] for place in todo], images[todo])


def _in_order(tracks: list[ExperimentRun], plan: Plan, size: int) -> Iterator[tuple[ExperimentRun, list[Row]]]:
    """Yield missing rows of experiments that depend on the order. A stream that was stopped half-way starts again: its memory is gone."""
    for track in tracks:
        for stream in streams(plan) if track.method.sequential else ():
            if all(map(track.tally.has, stream)):
                continue
            memory = CarriedState()
            for items in whole_batches(stream, size, track.method.batch_size):
                rows = track.adapt(items, track.read(items), memory)
                if new := [row for row in rows if not track.tally.has(row.item)]:
                    yield track, new


def _groups(plan: Plan, size: int) -> Iterator[list[Item]]:
    """SplitNetwork a plan into groups, always at the same places: a run that is resumed works with the same groups."""
    items = iter(plan)
    while group := list(islice(items, size)):
        yield group
