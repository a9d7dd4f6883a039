"""What ``ttaps bench`` measures, under the names it prints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ttaps.adaptation import Source, Ttaps
from ttaps.adaptation.engine import gradient_steps
from ttaps.adaptation.presets import PRESETS
from ttaps.api import load
from ttaps.bench.measure import interleaved, operations, quartiles
from ttaps.bench.naive import naive, pillow_views
from ttaps.data.sample import SAMPLE_CORRUPTIONS, read_sample, read_sample_train
from ttaps.model import Network, SplitNetwork
from ttaps.rng import generator
from ttaps.training.config import TrainConfig
from ttaps.training.data import Split
from ttaps.training.trainer import Trainer

FAST = Ttaps(**PRESETS["ttaps"]["fast"])
PRODUCTS = (512, 1024, 2048)  # sizes of matrix products; which runs at the highest rate depends on the machine
TRAIN_BATCH = 64
EXACT_EACH, FAST_EACH = 2, 18  # images per thread: no thread waits long, and fast mode sees every corruption twice


class Suite:
    """All that is timed, on one model and the embedded images. Each round runs every one of ``jobs``."""

    def __init__(self, model: str) -> None:
        loaded = load(model)
        self.model, self.network, self.fingerprint = model, loaded.network, loaded.fingerprint
        self.threads = torch.get_num_threads()
        self.counts = {"naive": 1, "exact": EXACT_EACH * self.threads, "fast": FAST_EACH * self.threads}
        self.images = sample_images(self.counts["fast"])
        self.trainer = make_trainer(self.network)
        self.jobs = self._jobs()

    def measure(self, rounds: int, done: Callable[[], object] = lambda: None) -> dict[str, Any]:
        """Time all jobs in turn; return ratios by name, the quartiles of each, and the times they are made of."""
        times = interleaved(self.jobs, rounds, done)
        per_image = {mode: times[mode] / count for mode, count in self.counts.items()}
        rate = max(2 * size**3 / times[f"multiply {size}"].min() for size in PRODUCTS)
        needed = exact_operations(self.network, Ttaps(), self.images[:1])
        ratios = {
            "naive_over_exact": per_image["naive"] / per_image["exact"],
            "naive_over_fast": per_image["naive"] / per_image["fast"],
            "exact_utilization": needed / per_image["exact"] / rate,
            # 0.03 % of a step's operations make its views
            "train_utilization": operations(lambda: self.trainer.step(0)) / times["train"] / rate,
            "views_per_second_ratio": times["pillow"] / times["views"],
        }
        before = Source().adapt(self.network, self.images, range(len(self.images)))
        skipped = before.amax(-1) >= FAST.confidence_threshold
        return {
            "model": self.model,
            "fingerprint": self.fingerprint,
            "threads": self.threads,
            "rounds": rounds,
            **{name: float(np.median(found)) for name, found in ratios.items()},
            "quartiles": {name: quartiles(found) for name, found in ratios.items()},
            "seconds_per_image": {
                mode: {"median": float(np.median(found)), "quartiles": quartiles(found)}
                for mode, found in per_image.items()
            },
            "fast_skipped": float(skipped.float().mean()),
            "multiply_gflops": float(rate / 1e9),
        }

    def _jobs(self) -> dict[str, Callable[[], object]]:
        network, images, exact = self.network, self.images, Ttaps()
        few, drawn = images[: self.counts["exact"]], exact.views.sample(640, images.shape[-1], generator("bench"))
        return {
            **{f"multiply {size}": _multiply(size) for size in PRODUCTS},
            "naive": lambda: naive(network, images[:1], exact, 0),
            "exact": lambda: exact.adapt(network, few, range(len(few))),
            "fast": lambda: FAST.adapt(network, images, range(len(images))),
            "pillow": lambda: pillow_views(images[:1], drawn),
            "views": lambda: exact.views.apply(images[:1], drawn),
            "train": lambda: self.trainer.step(0),
        }


def exact_operations(network: Network, method: Ttaps, image: Tensor) -> int:
    """Count the network's operations that adapting one image needs, whatever makes its views.

    The frozen part once over all views, every step on the adapted part, and the image's prediction before and after every step.
    """
    split = SplitNetwork(network, method.adapt_params)
    views = method.draw_views(image, 0)[: 2 * method.num_pairs]
    features, plain, weights = split.frozen(views), split.frozen(image), split.weights()
    frozen, first = operations(lambda: split.frozen(views)), operations(lambda: split.frozen(image))
    predict = operations(lambda: network.classifier(split.adapted(plain, weights)))
    steps = gradient_steps(lambda w, _: method.loss(network.scores(split.adapted(features, w))), weights, 1, 0.1)
    return first + predict + method.steps * (frozen + operations(lambda: list(steps)) + predict)


def sample_images(count: int) -> Tensor:
    """Return embedded test images, each under the next of the embedded corruptions: fast mode's time depends on how hard they are."""
    sets = [read_sample(name).images for name in SAMPLE_CORRUPTIONS]
    return torch.from_numpy(np.stack([sets[place % len(sets)][place % len(sets[0])] for place in range(count)]))


def make_trainer(network: Network) -> Trainer:
    """Return a trainer of JT+ENT with the paper's settings."""
    config = TrainConfig(batch_size=TRAIN_BATCH, model=network.config)
    return Trainer(config, Split.of(read_sample_train()))


def _multiply(size: int) -> Callable[[], object]:
    a, b = torch.rand(size, size), torch.rand(size, size)
    return lambda: a @ b
