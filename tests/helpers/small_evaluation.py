"""An evaluation made small: an untrained network, random images and a method of two steps.

As a program, ``python small_evaluation.py FOLDER [GROUPS]`` evaluates into FOLDER, slowly, and waits to be killed after so many groups.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray

from ttaps.adaptation import Source, Ttaps
from ttaps.errors import TtapsError
from ttaps.evaluation.benchmark import Benchmark
from ttaps.evaluation.plan import Item
from ttaps.evaluation.run import ExperimentRun, evaluate
from ttaps.evaluation.store import Row, Store
from ttaps.model import ModelConfig, Network
from ttaps.model.checkpoint import Model, fingerprint

CLASSES = ("cat", "dog", "owl")
CORRUPTIONS = ("fog", "snow", "glass_blur")
METHODS = (Source(), Ttaps(steps=2, num_pairs=2, lr=3.0))
GROUP = 4


def small_model(size: int = 8) -> Model:
    """Return an untrained network for images of so many pixels a side, always the same."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        shape = ModelConfig(num_classes=3, width=4, num_groups=4, depth=8, num_prototypes=5, classifier_scale=30.0)
        network = Network(replace(shape, image_size=size))
    return Model(network.eval(), CLASSES, "small", fingerprint(network))


def small_benchmark(images: int = 6) -> Benchmark:
    """Return random images, always the same, each darker under every further corruption."""
    rng = np.random.default_rng(0)
    bright = rng.integers(0, 256, (images, 3, 8, 8), dtype=np.uint8)
    labels = rng.integers(0, 3, images)

    def pixels(item: Item) -> NDArray[np.uint8]:
        darker: NDArray[np.uint8] = bright[item.image] // np.uint8(2 + CORRUPTIONS.index(item.corruption))
        return darker

    return Benchmark("small", CLASSES, labels, CORRUPTIONS, (5,), "0", pixels)


def stored_rows(store: Store, experiment: int) -> Iterator[Row]:
    """Yield an experiment's rows in the order of corruption, severity and image."""
    found = "corruption, severity, image, label, trace, seconds, file"
    query = f"SELECT {found} FROM results WHERE experiment = ? ORDER BY corruption, severity, image"
    for *item, trace, seconds, file in store.select(query, [experiment]):
        whole = 12 * (len(trace) // 12)
        numbers = np.frombuffer(trace[:whole], dtype="<i4").reshape(3, -1)
        traces = [tuple(part.tolist()) for part in (numbers[0], *numbers[1:].view("<f4"))]
        yield Row(*[*item, *traces, seconds, file, tuple(np.frombuffer(trace[whole:], dtype="<f4").tolist())])


def results(folder: Path) -> dict[tuple[str, int], list[Row]]:
    """Return all rows by method and seed; only the time they took is left out."""
    with Store(folder, write=False) as store:
        return {
            (experiment.method, experiment.seed): [replace(row, seconds=0.0) for row in stored_rows(store, number)]
            for number, experiment in store.experiments().items()
        }


def stored(folder: Path) -> int:
    """Return how many rows there are so far."""
    try:
        return sum(map(len, results(folder).values()))
    except TtapsError:  # not there yet
        return 0


def main(folder: str, groups: str = "1000") -> None:
    """Evaluate with a rest after every group, and a long one after the last that is wanted."""
    torch.set_num_threads(1)
    rests, save = chain(repeat(0.05, int(groups) - 1), repeat(300.0)), ExperimentRun.save

    def slowly(run: ExperimentRun, rows: list[Row]) -> None:
        save(run, rows)
        time.sleep(next(rests))

    with patch.object(ExperimentRun, "save", slowly):
        evaluate(small_model(), small_benchmark(), METHODS, (0, 1), folder=Path(folder), group=GROUP)


if __name__ == "__main__":
    main(*sys.argv[1:])
