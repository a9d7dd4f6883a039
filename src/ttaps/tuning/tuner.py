"""The images of tuning, and candidates on them: rows are stored as computed, and options are derived from stored rows."""

import math
from collections.abc import Sequence
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
from ttaps.data.corruptions import SEVERITIES, TUNING_CORRUPTIONS
from ttaps.errors import UsageError
from ttaps.evaluation.benchmark import VALIDATION_SEED, Benchmark, clean_benchmark, with_corruptions
from ttaps.evaluation.frame import read_rows
from ttaps.evaluation.plan import Item, Shard, batched
from ttaps.evaluation.run import (
    ExperimentRun,
    Timing,
    default_group,
    known_experiments,
    make_row,
    open_run,
    run_episodic,
)
from ttaps.evaluation.store import Store, decode_traces
from ttaps.model import as_network, eval_mode
from ttaps.model.checkpoint import Model
from ttaps.progress import bar
from ttaps.tuning.candidates import Candidate, adapt_candidates
from ttaps.tuning.choice import Option, Seen, fit_temperature, options

FRESH = 0.6  # images to confirm the choice on, as a share of those that it was made on
FITTED = 600  # adapted images that a temperature is fitted on
BLOCK = 64


def validation_benchmark(model: Model, data: str | Path | ImageSet | None, root: Path | None) -> Benchmark:
    """Return the model's validation images, the held-out fifth of its training set, or all of other ``data``,
    clean (severity 0) and under corruptions outside the test set."""
    own = str(model.info.get("data", ""))
    if isinstance(data, ImageSet):
        images, places = data, np.arange(len(data))
    elif not (name := str(data or own)):
        raise UsageError(f"Model '{model.name}' does not record its training data: give it with --data.")
    else:
        images = load_set(name, root, split="train", size=model.image_size)
        places = split_train(len(images))[1] if Path(name).resolve() == Path(own).resolve() else np.arange(len(images))
    clean = clean_benchmark(images.part(places))
    found = with_corruptions(clean, TUNING_CORRUPTIONS, (0, *SEVERITIES), VALIDATION_SEED, places.tolist())
    return replace(found, name=f"{clean.name}-val-c")


class Tuner:
    """Shared by all rungs: the model, its images in order, and the store."""

    def __init__(self, model: Model, data: Benchmark, images: int, seed: int, store: Store) -> None:
        model = replace(model, presets={})  # specs name the package's presets, however often a model is tuned
        self.model, self.data, self.seed, self.store = model, data.aligned_to(model), seed, store
        self.network = as_network(model.network)
        self.device = self.network.prototypes.device
        conditions, wanted = len(data.corruptions) * len(data.severities), math.ceil(images * (1 + FRESH))
        # Rather many images under one condition each than few under all: they tell more.
        count = max(1, min(conditions, conditions * len(data.labels) // wanted))
        self.plan = self.data.plan(shard=Shard(0, count))
        items = list(islice(self.plan, wanted))
        cut = round(len(items) / (1 + FRESH))
        while 0 < cut < len(items) and items[cut].image == items[cut - 1].image:  # no image on both sides
            cut += 1
        self.items, self.fresh = items[:cut], items[cut:]
        self.known = known_experiments(store)
        store.describe_model(model.fingerprint, {"model": model.facts, "objective": model.objective}, model.classes)

    def run_of(self, method: Method) -> ExperimentRun:
        """Return a method's experiment, with its stored rows."""
        return open_run(self.store, self.known, self.model, self.data, method, self.seed, self.plan, Timing())

    def evaluate(self, candidates: Sequence[Candidate], items: Sequence[Item], title: str) -> None:
        """Store the rows of all variants of candidates on images; stored rows are not computed again."""
        runs = [[self.run_of(variant) for variant in candidate.variants] for candidate in candidates]
        with bar() as progress:
            task = progress.add_task(title, total=len(items), note="")
            for batch in batched(items, default_group(self.network)):
                missing = [sorted({p for run in own for p in run.coverage.missing(batch)}) for own in runs]
                if places := sorted(set().union(*missing)):
                    due = [number for number, some in enumerate(missing) if some]
                    self._adapt([candidates[n] for n in due], [runs[n] for n in due], [batch[p] for p in places])
                progress.update(task, advance=len(batch))

    def _adapt(self, candidates: Sequence[Candidate], runs: list[list[ExperimentRun]], items: list[Item]) -> None:
        images, began = self.data.read(items).to(self.device), perf_counter()
        found = adapt_candidates(candidates, self.network, images, self.data.keys(items, self.seed))
        seconds = (perf_counter() - began) / len(items) / sum(map(len, found))
        for own, traces in zip(runs, found, strict=True):
            for run, trace in zip(own, traces, strict=True):
                pairs = zip(items, trace.cpu().numpy(), strict=True)
                run.save([make_row(item, int(self.data.labels[item.image]), row, seconds) for item, row in pairs])

    @cached_property
    @torch.no_grad()
    def seen(self) -> Seen:
        """Predict all images once, with the source model."""
        scores, confidence = [], []
        with eval_mode(self.network), bar() as progress:
            task = progress.add_task("Distances", total=len(self.items), note="")
            for batch in batched(self.items, BLOCK):
                z = self.network.project(self.data.read(batch).to(self.device))
                scores.append(nearest_distance(self.network.scores(z)).cpu())
                confidence.append(self.network.classifier(z).softmax(-1).amax(1).cpu())
                progress.update(task, advance=len(batch))
        distance = torch.cat(scores).double().numpy()
        labels = self.data.labels[[item.image for item in self.items]]
        quantiles = np.quantile(distance[[item.severity == 0 for item in self.items]], np.linspace(0, 1, 101))
        return Seen(self.items, labels, torch.cat(confidence).double().numpy(), distance, quantiles)

    def options(self, candidates: Sequence[Candidate], count: int) -> list[Option]:
        """Return all options of candidates on the first ``count`` images, from their stored rows."""
        whole = self.seen
        parts = (whole.labels[:count], whole.confidence[:count], whole.distance[:count])
        seen, found = Seen(self.items[:count], *parts, whole.quantiles), list[Option]()
        for number, candidate in enumerate(candidates):
            for variant in candidate.variants:
                found += options(variant, number, self.predictions(variant, self.items[:count]), seen)
        return found

    def predictions(self, method: Method, items: Sequence[Item]) -> NDArray[np.int64]:
        """Return the stored predictions before and after every step, (images, steps + 1)."""
        query = "SELECT corruption, severity, image, trace FROM results WHERE experiment = ?"
        stored = {tuple(key): trace for *key, trace in self.store.select(query, [self.run_of(method).number])}
        return decode_traces([stored[item] for item in items])[0].astype(np.int64)

    def calibrated(self, method: Method) -> Method:
        """Return a method with the temperature fitted to the images it adapts to."""
        seen = self.seen
        taken = np.flatnonzero(seen.taken(method.confidence_threshold, method.shift_threshold))[:FITTED]
        probabilities = []
        with bar() as progress:
            task = progress.add_task("Temperature", total=len(taken), note="")
            for items in batched((self.items[place] for place in taken), default_group(self.network)):
                images, keys = self.data.read(items).to(self.device), self.data.keys(items, self.seed)
                probabilities.append(method.adapt(self.network, images, keys)[:, -1].cpu())
                progress.update(task, advance=len(items))
        after = torch.cat(probabilities).double().numpy() if probabilities else np.ones((0, 2))
        fitted: dict[str, Any] = {"temperature": fit_temperature(after, seen.labels[taken])}
        return replace(method, **fitted)

    def confirm(self, methods: Sequence[Method]) -> pd.DataFrame:
        """Evaluate methods one by one on fresh images, as ``ttaps evaluate`` does, and return their rows."""
        runs = [self.run_of(method) for method in methods]
        with bar() as progress:
            missing = sum(len(run.coverage.missing(self.fresh)) for run in runs)
            task = progress.add_task("Confirming", total=missing, note="")
            for run, found in run_episodic(runs, self.fresh, default_group(self.network)):
                run.save(found)
                progress.update(task, advance=len(found))
        rows = read_rows(self.store, [run.number for run in runs])
        fresh = rows.merge(pd.DataFrame(self.fresh))
        return fresh.assign(place=fresh["experiment"].map({run.number: place for place, run in enumerate(runs)}))
