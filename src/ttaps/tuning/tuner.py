"""The images of tuning, and candidates on them: rows are stored as computed, and options are derived from stored rows."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from ttaps.adaptation import Method
from ttaps.adaptation.ttaps import nearest_distance
from ttaps.data import ImageSet, load_set, split_train
from ttaps.data.corruptions import TUNING_CORRUPTIONS, corrupt_set
from ttaps.errors import UsageError
from ttaps.evaluation.benchmark import VALIDATION_SEED, Benchmark, clean_benchmark
from ttaps.evaluation.frame import read_rows
from ttaps.evaluation.plan import Coverage, Item, Plan, Shard
from ttaps.evaluation.run import (
    ExperimentRun,
    Timing,
    default_group,
    describe,
    find_experiment,
    known_experiments,
    make_row,
)
from ttaps.evaluation.store import Store
from ttaps.model import as_network, eval_mode
from ttaps.model.checkpoint import Model
from ttaps.progress import bar
from ttaps.rng import derive_seed
from ttaps.tuning.choice import Option, Seen, fit_temperature, options
from ttaps.tuning.space import variants
from ttaps.tuning.together import adapt_together

SEVERITIES = (0, 1, 2, 3, 4, 5)
FRESH = 0.6  # images to confirm the choice on, as a share of those that it was made on
FITTED = 600  # adapted images that a temperature is fitted on
BLOCK = 64


def validation_benchmark(model: Model, data: str | Path | ImageSet | None, root: Path | None) -> Benchmark:
    """Return the model's validation images, the held-out fifth of its training set, or all of other ``data``,
    clean (severity 0) and under corruptions outside the test set."""
    own = str(model.info.get("data", ""))
    if isinstance(data, ImageSet):
        images = data
    elif not (name := str(data or own)):
        raise UsageError(f"Model '{model.name}' does not record its training data: give it with --data.")
    else:
        images = load_set(name, root, split="train", size=model.image_size)
    places = np.arange(len(images))
    if not isinstance(data, ImageSet) and (not data or str(data) == own or Path(data).resolve() == Path(own).resolve()):
        places = split_train(len(images))[1]
    images = replace(images, images=images.images[places], labels=images.labels[places])
    clean = clean_benchmark(images)

    def pixels(item: Item) -> NDArray[np.uint8]:
        image = clean.pixels(item)
        if not item.severity:
            return image
        index = places[item.image : item.image + 1]
        return corrupt_set(image.transpose(1, 2, 0)[None], item.corruption, item.severity, VALIDATION_SEED, index)[
            0
        ].transpose(2, 0, 1)

    name = f"{clean.name}-val-c"
    return replace(clean, name=name, corruptions=TUNING_CORRUPTIONS, severities=SEVERITIES, pixels=pixels)


class Tuner:
    """Shared by all rungs: the model, its images in order, and the store."""

    def __init__(self, model: Model, data: Benchmark, images: int, seed: int, store: Store) -> None:
        model = replace(model, presets={})  # specs name the package's presets, however often a model is tuned
        self.model, self.data, self.seed, self.store = model, data.aligned_to(model), seed, store
        self.network = as_network(model.network)
        conditions, wanted = len(data.corruptions) * len(data.severities), math.ceil(images * (1 + FRESH))
        # Rather many images under one condition each than few under all: they tell more.
        count = max(1, min(conditions, conditions * len(data.labels) // wanted))
        plan = Plan(self.data.labels, data.corruptions, data.severities, shard=Shard(0, count))
        items = list(islice(plan, wanted))
        cut = round(len(items) / (1 + FRESH))
        while 0 < cut < len(items) and items[cut].image == items[cut - 1].image:  # no image on both sides
            cut += 1
        self.plan, self.items, self.fresh = plan, items[:cut], items[cut:]
        self.known = known_experiments(store)
        store.describe_model(model.fingerprint, {"model": model.facts, "objective": model.objective}, model.classes)

    def run_of(self, method: Method) -> ExperimentRun:
        """Return a method's experiment, with its stored rows."""
        experiment = describe(self.model, self.data, method, self.seed, self.plan)
        number = find_experiment(self.known, experiment) or self.store.experiment(experiment)
        about = number, experiment.spec, method, self.seed, self.model, self.data
        run = ExperimentRun(*about, Coverage(self.plan), self.store, Timing())
        run.catch_up()
        return run

    def evaluate(self, candidates: Sequence[Method], items: Sequence[Item], title: str) -> None:
        """Store the rows of all variants of candidates on images; stored rows are not computed again."""
        runs = [[self.run_of(variant) for variant in variants(candidate)] for candidate in candidates]
        with bar() as progress:
            task = progress.add_task(title, total=len(items), note="")
            for batch in _batches(items, default_group(self.network)):
                missing = [sorted({p for run in own for p in run.coverage.missing(batch)}) for own in runs]
                if places := sorted(set().union(*missing)):
                    due = [number for number, some in enumerate(missing) if some]
                    self._adapt([candidates[n] for n in due], [runs[n] for n in due], [batch[p] for p in places])
                progress.update(task, advance=len(batch))

    def _adapt(self, candidates: Sequence[Method], runs: list[list[ExperimentRun]], items: list[Item]) -> None:
        images = self.data.read(items).to(self.device)
        keys, began = [derive_seed(self.seed, self.data.name, *item) for item in items], perf_counter()
        found = adapt_together(candidates, self.network, images, keys)
        seconds = (perf_counter() - began) / len(items) / sum(map(len, found))
        for own, traces in zip(runs, found, strict=True):
            for run, trace in zip(own, traces, strict=True):
                pairs = zip(items, trace.cpu().numpy(), strict=True)
                run.save([make_row(item, int(self.data.labels[item.image]), row, seconds) for item, row in pairs])

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return next(self.network.parameters()).device

    @cached_property
    @torch.no_grad()
    def seen(self) -> Seen:
        """Predict all images once, with the source model."""
        scores, confidence = [], []
        with eval_mode(self.network), bar() as progress:
            task = progress.add_task("Distances", total=len(self.items), note="")
            for batch in _batches(self.items, BLOCK):
                z = self.network.project(self.data.read(batch).to(self.device))
                scores.append(nearest_distance(self.network.scores(z)).cpu())
                confidence.append(self.network.classifier(z).softmax(-1).amax(1).cpu())
                progress.update(task, advance=len(batch))
        distance = torch.cat(scores).double().numpy()
        labels = self.data.labels[[item.image for item in self.items]]
        quantiles = np.quantile(distance[[item.severity == 0 for item in self.items]], np.linspace(0, 1, 101))
        return Seen(self.items, labels, torch.cat(confidence).double().numpy(), distance, quantiles)

    def options(self, candidates: Sequence[Method], count: int) -> list[Option]:
        """Return all options of candidates on the first ``count`` images, from their stored rows."""
        whole = self.seen
        parts = (whole.labels[:count], whole.confidence[:count], whole.distance[:count])
        seen, found = Seen(self.items[:count], *parts, whole.quantiles), list[Option]()
        for number, candidate in enumerate(candidates):
            for variant in variants(candidate):
                found += options(variant, number, self.predictions(variant, self.items[:count]), seen)
        return found

    def predictions(self, method: Method, items: Sequence[Item]) -> NDArray[np.int64]:
        """Return the stored predictions before and after every step, (images, steps + 1)."""
        query = "SELECT corruption, severity, image, trace FROM results WHERE experiment = ?"
        stored = {tuple(key): trace for *key, trace in self.store.select(query, [self.run_of(method).number])}
        traces = np.stack([np.frombuffer(stored[tuple(item)], dtype="<i4") for item in items])
        return traces[:, : traces.shape[1] // 3].astype(np.int64)

    def calibrated(self, method: Any) -> Method:
        """Return a method with the temperature fitted to the images it adapts to."""
        seen = self.seen
        near = getattr(method, "shift_threshold", 0.0)
        taken = np.flatnonzero((seen.confidence < method.confidence_threshold) & (seen.distance >= near))[:FITTED]
        probabilities = []
        with bar() as progress:
            task = progress.add_task("Temperature", total=len(taken), note="")
            for batch in _batches(taken.tolist(), default_group(self.network)):
                items = [self.items[place] for place in batch]
                keys = [derive_seed(self.seed, self.data.name, *item) for item in items]
                images = self.data.read(items).to(self.device)
                probabilities.append(method.adapt(self.network, images, keys)[:, -1].cpu())
                progress.update(task, advance=len(batch))
        after = torch.cat(probabilities).double().numpy() if probabilities else np.ones((0, 2))
        return replace(method, temperature=fit_temperature(after, seen.labels[taken]))

    def confirm(self, methods: Sequence[Method]) -> pd.DataFrame:
        """Evaluate methods one by one on fresh images, as ``ttaps evaluate`` does, and return their rows."""
        runs = [self.run_of(method) for method in methods]
        with bar() as progress:
            task = progress.add_task("Confirming", total=len(self.fresh), note="")
            for batch in _batches(self.fresh, default_group(self.network)):
                images = None
                for run in runs:
                    if places := run.coverage.missing(batch):
                        images = run.read(batch) if images is None else images
                        run.save(run.adapt([batch[place] for place in places], images[places]))
                progress.update(task, advance=len(batch))
        rows = read_rows(self.store, [run.number for run in runs])
        fresh = {(item.corruption, item.severity, item.image) for item in self.fresh}
        keys = zip(rows["corruption"], rows["severity"], rows["image"], strict=True)
        return rows[[key in fresh for key in keys]].assign(
            place=lambda found: found["experiment"].map({run.number: n for n, run in enumerate(runs)})
        )


def _batches(items: Sequence[Any], size: int) -> Iterator[Any]:
    return (items[first : first + size] for first in range(0, len(items), size))
