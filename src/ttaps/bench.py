"""Speed of adaptation: ratios of functions timed in turn in one process, and their operation counts."""

from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageFilter
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from ttaps.adaptation import PRESETS, Source, Ttaps
from ttaps.adaptation.engine import gradient_steps
from ttaps.api import load
from ttaps.data.sample import SAMPLE_CORRUPTIONS, read_sample, read_sample_train
from ttaps.model import Network, SplitNetwork, adapted_names, as_network
from ttaps.rng import generator
from ttaps.training.config import TrainConfig
from ttaps.training.data import Split
from ttaps.training.trainer import Trainer
from ttaps.views.swav import Parameters

FAST = Ttaps(**PRESETS["ttaps"]["fast"])
PRODUCTS = (512, 1024, 2048)  # sizes of matrix products; which runs at the highest rate depends on the machine
TRAIN_BATCH = 64
EXACT_EACH, FAST_EACH = 2, 18  # images per thread: no thread waits long, and fast mode sees every corruption twice

Work = Callable[[], object]
Rounds = NDArray[np.float64]
"""A number measured in several rounds. Divide round by round, when the machine was as busy, and take the median last."""


class Suite:
    """Everything that is timed, on one model and the bundled images. Each round runs all ``jobs``."""

    def __init__(self, model: str) -> None:
        loaded, self.threads = load(model), torch.get_num_threads()
        self.model, self.network, self.fingerprint = model, as_network(loaded.network), loaded.fingerprint
        self.counts = {"naive": 1, "exact": EXACT_EACH * self.threads, "fast": FAST_EACH * self.threads}
        self.images = sample_images(self.counts["fast"])
        self.trainer = make_trainer(self.network)
        exact, few, image = Ttaps(), self.images[: self.counts["exact"]], self.images[:1]
        drawn = exact.views.sample(640, image.shape[-1], generator("bench"))
        self.jobs: dict[str, Work] = {
            **{f"multiply {size}": partial(torch.mm, *torch.rand(2, size, size)) for size in PRODUCTS},
            "naive": lambda: naive(self.network, image, exact, 0),
            "exact": lambda: exact.adapt(self.network, few, range(len(few))),
            "fast": lambda: FAST.adapt(self.network, self.images, range(len(self.images))),
            "pillow": lambda: pillow_views(image, drawn),
            "views": lambda: exact.views.apply(image, drawn),
            "train": lambda: self.trainer.step(0),
        }

    def run(self, rounds: int, done: Work = lambda: None) -> dict[str, Any]:
        """Time all jobs in turn; return ratios by name, the quartiles of each, and the underlying times."""
        times = interleaved(self.jobs, rounds, done)
        per_image = {mode: times[mode] / count for mode, count in self.counts.items()}
        rate = max(2 * size**3 / times[f"multiply {size}"].min() for size in PRODUCTS)
        ratios = {
            "naive_over_exact": per_image["naive"] / per_image["exact"],
            "naive_over_fast": per_image["naive"] / per_image["fast"],
            "exact_utilization": exact_operations(self.network, Ttaps(), self.images[:1]) / per_image["exact"] / rate,
            # 0.03 % of a step's operations make its views
            "train_utilization": operations(lambda: self.trainer.step(0)) / times["train"] / rate,
            "views_per_second_ratio": times["pillow"] / times["views"],
        }
        before = Source().adapt(self.network, self.images, range(len(self.images)))
        skipped = before.amax(-1) >= FAST.confidence_threshold
        seconds = {mode: {"median": float(np.median(t)), "quartiles": quartiles(t)} for mode, t in per_image.items()}
        return {
            **{"model": self.model, "fingerprint": self.fingerprint, "threads": self.threads, "rounds": rounds},
            **{name: float(np.median(found)) for name, found in ratios.items()},
            "quartiles": {name: quartiles(found) for name, found in ratios.items()},
            "seconds_per_image": seconds,
            "fast_skipped": float(skipped.float().mean()),
            "multiply_gflops": float(rate / 1e9),
        }


def interleaved(
    functions: Mapping[str, Work], rounds: int, done: Work = lambda: None, clock: Callable[[], float] = perf_counter
) -> dict[str, Rounds]:
    """Return the seconds of all functions, run in turn ``rounds`` times: other load on the machine slows all alike."""
    taken: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            start = clock()
            function()
            taken[name].append(clock() - start)
            done()
    return {name: np.array(seconds) for name, seconds in taken.items()}


def quartiles(values: Rounds) -> list[float]:
    """Return the first and third quartile of the rounds."""
    return np.quantile(values, (0.25, 0.75)).tolist()


def operations(function: Work) -> int:
    """Count the floating-point operations of all matrix products and convolutions in a call, backward included, on this thread."""
    with FlopCounterMode(display=False) as counter:
        function()
    return int(counter.get_total_flops())


def exact_operations(network: Network, method: Ttaps, image: Tensor) -> int:
    """Count the network's operations for adapting one image, without making its views.
    The frozen part once over all views, every step on the adapted part, and the image's prediction before and after every step."""
    split = SplitNetwork(network, method.adapt_params)
    views = method.draw_views(image, 0)[: 2 * method.num_pairs]
    features, plain, weights = split.frozen(views), split.frozen(image), split.weights()
    frozen, first = operations(lambda: split.frozen(views)), operations(lambda: split.frozen(image))
    predict = operations(lambda: network.classifier(split.adapted(plain, weights)))
    steps = gradient_steps(lambda w, _: method.loss(network.scores(split.adapted(features, w))), weights, 1, 0.1)
    return first + predict + method.steps * (frozen + operations(lambda: list(steps)) + predict)


def sample_images(count: int) -> Tensor:
    """Return bundled test images, under the bundled corruptions in turn: fast mode's time depends on how hard they are."""
    sets = [read_sample(name).images for name in SAMPLE_CORRUPTIONS]
    return torch.from_numpy(np.stack([sets[place % len(sets)][place % len(sets[0])] for place in range(count)]))


def make_trainer(network: Network) -> Trainer:
    """Return a trainer of JT+ENT with the paper's settings."""
    return Trainer(TrainConfig(batch_size=TRAIN_BATCH, model=network.config), Split.of(read_sample_train()))


def naive(network: Network, image: Tensor, method: Ttaps, key: int) -> Tensor:
    """Adapt as the authors' code does: views by Pillow, the whole network at every step, unused gradients dropped, weights reloaded."""
    saved = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    adapted = set(adapted_names(network, method.adapt_params))
    parameters = [weight for name, weight in network.named_parameters() if name in adapted]
    optimizer = torch.optim.SGD(parameters, method.lr, 0.9, weight_decay=1e-5)
    draw = generator(key, "naive")
    for _ in range(method.steps):
        views = pillow_views(image, method.views.sample(2 * method.num_pairs, image.shape[-1], draw))
        loss = method.loss(network.scores(network.project(views)))
        network.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        probabilities = network(image)[0].softmax(-1)
    network.load_state_dict(saved)
    return probabilities


def pillow_views(image: Tensor, drawn: Parameters) -> Tensor:
    """Make the views of one image (1, 3, H, W), uint8, one by one. Pillow's blur has no 3-pixel window; it costs about the same."""
    whole = Image.fromarray(image[0].permute(1, 2, 0).numpy())
    rows = {name: tensor.tolist() for name, tensor in vars(drawn).items()}
    return torch.stack([_view(whole, {name: values[i] for name, values in rows.items()}) for i in range(len(drawn))])


def _view(image: Image.Image, view: dict[str, Any]) -> Tensor:
    top, left, height, width = view["box"]
    made = image.crop((left, top, left + width, top + height)).resize(image.size, Image.Resampling.BILINEAR)
    if view["flip"]:
        made = made.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if view["jitter"]:
        enhancers = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)
        for kind in view["order"]:
            factor = view["factors"][kind]
            made = _shift_hue(made, factor) if kind == 3 else enhancers[kind](made).enhance(factor)
    if view["grayscale"]:
        made = made.convert("L").convert("RGB")
    if view["sigma"]:
        made = made.filter(ImageFilter.GaussianBlur(view["sigma"]))
    return torch.from_numpy(np.array(made)).permute(2, 0, 1).float().div_(255)


def _shift_hue(image: Image.Image, turns: float) -> Image.Image:
    hue, saturation, value = image.convert("HSV").split()
    shifted = (np.asarray(hue).astype(np.int16) + round(turns * 255)).astype(np.uint8)
    return Image.merge("HSV", (Image.fromarray(shifted), saturation, value)).convert("RGB")
