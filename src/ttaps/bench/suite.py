"""What ``ttaps bench`` measures, under the names it prints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ttaps.adaptation import Ttaps, make_method
from ttaps.adaptation.engine import descend
from ttaps.api import load
from ttaps.bench.measure import Times, interleaved, multiply, operations, peak_memory, ratio
from ttaps.bench.naive import naive
from ttaps.bench.pillow import pillow_views
from ttaps.data.sample import read_sample, read_sample_train
from ttaps.keys import generator
from ttaps.model import Cut, Network
from ttaps.training.config import TrainConfig
from ttaps.training.loop import Run
from ttaps.training.split import Split

GROWTH = (1, 4, 16, 64)
TRAIN_BATCH = 64


def run(model: str, rounds: int, done: Callable[[], object] = lambda: None) -> dict[str, Any]:
    """Measure everything on an embedded model and the embedded images."""
    network = load(model).network
    exact, fast = Ttaps(), make_method("ttaps:fast")
    assert isinstance(fast, Ttaps)
    threads = torch.get_num_threads()
    images = torch.from_numpy(read_sample("gaussian_noise").images)
    few, many = images[: 2 * threads], images[: 16 * threads]
    drawn = exact.views.sample(640, 32, generator("bench"))
    training = _training_run(network)
    product = multiply()
    times = interleaved(
        {
            "multiply": product,
            "naive": lambda: naive(network, images[:1], exact, 0),
            "exact": lambda: exact.adapt(network, few, range(len(few))),
            "fast": lambda: fast.adapt(network, many, range(len(many))),
            "pillow": lambda: pillow_views(images[:1], drawn),
            "views": lambda: exact.views.apply(images[:1], drawn),
            "train": lambda: training.step(0),
            **{f"{count} images": _one_step(network, images[:count]) for count in GROWTH},
        },
        rounds,
        done,
    )
    per_image = {
        name: _scaled(times[name], count) for name, count in (("naive", 1), ("exact", len(few)), ("fast", len(many)))
    }
    rate = operations(product) / min(times["multiply"].seconds)
    return {
        "threads": threads,
        "rounds": rounds,
        "naive_over_exact": ratio(per_image["naive"], per_image["exact"]),
        "naive_over_fast": ratio(per_image["naive"], per_image["fast"]),
        "exact_utilisation": exact_operations(network, exact, images[:1]) / per_image["exact"].median / rate,
        "views_per_second_ratio": ratio(times["pillow"], times["views"]),
        "train_utilisation": operations(lambda: training.step(0)) / times["train"].median / rate,
        "seconds_per_image": {name: {"median": t.median, "spread": t.spread} for name, t in per_image.items()},
        "seconds_of_one_step": {count: times[f"{count} images"].median for count in GROWTH},
        "peak_memory_mb": {name: peak_memory(_in_own_process, model, name) for name in per_image},
        "multiply_gflops": rate / 1e9,
    }


def exact_operations(network: Network, method: Ttaps, image: Tensor) -> int:
    """Operations that adapting one image needs by count: frozen part once over all views, and every step on the adapted part."""
    cut = Cut(network, method.scope)
    views = method.draw(image, 0)[: 2 * method.copies]
    features = cut.frozen(views)
    frozen = operations(lambda: cut.frozen(views))
    step = operations(
        lambda: list(descend(lambda w, _: method.loss(network.scores(cut.adapted(features, w))), cut.weights(), 1, 0.1))
    )
    return method.steps * (frozen + step)


def _scaled(times: Times, count: int) -> Times:
    return Times(tuple(seconds / count for seconds in times.seconds))


def _one_step(network: Network, images: Tensor) -> Callable[[], object]:
    method = replace(Ttaps(), steps=1)
    return lambda: method.adapt(network, images, range(len(images)))


def _training_run(network: Network) -> Run:
    """Return a run of JT+ENT with the paper's settings that can be asked for single steps; nothing is written."""
    config = TrainConfig(batch=TRAIN_BATCH, model=network.config)
    return Run(config, Path("unused"), Split.of(read_sample_train()))


def _in_own_process(model: str, mode: str) -> None:
    network, image = load(model).network, torch.from_numpy(read_sample("gaussian_noise").images[:1])
    if mode == "naive":
        naive(network, image, Ttaps(steps=1), 0)
    else:
        make_method("ttaps" if mode == "exact" else "ttaps:fast").adapt(network, image, [0])
