"""Stored results as a tidy table for other programs: one line per experiment, corruption, severity and step, or one per image and step."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from ttaps.evaluate.statistics import wilson
from ttaps.evaluate.store import Store
from ttaps.files import atomic_write

EXPERIMENT = ("data", "digest", "model", "fingerprint", "method", "settings", "seed", "protocol")
ACCURACIES = ("corruption", "severity", "step", "n", "accuracy", "low", "high", "error")
IMAGES = ("corruption", "severity", "image", "step", "label", "prediction", "confidence", "label_probability")
Lines = Iterator[dict[str, str | int | float]]


def export_csv(store: Store, path: Path) -> None:
    """Write accuracy and error in % after every step (0 is before adaptation), with the 95 % interval of the accuracy."""
    _write(store, path, ACCURACIES, accuracy_lines)


def export_images(store: Store, path: Path) -> None:
    """Write every image's prediction after every step; classes are numbers, and -1 is no prediction."""
    _write(store, path, IMAGES, image_lines)


def _write(store: Store, path: Path, columns: Sequence[str], lines: Callable[[Store, int], Lines]) -> None:
    with atomic_write(path) as scratch, scratch.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, (*EXPERIMENT, *columns), lineterminator="\n")
        writer.writeheader()
        for number, experiment in store.experiments().items():
            writer.writerows({**asdict(experiment), **line} for line in lines(store, number))


def image_lines(store: Store, number: int) -> Lines:
    """Yield an experiment's images, each after every step."""
    for row in store.rows(number):
        for step, found in enumerate(zip(row.predictions, row.confidence, row.label_probability, strict=True)):
            values = *row.item, step, row.label, found[0], round(found[1], 6), round(found[2], 6)
            yield dict(zip(IMAGES, values, strict=True))


def accuracy_lines(store: Store, number: int) -> Lines:
    """Yield an experiment's accuracy for each corruption, severity and step."""
    seen: Counter[tuple[str, int, int]] = Counter()
    right: Counter[tuple[str, int, int]] = Counter()
    for row in store.rows(number):
        for step in range(len(row.predictions)):
            place = (row.corruption, row.severity, step)
            seen[place] += 1
            right[place] += row.right(step)
    for (corruption, severity, step), n in seen.items():
        share = right[corruption, severity, step] / n
        low, high = wilson(right[corruption, severity, step], n)
        yield {
            "corruption": corruption,
            "severity": severity,
            "step": step,
            "n": n,
            "accuracy": round(100 * share, 4),
            "low": round(100 * low, 4),
            "high": round(100 * high, 4),
            "error": round(100 * (1 - share), 4),
        }
