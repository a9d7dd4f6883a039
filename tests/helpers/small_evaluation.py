"""An evaluation made small: an untrained network, random pictures and a method of two steps.

As a program, ``python small_evaluation.py FOLDER [GROUPS]`` evaluates into FOLDER, slowly, and waits to be killed after so many groups.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from ttaps.adaptation import Source, Ttaps
from ttaps.errors import TtapsError
from ttaps.evaluate.benchmark import Benchmark
from ttaps.evaluate.plan import Item
from ttaps.evaluate.run import evaluate
from ttaps.evaluate.store import Row, Store
from ttaps.model import ModelConfig, Network
from ttaps.model.checkpoint import Model, fingerprint

CLASSES = ("cat", "dog", "owl")
CORRUPTIONS = ("fog", "snow", "glass_blur")
METHODS = (Source(), Ttaps(steps=2, num_pairs=2, lr=3.0))
GROUP = 4


def small_model(size: int = 8) -> Model:
    """Return an untrained network for pictures of so many pixels a side, always the same."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        shape = ModelConfig(num_classes=3, width=4, num_groups=4, depth=8, num_prototypes=5, classifier_scale=30.0)
        network = Network(replace(shape, image_size=size))
    return Model(network.eval(), CLASSES, "small", fingerprint(network))


def small_benchmark(images: int = 6) -> Benchmark:
    """Return random pictures, always the same, each darker under every further corruption."""
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (images, 3, 8, 8), dtype=np.uint8)
    labels = rng.integers(0, 3, images)

    def pixels(item: Item) -> NDArray[np.uint8]:
        darker: NDArray[np.uint8] = pictures[item.image] // np.uint8(2 + CORRUPTIONS.index(item.corruption))
        return darker

    return Benchmark("small", CLASSES, labels, CORRUPTIONS, (5,), "0", pixels)


def results(folder: Path) -> dict[tuple[str, int], list[Row]]:
    """Return all rows by method and seed; only the time they took is left out."""
    with Store(folder, write=False) as store:
        return {
            (experiment.method, experiment.seed): [replace(row, seconds=0.0) for row in store.rows(number)]
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
    rests = chain(repeat(0.05, int(groups) - 1), repeat(300.0))
    evaluate(
        small_model(),
        small_benchmark(),
        METHODS,
        (0, 1),
        folder=Path(folder),
        group=GROUP,
        watch=lambda experiment, rows: time.sleep(next(rests)),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
