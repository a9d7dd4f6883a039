"""Data set x method x seed -> stored rows, and projections. After a kill at any time, the same call resumes."""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from itertools import chain, islice, product
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ttaps.adaptation import METHODS, Method
from ttaps.adaptation.engine import CarriedState
from ttaps.adaptation.result import checked
from ttaps.adaptation.spec import method_spec
from ttaps.config import from_dict
from ttaps.errors import UsageError
from ttaps.evaluation.benchmark import Benchmark
from ttaps.evaluation.live import Live
from ttaps.evaluation.plan import EVERYTHING, Coverage, Item, Plan, batched
from ttaps.evaluation.store import PROJECTIONS, Experiment, Row, Store
from ttaps.files import atomic_write
from ttaps.model import as_network, eval_mode
from ttaps.model.checkpoint import Model
from ttaps.progress import bar

AT_LEAST, ON_GPU = 8, 64  # images of a group
Known = dict[int, Experiment]  # stored experiments by number
FACTS = ("objective", "data", "seed", "step", "steps")  # of a model's training, for reports


class Timing:
    """Seconds of a run by activity, summed as it goes."""

    def __init__(self) -> None:
        self._seconds = dict.fromkeys(("total", "adapting", "reading", "storing"), 0.0)

    @contextmanager
    def activity(self, work: str) -> Iterator[None]:
        """Add the time of a block."""
        began = perf_counter()
        yield
        self._seconds[work] += perf_counter() - began

    def parts(self) -> dict[str, float]:
        """Return the seconds by activity; bookkeeping is all the rest."""
        parts = {name: seconds for name, seconds in self._seconds.items() if name != "total"}
        return {**parts, "bookkeeping": self._seconds["total"] - sum(parts.values())}


def evaluate(
    model: Model,
    data: Benchmark,
    methods: Sequence[Method],
    seeds: Sequence[int] = (0,),
    *,
    folder: Path,
    plan: Plan | None = None,
    distributed: bool = False,
    group: int | None = None,
    timing: Timing | None = None,
) -> list[int]:
    """Evaluate methods with seeds on a data set, or on a ``plan`` of its images, and return the ids of their experiments in ``folder``.
    Images are processed in groups: first all methods and seeds on one group, then the next, so that an interrupted run has compared
    them on the same images. Each group is stored when it is done, and is not computed again. Sequential methods come last,
    one corruption after another, each starting from the trained model unless continual. With ``distributed``, other processes
    work on the other shards in the same folder, and the progress shown is that of all."""
    timing = timing or Timing()
    group = default_group(model.network) if group is None else group
    if group < 1:
        raise UsageError(f"A group must have at least 1 image, not {group}.")
    data = data.aligned_to(model)
    plan = data.plan() if plan is None else plan
    plan.check(methods)
    with timing.activity("total"), Store(folder) as store, bar() as progress:
        facts = {name: model.info[name] for name in FACTS if name in model.info}
        presets = {name: model.presets[name] for name in METHODS if name in model.presets}
        facts |= {"model": model.facts, "presets": presets}
        store.describe_model(model.fingerprint, facts, model.classes)
        if data.source[0]:
            store.describe_data({(data.name, data.digest): data.source})
        known = known_experiments(store)
        for number, experiment in known.items():
            store.rename(number, experiment.spec)
        pairs = product(methods, seeds)
        runs = [open_run(store, known, model, data, method, seed, plan, timing) for method, seed in pairs]
        coverages = {run.spec: [other.coverage for other in runs if other.spec == run.spec] for run in runs}
        shown, others = (replace(plan, shard=EVERYTHING), runs) if distributed else (plan, [])
        live = Live(progress, f"Evaluating {data.name}", coverages, shown, [run.catch_up for run in others])
        for run, rows in chain(run_episodic(runs, plan, group), _run_sequential(runs, plan, group)):
            run.save(rows)
            live.update(len(rows))
        live.finish()
    return [run.number for run in runs]


def default_group(network: nn.Module) -> int:
    """Return how many images to process at once: a fixed number per CPU thread, or enough to fill a GPU."""
    if next(network.parameters()).device.type != "cpu":
        return ON_GPU
    threads = torch.get_num_threads()
    return threads * math.ceil(AT_LEAST / threads)


def describe_experiment(model: Model, data: Benchmark, method: Method, seed: int, plan: Plan) -> Experiment:
    """Return all that a result depends on apart from the image; for a continual method, this includes the whole stream."""
    model_and_data = model.name, model.fingerprint, data.name, data.digest
    protocol = f"{method.protocol}, {plan.stream}" if method.continual else method.protocol
    return Experiment(*model_and_data, method_spec(method, model.presets), _settings(method), seed, protocol)


def known_experiments(store: Store) -> Known:
    """Return stored experiments as this version describes them: settings may have been added and presets changed since."""
    found, models = store.experiments(), store.models()
    for number, experiment in found.items():
        presets = models.get(experiment.fingerprint, {}).get("presets")
        with suppress(KeyError, UsageError):  # this version may not know the method, or a setting
            method = from_dict(METHODS[experiment.method], json.loads(experiment.settings), where=experiment.spec)
            found[number] = replace(experiment, spec=method_spec(method, presets), settings=_settings(method))
    return found


def find_experiment(known: Known, experiment: Experiment) -> int | None:
    """Return the id of the same stored experiment, even from before a setting existed; None if there is none."""
    return next((number for number, other in known.items() if other == experiment), None)


def _settings(method: Method) -> str:
    return json.dumps(asdict(method), sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True, eq=False)
class ExperimentRun:
    """An experiment in progress, and what is already stored (``coverage``)."""

    number: int
    spec: str
    method: Method
    seed: int
    model: Model
    data: Benchmark
    coverage: Coverage
    store: Store
    timing: Timing

    def catch_up(self) -> None:
        """Record what is stored, by any process."""
        self.coverage.add(self.store.outcomes(self.number))

    def read(self, items: Sequence[Item]) -> Tensor:
        """Read images and time it."""
        with self.timing.activity("reading"):
            return self.data.read(items)

    def adapt(self, items: Sequence[Item], images: Tensor, state: CarriedState | None = None) -> list[Row]:
        """Return the rows of images; each is a function of its key, its pixels and the experiment only, and of ``state`` if given."""
        images = images.to(next(self.model.network.parameters()).device)
        keys, start = self.data.keys(items, self.seed), perf_counter()
        with self.timing.activity("adapting"):
            found = self.method.adapt(self.model.network, images, keys, state).cpu()
        traces = checked(found, self.model.name).numpy()
        seconds = (perf_counter() - start) / len(items)
        return [
            make_row(item, int(self.data.labels[item.image]), trace, seconds, self.data.file(item.image))
            for item, trace in zip(items, traces, strict=True)
        ]

    def save(self, rows: list[Row]) -> None:
        """Store and record rows."""
        with self.timing.activity("storing"):
            self.store.add(self.number, rows)
        self.coverage.add(row.outcome for row in rows)


def open_run(
    store: Store, known: Known, model: Model, data: Benchmark, method: Method, seed: int, plan: Plan, timing: Timing
) -> ExperimentRun:
    """Return a run of the experiment, which is stored already or from now on, with what is known of its images."""
    experiment = describe_experiment(model, data, method, seed, plan)
    number = find_experiment(known, experiment) or store.experiment(experiment)
    run = ExperimentRun(number, experiment.spec, method, seed, model, data, Coverage(plan), store, timing)
    run.catch_up()
    return run


def make_row(item: Item, label: int, trace: NDArray[np.float32], seconds: float, file: str = "") -> Row:
    """Return the row of an image from its class probabilities before and after every step, shape (steps + 1, classes)."""
    # Steps too large for the network: no prediction, so never right by accident.
    broken = np.asarray(np.isnan(trace).any(-1))
    traces = np.where(broken, -1, trace.argmax(-1)), trace.max(-1), trace[:, label]
    predictions, confidence, label_probability = (tuple(part.tolist()) for part in traces)
    true = np.eye(trace.shape[-1])[label]
    brier = np.square(trace[[0, -1]] - true).sum(-1)  # Σ (p - y)², where y is 1 for the true class
    brier = np.where(broken[[0, -1]], 1.0, brier)  # as if no class had any probability
    return Row(*item, label, predictions, confidence, label_probability, seconds, file, tuple(brier.tolist()))


def run_episodic(
    runs: Sequence[ExperimentRun], plan: Iterable[Item], size: int
) -> Iterator[tuple[ExperimentRun, list[Row]]]:
    """Yield missing rows group by group, all experiments on one group before the next; its images are read once for all of them."""
    runs = [run for run in runs if not run.method.sequential]
    for items in batched(plan, size):  # the same groups in a run that is resumed
        images: Tensor | None = None
        for run in runs:
            if places := run.coverage.missing(items):
                images = run.read(items) if images is None else images
                yield run, run.adapt([items[place] for place in places], images[places])


def _run_sequential(runs: list[ExperimentRun], plan: Plan, size: int) -> Iterator[tuple[ExperimentRun, list[Row]]]:
    """Yield missing rows of sequential methods. A stream that was stopped half-way starts again, for its state is gone: a corruption,
    or all of them one after the other where a method is continual. No batch has images of two corruptions."""
    for run in (run for run in runs if run.method.sequential):
        whole = run.method.batch_size * max(1, size // run.method.batch_size)  # a group never ends inside a batch
        parts = [list(plan.at(condition)) for condition in plan.conditions]
        for stream in [parts] if run.method.continual else [[part] for part in parts]:
            state = CarriedState()
            batches = [items for part in stream for items in batched(part, whole)]
            missing = [place for place, items in enumerate(batches) if run.coverage.missing(items)]
            for items in batches[: max(missing, default=-1) + 1]:
                rows = run.adapt(items, run.read(items), state)
                if new := [rows[place] for place in run.coverage.missing(items)]:
                    yield run, new


def projections_file(folder: Path, model: Model, data: Benchmark) -> Path:
    """Return the file of a model's projections in a folder of results."""
    return folder / PROJECTIONS / f"{model.fingerprint}-{data.name}.npz"


@torch.no_grad()
def write_projections(model: Model, data: Benchmark, folder: Path, images: int) -> None:
    """Store z (N, Z) of the first images of a stratified order, before adaptation, and the prototypes (K, Z) with their classes."""
    data, network = data.aligned_to(model), as_network(model.network)
    items = list(islice(data.plan(), images))
    prototypes = network.prototypes
    with eval_mode(network):
        parts = [network.project(data.read(batch).to(prototypes.device)) for batch in batched(items, ON_GPU)]
        labels = network.classifier(prototypes).argmax(1)
    arrays = {"z": torch.cat(parts), "prototypes": prototypes, "prototype_labels": labels}
    stored: dict[str, Any] = {name: array.cpu() for name, array in arrays.items()}
    stored |= {"labels": data.labels[[item.image for item in items]], "classes": data.classes}
    stored |= {"model": model.name, "fingerprint": model.fingerprint, "data": data.name}
    with atomic_write(projections_file(folder, model, data)) as partial, partial.open("wb") as file:
        np.savez(file, **stored)
