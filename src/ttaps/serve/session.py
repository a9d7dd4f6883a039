"""A loaded model and all that can be asked of it. Runs on the threads of the pool; nothing here knows of HTTP."""

import json
import shlex
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ttaps import __version__
from ttaps.adaptation import Method, Result, ensure_supported
from ttaps.adaptation.engine import CarriedState
from ttaps.adaptation.spec import method_spec, parse_method
from ttaps.api import adapt_prepared, content_key, load, prepare
from ttaps.data.corruptions import check_corruption, corrupt_one
from ttaps.data.sample import FOLDER, SAMPLE_CORRUPTIONS, read_sample
from ttaps.errors import UsageError
from ttaps.methods import METHOD_TABLE
from ttaps.model import as_network
from ttaps.rng import derive_seed
from ttaps.serve.images import decode, png
from ttaps.serve.layout import layout, place
from ttaps.serve.methods import PAGE_SETTINGS, choose, default_method, describe_methods
from ttaps.serve.pool import Job
from ttaps.serve.results import ResultsFolder, outcome_of
from ttaps.serve.schema import Subject

VIEWS_SHOWN = 16
Watch = Callable[[str, dict[str, Any]], object]


def ignore(name: str, data: dict[str, Any]) -> None:
    """Watch nothing."""


@dataclass(frozen=True, eq=False)
class SeenImage:
    """What the network sees, (1, 3, H, W), and what is known of it."""

    image: Tensor
    label: str | None
    key: int
    """Where the randomness of its views comes from."""
    python: tuple[str, ...]
    """Lines that make ``image``."""
    data: str = ""
    """Options of ``ttaps evaluate`` that choose it, for an image of a data set."""


class Session:
    """A model that is served, on one device."""

    def __init__(self, name: str, device: str = "cpu", results: ResultsFolder | None = None) -> None:
        self.name, self.device, self.results = name, device, results
        self.model = load(name)
        self.network, self.classes = as_network(self.model.network).to(device), self.model.classes
        self.size = self.model.image_size
        self.samples, self.indices = read_sample(), json.loads((FOLDER / "indices.json").read_text())["test"]
        self.default_method, self.methods = default_method(self.model), describe_methods(self.model)
        self.page_settings = PAGE_SETTINGS.get(self.default_method, {})
        self.has_map = self.model.objective in ("", *METHOD_TABLE["ttaps"].trained_by)
        # The classifier's input is z, whatever the method; each image is adapted to on a thread of its own.
        self.last = threading.local()
        self.network.classifier.register_forward_hook(lambda _, z, logits: setattr(self.last, "z", z[0].detach()))

    def facts(self) -> dict[str, Any]:
        """Return what is served."""
        prototypes = self.network.config.num_prototypes if self.has_map else 0
        facts = {name: getattr(self.model, name) for name in ("name", "fingerprint", "objective", "classes")}
        facts |= {"image_size": self.size, "num_prototypes": prototypes, "device": self.device}
        facts |= {"default_method": self.default_method, "page_settings": self.page_settings}
        return {**facts, "version": __version__}

    @cached_property
    def points(self) -> NDArray[np.float64]:
        """The places of the prototypes on the map."""
        return layout(self.network.prototypes.detach().cpu().numpy())

    @torch.no_grad()
    def map(self) -> list[dict[str, Any]] | None:
        """Return every prototype's place, and the class that the classifier gives it."""
        if not self.has_map:
            return None
        best = self.network.classifier(self.network.prototypes).softmax(-1).cpu().max(-1)
        each = zip(self.points.tolist(), best.indices.tolist(), best.values.tolist(), strict=True)
        return [{"x": x, "y": y, "class": self.classes[label], "confidence": sure} for (x, y), label, sure in each]

    @cached_property
    def start(self) -> dict[str, Any]:
        """An image for the page to start with: of the first of each class, the one that what the page begins with fixes most clearly.

        Under noise if there is one, else under the first corruption that has one; else the one whose probabilities change most."""
        method = parse_method(self.default_method, self.page_settings, self.model.presets)
        best = (-1.0, "", 0)
        known = set(self.samples.classes) <= set(self.classes)
        for name in ("gaussian_noise", *SAMPLE_CORRUPTIONS) if known else ("gaussian_noise",):
            images, _ = prepare(read_sample(name).images[: len(self.samples.classes)], self.size)
            found = adapt_prepared(self.model, images, method, [derive_seed(0, content_key(image)) for image in images])
            for number, label in enumerate(self.samples.classes):
                gain = float((found.probabilities[number] - found.before[number]).abs().sum())
                is_fixed = found[number].label == label != self.classes[int(found.before[number].argmax())]
                best = max(best, (gain + 2 * is_fixed, name, number))  # a gain is at most 2
            if best[0] >= 2:
                break
        return {"sample": best[2], "corruption": best[1], "severity": 5}

    def see(self, subject: Subject, seed: int) -> SeenImage:
        """Return what the network will see of an image."""
        if subject.label is not None and subject.label not in self.classes:
            raise UsageError(f"The model has no class '{subject.label}'; it knows {', '.join(self.classes)}.")
        if subject.result is not None:
            return self._stored(subject, seed)
        severity = 5 if subject.severity is None else subject.severity
        damaged = subject.corruption is not None and severity > 0
        if subject.corruption is not None:
            check_corruption(subject.corruption, severity or 1)
        if subject.sample is None:
            pixels, label, index = decode(subject.image or "", self.size), subject.label, 0
            lines = ['image = "image.png"  # as the network sees it']
        else:
            if subject.sample >= len(self.indices):
                raise UsageError(f"There is no embedded image {subject.sample}: they are 0 to {len(self.indices) - 1}.")
            pixels, index = self.samples.images[subject.sample], self.indices[subject.sample]
            label = self.samples.classes[int(self.samples.labels[subject.sample])]
            image = f"read_sample().images[{subject.sample}]"
            lines = ["from ttaps.data.sample import read_sample", f"image = {image}"]
            if damaged:
                call = f'corrupt_one(image, "{subject.corruption}", {severity}, {seed}, {index})'
                lines = ["from ttaps.data.corruptions import corrupt_one", *lines, f"image = {call}"]
        if damaged:
            name = str(subject.corruption)
            pixels = corrupt_one(pixels, name, severity, seed, index)
        images, _ = prepare(pixels, self.size)
        known = subject.label or (label if label in self.classes else None)
        return SeenImage(images, known, derive_seed(seed, content_key(images[0])), tuple(lines))

    def _stored(self, subject: Subject, seed: int) -> SeenImage:
        """Return an image of the results folder, with the key that its evaluation gave it: the result is the stored one."""
        wanted = subject.result
        if wanted is None or self.results is None:
            raise UsageError("There are no results here: start ttaps serve with --results FOLDER.")
        if subject.corruption is not None:
            raise UsageError("An image of the results folder is corrupted already: leave corruption out.")
        image, label, data = self.results.image(wanted)
        name, severity, number = wanted.corruption, wanted.severity, wanted.image
        chosen = f" --corruptions {name} --severity {severity}" if severity else ""
        only = f', corruptions=["{name}"], severities=[{severity}]' if severity else ""
        lines = ["from ttaps.evaluation.benchmark import Item, open_benchmark"]
        lines.append(f'image = open_benchmark("{data}"{only}).read([Item("{name}", {severity}, {number})])')
        known, key = label if label in self.classes else None, derive_seed(seed, data, name, severity, number)
        return SeenImage(image, known, key, tuple(lines), f"--data {data}{chosen}")

    def recipe(self, seen: SeenImage, spec: str, seed: int) -> dict[str, str]:
        """Return the command and the Python that give the same numbers."""
        model, method = json.dumps(self.name), json.dumps(spec)
        call = f"ttaps.adapt(ttaps.load({model}), image, {method}, seed={seed})"
        command = f"ttaps adapt {shlex.quote(self.name)} image.png --method {shlex.quote(spec)} --seed {seed}"
        lines = list(seen.python)
        if seen.data:
            lines = ["from ttaps.adaptation.spec import parse_method", *lines]
            lines.append(f"model = ttaps.load({model})")
            call = f"parse_method({method}, presets=model.presets).adapt(model.network, image, [{seen.key}])"
            command = (
                f"ttaps evaluate {shlex.quote(self.name)} {seen.data} --seeds {seed} --methods {shlex.quote(spec)}"
            )
        return {"command": command, "python": "\n".join(["import ttaps", *lines, f"print({call})"])}

    def choose(self, spec: str | None) -> tuple[Method, str]:
        """Return the method of a spec, which the model must support, and its canonical spec."""
        method = choose(spec or self.default_method, self.model.presets)
        ensure_supported(method, self.network, self.model.objective)
        return method, method_spec(method, self.model.presets)

    def damaged(self, subject: Subject) -> dict[str, Any]:
        """Return what the network sees."""
        seen = self.see(subject, subject.seed or 0)
        return {"image": png(seen.image[0]), "size": [self.size, self.size], "label": seen.label}

    def adapt(self, subject: Subject, spec: str | None, seed: int, job: Job, watch: Watch = ignore) -> dict[str, Any]:
        """Adapt to one image exactly as ``ttaps.adapt`` does, and tell ``watch`` of each step."""
        method, spec = self.choose(spec)
        seen = self.see(subject, seed)
        shown = {"spec": spec, **self.recipe(seen, spec, seed), "image": png(seen.image[0]), "true_label": seen.label}
        watch("start", {"classes": self.classes, "steps": method.steps, **shown})
        steps: list[dict[str, Any]] = []
        views: list[str] = []

        def tell(loss: float | None, probabilities: Tensor, point: Any, nearest: Any) -> None:
            step = {"step": len(steps), "probabilities": probabilities.tolist(), "loss": loss}
            steps.append({**step, "point": point, "nearest": nearest})
            watch("step", steps[-1])

        def observe(loss: float | None, probabilities: Tensor) -> None:
            job.check()
            if len(steps) == 1 and (drawn := method.draw_views(seen.image, seen.key)) is not None:
                views.extend(map(png, drawn[:VIEWS_SHOWN].numpy()))
                watch("views", {"views": views})
            tell(loss, probabilities[0], *self.locate(self.last.z))

        began = perf_counter()
        trace = method.adapt(
            self.network, seen.image.to(self.device), [seen.key], CarriedState(observer=observe)
        ).cpu()[0]
        seconds = perf_counter() - began
        while len(steps) < len(trace):  # not told of: steps that were not taken, and all steps on a GPU
            last = steps[-1] if steps else {"point": None, "nearest": None}
            tell(None, trace[len(steps)], last["point"], last["nearest"])
        found = Result(trace, self.classes).to_dict()
        found["outcome"] = outcome_of(seen.label, found["label_before"], found["label"])
        for name, own in (("losses", "loss"), ("path", "point"), ("nearest", "nearest")):
            entries = [step[own] for step in steps]
            found[name] = entries if own == "loss" or None not in entries else None
        answer = {**found, "views": views, "seconds": seconds, **shown}
        watch("done", answer)
        return answer

    def locate(self, z: Tensor) -> tuple[dict[str, float] | None, list[int] | None]:
        """Return where z is on the map, and its nearest prototypes."""
        if not self.has_map or not bool(z.isfinite().all()):
            return None, None
        return place(self.network.scores(z).detach().cpu().numpy(), self.points)
