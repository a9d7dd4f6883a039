"""Stored evaluations made by hand: every image's outcome is written down, so that a test knows every number."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ttaps.adaptation.spec import method_spec, parse_method
from ttaps.evaluation.store import Experiment, Row, Store
from ttaps.report.columns import load_results
from ttaps.report.tables import Metric, make_tables

Traces = Mapping[str, Sequence[str]]
"""For each corruption a word per image: its letters say whether it is right (r) or wrong (w) before and after each step."""

FOG_SNOW: Traces = {
    "fog": ["ww", "wr", "wr", "wr", "rw", "rr", "rr", "rr", "ww", "ww"],
    "snow": ["rr", "rr", "rr", "rr", "rr", "wr", "wr", "ww", "ww", "ww"],
}


def fill(
    folder: Path,
    traces: Traces,
    method: str = "ttaps",
    *,
    objective: str | None = "jt+ent",
    model: str = "net",
    training_seed: int = 0,
    seed: int = 0,
    prototypes: int = 300,
    data: str = "cifar10-c",
    digest: str = "d1",
    severity: int = 5,
    confidence: float = 0.5,
    image_size: int = 32,
    protocol: str | None = None,
    **changed: Any,
) -> None:
    """Add an experiment; its model's fingerprint is made of what the model is."""
    fingerprint = f"{model}-{objective}-{prototypes}-{training_seed}"
    made = parse_method(method, changed)
    settings = json.dumps(dataclasses.asdict(made), sort_keys=True, separators=(",", ":"))
    experiment = Experiment(
        model, fingerprint, data, digest, method_spec(made), settings, seed, protocol or made.protocol
    )
    with Store(folder) as store:
        if objective:
            network = {"num_prototypes": prototypes, "image_size": image_size}
            store.describe_model(fingerprint, {"objective": objective, "seed": training_seed, "model": network})
        number = store.experiment(experiment)
        for corruption, words in traces.items():
            rows = [_row(corruption, severity, image, word, confidence) for image, word in enumerate(words)]
            store.add(number, rows)


def only_table(folder: Path, metric: Metric = "accuracy", published: bool = True) -> Any:
    """Return the table of a folder that has one; as Any, for pandas' own types are too wide for cells that a test knows."""
    (table,) = make_tables(load_results([folder]), metric, published)
    return table


def before(traces: Traces) -> Traces:
    """Return what the source model alone would have been."""
    return {corruption: [word[0] for word in words] for corruption, words in traces.items()}


def accuracy(words: Sequence[str], step: int = -1) -> float:
    """Count by hand."""
    return 100 * sum(word[step] == "r" for word in words) / len(words)


def _row(corruption: str, severity: int, image: int, word: str, confidence: float) -> Row:
    label = image % 10
    predictions = tuple(label if letter == "r" else (label + 1) % 10 for letter in word)
    sure = (confidence,) * len(word)
    return Row(corruption, severity, image, label, predictions, sure, sure, 0.25)
