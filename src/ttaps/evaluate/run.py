"""Data set x method x seed -> stored rows. Kill it, start it again: it goes on where it was."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ttaps.adaptation import Method, check, protocol
from ttaps.adaptation.engine import Memory
from ttaps.errors import UsageError
from ttaps.evaluate.benchmark import Benchmark
from ttaps.evaluate.order import batch_size, check_order, ordered, streams, whole_batches
from ttaps.evaluate.plan import EVERYTHING, Item, Plan, Shard
from ttaps.evaluate.statistics import wilson
from ttaps.evaluate.store import Experiment, Row, Store
from ttaps.keys import key
from ttaps.model.checkpoint import Model
from ttaps.progress import bar

ASK_EVERY = 5.0  # seconds
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
    group: int = 8,
    watch: Watch = lambda experiment, rows: None,
) -> list[int]:
    """Evaluate methods with seeds on a data set and return the numbers of their experiments in ``folder``'s store.

    Images are worked on in groups: first all methods and seeds on one group, then the next, so that a run that is stopped has compared
    them on the same images. Each group is stored when it is done, and what is stored is not done again. ``watch`` is told of every group.
    Methods that depend on the order of the images come last, one corruption after the other; see order.py.
    With ``together``, other processes do the other shards in the same folder, and the progress shown is that of all.
    """
    if group < 1:
        raise UsageError(f"A group must have at least 1 image, not {group}.")
    for method in methods:
        check(method, model.network, model.objective)
    data = data.fitted(model)
    plan = Plan(data.labels, data.corruptions, data.severities, limit, shard)
    check_order(methods, plan)
    with Store(folder) as store, bar() as progress:
        store.describe_model(model.fingerprint, model_facts(model))
        tracks = [Track(store, model, data, method, seed) for method in methods for seed in seeds]
        shown = dataclasses.replace(plan, shard=EVERYTHING) if together else plan
        total, done = len(shown) * len(tracks), sum(track.stored(shown) for track in tracks)
        meter = Meter(store, [track.number for track in tracks], together)
        task = progress.add_task(f"Evaluating {data.name}", total=total, completed=done, note="")
        for track, rows in chain(_fairly(tracks, plan, group), _in_order(tracks, plan, group)):
            store.add(track.number, rows)
            track.count(rows)
            watch(track.number, rows)
            progress.update(task, completed=done + meter.count(len(rows)), note=track.note())
        progress.update(task, completed=done + meter.look())
    return [track.number for track in tracks]


class Meter:
    """Counts the rows added since the start, by this process or by all that work on the same experiments."""

    def __init__(self, store: Store, experiments: Sequence[int], together: bool) -> None:
        self.store, self.experiments, self.together = store, experiments, together
        self.before = store.count(experiments)
        self.own, self.all, self.ask_at = 0, 0, perf_counter() + ASK_EVERY

    def count(self, rows: int) -> int:
        """Take note of rows of one's own, and return how many there are in all; those of others are looked up every few seconds."""
        self.own += rows
        return self.look() if perf_counter() > self.ask_at else max(self.own, self.all)

    def look(self) -> int:
        """Return how many there are in all, those of others looked up now."""
        began = perf_counter()
        if self.together:
            self.all = self.store.count(self.experiments) - self.before
        took = perf_counter() - began  # 40 ms for 100,000 rows
        self.ask_at = began + max(ASK_EVERY, 200 * took)
        return max(self.own, self.all)


class Track:
    """One experiment under way: what it has already, and how it goes."""

    def __init__(self, store: Store, model: Model, data: Benchmark, method: Method, seed: int) -> None:
        self.model, self.data, self.method, self.seed = model, data, method, seed
        self.number = store.experiment(describe(model, data, method, seed))
        self._stored = np.zeros((len(data.corruptions), len(data.severities), len(data.labels)), dtype=bool)
        self._tally = np.zeros(3, dtype=np.int64)  # images, right before, right after
        self.count(store.rows(self.number))

    def has(self, item: Item) -> bool:
        """Say whether an image's result is stored."""
        return bool(self._stored[self._place(item)])

    def stored(self, plan: Plan) -> int:
        """Count the images of a plan that are stored."""
        return sum(map(self.has, plan)) if self._stored.any() else 0

    def count(self, rows: Iterator[Row] | list[Row]) -> None:
        """Take note of stored rows; those under corruptions that are not asked for today do not count."""
        for row in rows:
            if row.corruption in self.data.corruptions and row.severity in self.data.severities:
                self._stored[self._place(row.item)] = True
                self._tally += (1, row.right(0), row.right(-1))

    def note(self) -> str:
        """Return accuracy before and after so far, with the 95 % interval of the latter."""
        n, before, after = map(int, self._tally)
        low, high = wilson(after, n)
        return f"{self.method.name} {before / n:.1%} → {after / n:.1%} ({low:.1%} to {high:.1%})"

    def adapt(self, items: Sequence[Item], images: Tensor, memory: Memory | None = None) -> list[Row]:
        """Return the rows of images; each is a function of its key, its pixels and the experiment only, and of ``memory`` if given."""
        network, keeper = self.model.network, ordered(self.method)
        images = images.to(next(network.parameters()).device)
        keys = [key(self.seed, self.data.name, *item) for item in items]
        start = perf_counter()
        traces = (
            keeper.adapt(network, images, keys, memory) if keeper else self.method.adapt(network, images, keys)
        ).cpu()
        seconds = (perf_counter() - start) / len(items)
        labels = [int(self.data.labels[item.image]) for item in items]
        return [
            make_row(item, label, trace.numpy(), seconds)
            for item, label, trace in zip(items, labels, traces, strict=True)
        ]

    def _place(self, item: Item) -> tuple[int, int, int]:
        return self.data.corruptions.index(item.corruption), self.data.severities.index(item.severity), item.image


def describe(model: Model, data: Benchmark, method: Method, seed: int) -> Experiment:
    """Return all that a result depends on besides the image."""
    settings: dict[str, Any] = dataclasses.asdict(method) if dataclasses.is_dataclass(method) else {}
    stated = {name: value for name, value in settings.items() if name not in ("online", "leak")}  # by the protocol
    canonical = json.dumps(stated, sort_keys=True, separators=(",", ":"))
    return Experiment(
        model.name, model.fingerprint, data.name, data.digest, method.name, canonical, seed, protocol(method)
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


def _fairly(tracks: list[Track], plan: Plan, size: int) -> Iterator[tuple[Track, list[Row]]]:
    """Yield missing rows group by group, all experiments on one group before the next; its images are read once for all of them."""
    free = [track for track in tracks if not ordered(track.method)]
    for items in _groups(plan, size):
        if all(track.has(item) for track in free for item in items):
            continue
        images = free[0].data.read(items)
        for track in free:
            todo = [place for place, item in enumerate(items) if not track.has(item)]
            if todo:
                yield track, track.adapt([items[place] for place in todo], images[todo])


def _in_order(tracks: list[Track], plan: Plan, size: int) -> Iterator[tuple[Track, list[Row]]]:
    """Yield missing rows of experiments that depend on the order. A stream that was stopped half-way starts again: its memory is gone."""
    for track in tracks:
        for stream in streams(plan) if ordered(track.method) else ():
            if all(map(track.has, stream)):
                continue
            memory = Memory()
            for items in whole_batches(stream, size, batch_size(track.method)):
                rows = track.adapt(items, track.data.read(items), memory)
                if new := [row for row in rows if not track.has(row.item)]:
                    yield track, new


def _groups(plan: Plan, size: int) -> Iterator[list[Item]]:
    """Cut a plan into groups, always at the same places: a run that is resumed works with the same groups."""
    items = iter(plan)
    while group := list(islice(items, size)):
        yield group
