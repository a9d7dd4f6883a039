"""What ``ttaps bench`` measures, under the names it prints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ttaps.adaptation import Source, Ttaps, make_method
from ttaps.adaptation.engine import gradient_steps
from ttaps.api import load
from ttaps.bench.measure import Rounds, interleaved, multiply, operations, peak_memory
from ttaps.bench.naive import naive
from ttaps.bench.pillow import pillow_views
from ttaps.data.sample import SAMPLE_CORRUPTIONS, read_sample, read_sample_train
from ttaps.model import Network, SplitNetwork
from ttaps.rng import generator
from ttaps.training.config import TrainConfig
from ttaps.training.data import Split
from ttaps.training.trainer import Trainer

MODES = ("naive", "exact", "fast")
GROWTH, FEW = (1, 4, 16, 64), 8  # numbers of images, and copies of each, so that this takes no longer than the rest
PRODUCTS = (512, 1024, 2048)  # sizes of the yardstick; which is the fastest depends on the machine
TRAIN_BATCH = 64
EXACT_EACH, FAST_EACH = 2, 18  # images for each thread: enough that no thread waits long, and every corruption twice


class Suite:
    """All that is timed, on one model and the embedded images. Each round runs every one of ``jobs``."""

    def __init__(self, model: str) -> None:
        self.model, self.threads = model, torch.get_num_threads()
        loaded = load(model)
        self.network, self.fingerprint = loaded.network, loaded.fingerprint
        self.exact, self.fast = Ttaps(), _fast()
        self.images = sample_images(max(FAST_EACH * self.threads, *GROWTH))
        self.training = training_run(self.network)
        self.jobs = self._jobs()

    def measure(self, rounds: int, done: Callable[[], object] = lambda: None) -> dict[str, Any]:
        """Time all jobs in turn; return ratios by name, the quartiles of each, and what they are made of."""
        times = interleaved(self.jobs, rounds, done)
        each = {"naive": 1, "exact": EXACT_EACH * self.threads, "fast": FAST_EACH * self.threads}
        per_image = {mode: times[mode].times(1 / each[mode]) for mode in MODES}
        rate = max(2 * size**3 / min(times[f"multiply {size}"].values) for size in PRODUCTS)
        ratios = self._ratios(times, per_image, rate)
        return {
            "model": self.model,
            "fingerprint": self.fingerprint,
            "threads": self.threads,
            "rounds": rounds,
            **{name: found.median for name, found in ratios.items()},
            "quartiles": {name: list(found.quartiles) for name, found in ratios.items()},
            "seconds_per_image": {mode: found.plain() for mode, found in per_image.items()},
            "peak_memory_mb": {mode: peak_memory(adapt_one, self.model, mode, self.threads) for mode in MODES},
            "fast_left_alone": self._left_alone(),
            "time_per_image_relative_to_one": {count: found.plain() for count, found in _growth(times).items()},
            "multiply_gflops": rate / 1e9,
        }

    def _jobs(self) -> dict[str, Callable[[], object]]:
        network, images = self.network, self.images
        few, many = images[: EXACT_EACH * self.threads], images[: FAST_EACH * self.threads]
        drawn = self.exact.views.sample(640, images.shape[-1], generator("bench"))
        return {
            **{f"multiply {size}": multiply(size) for size in PRODUCTS},
            "naive": lambda: naive(network, images[:1], self.exact, 0),
            "exact": lambda: self.exact.adapt(network, few, range(len(few))),
            "fast": lambda: self.fast.adapt(network, many, range(len(many))),
            "pillow": lambda: pillow_views(images[:1], drawn),
            "views": lambda: self.exact.views.apply(images[:1], drawn),
            "train": lambda: self.training.step(0),
            **{f"{count} images": _one_step(network, images[:count]) for count in GROWTH},
        }

    def _ratios(self, times: dict[str, Rounds], per_image: dict[str, Rounds], rate: float) -> dict[str, Rounds]:
        exact = exact_operations(self.network, self.exact, self.images[:1])
        train = operations(lambda: self.training.step(0))  # 0.03 % of it makes the views
        return {
            "naive_over_exact": per_image["naive"].over(per_image["exact"]),
            "naive_over_fast": per_image["naive"].over(per_image["fast"]),
            "exact_utilisation": utilisation(exact, per_image["exact"], rate),
            "train_utilisation": utilisation(train, times["train"], rate),
            "views_per_second_ratio": times["pillow"].over(times["views"]),
        }

    def _left_alone(self) -> float:
        """Return the share of the timed images that fast mode was sure of and did not adapt to."""
        count = FAST_EACH * self.threads
        sure = (
            Source().adapt(self.network, self.images[:count], range(count)).amax(-1) >= self.fast.confidence_threshold
        )
        return float(sure.float().mean())


def exact_operations(network: Network, method: Ttaps, image: Tensor) -> int:
    """Count the network's operations that adapting one image needs, whatever makes its views.

    The frozen part once over all views, every step on the adapted part, and the image's prediction before and after every step.
    """
    cut = SplitNetwork(network, method.adapt_params)
    views = method.draw(image, 0)[: 2 * method.num_pairs]
    features, plain, weights = cut.frozen(views), cut.frozen(image), cut.weights()
    frozen, first = operations(lambda: cut.frozen(views)), operations(lambda: cut.frozen(image))
    predict = operations(lambda: network.classifier(cut.adapted(plain, weights)))
    step = operations(
        lambda: list(
            gradient_steps(lambda w, _: method.loss(network.scores(cut.adapted(features, w))), weights, 1, 0.1)
        )
    )
    return first + predict + method.steps * (frozen + step + predict)


def utilisation(needed: int, seconds: Rounds, rate: float) -> Rounds:
    """Return the share of a rate, in operations per second, at which each round did the operations that are needed."""
    return Rounds(tuple(needed / taken / rate for taken in seconds.values))


def sample_images(count: int) -> Tensor:
    """Return embedded test images, each under the next of the embedded corruptions: fast mode's time depends on how hard they are."""
    sets = [read_sample(name).images for name in SAMPLE_CORRUPTIONS]
    return torch.from_numpy(np.stack([sets[place % len(sets)][place % len(sets[0])] for place in range(count)]))


def adapt_one(model: str, mode: str, threads: int) -> None:
    """Adapt to one image, in a process whose memory is watched."""
    torch.set_num_threads(threads)
    network, image = load(model).network, sample_images(1)
    if mode == "naive":
        naive(network, image, Ttaps(steps=1), 0)  # each step takes as much as the first
    else:
        method = Ttaps() if mode == "exact" else replace(_fast(), confidence_threshold=1.0)
        method.adapt(network, image, [0])


def _growth(times: dict[str, Rounds]) -> dict[int, Rounds]:
    one = times["1 images"]
    return {count: times[f"{count} images"].times(1 / count).over(one) for count in GROWTH}


def _fast() -> Ttaps:
    method = make_method("ttaps:fast")
    assert isinstance(method, Ttaps)
    return method


def _one_step(network: Network, images: Tensor) -> Callable[[], object]:
    method = Ttaps(steps=1, num_pairs=FEW)
    return lambda: method.adapt(network, images, range(len(images)))


def training_run(network: Network) -> Trainer:
    """Return a trainer of JT+ENT with the paper's settings."""
    config = TrainConfig(batch_size=TRAIN_BATCH, model=network.config)
    return Trainer(config, Split.of(read_sample_train()))
