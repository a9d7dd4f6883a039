"""How good fine-tuning on few images is: makes two small data sets, trains with the preset own-data, and prints held-out accuracy beside
that of the shipped model, its logits restricted to the classes, and of linear probes on its frozen backbone.

    python tools/own_data.py FOLDER [cifar3|shapes ...]

``cifar3``: 300 cars, frogs and ships that the shipped model was not trained on, enlarged to odd sizes; 1,500 of the test set are held out.
``shapes``: 200 drawings of five shapes at 64 px; 500 others are held out. CIFAR-10 is read from ./data. Data and runs stay in FOLDER.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from torch import Tensor
from torch.nn import functional as F

import ttaps
from ttaps.data import load_set, split_train
from ttaps.evaluation.statistics import wilson
from ttaps.model.network import Network, as_network, pooled

Named = Iterator[tuple[str, Image.Image]]  # a class and an image of it
CIFAR3 = {"car": 1, "frog": 6, "ship": 8}  # their numbers in CIFAR-10
RADII: dict[str, list[float]] = {"disk": [1] * 60, "square": [1] * 4, "triangle": [1] * 3, "star": [1, 0.45] * 5}
SHAPES = {name: np.array(r) * np.exp(2j * np.pi * np.arange(len(r)) / len(r)) for name, r in RADII.items()}
SHAPES["cross"] = np.outer([1, 1j, -1, -1j], [1 - 0.32j, 1 + 0.32j, 0.32 + 0.32j]).ravel()


def cifar3(part: str) -> Named:
    """Images of three classes: 100 each of the validation images to train on, 500 each of the test set."""
    images, rng = load_set("cifar10", split=part), np.random.default_rng(0)
    chosen = split_train(len(images))[1] if part == "train" else np.arange(len(images))
    for name, label in CIFAR3.items():
        for number in chosen[images.labels[chosen] == label][: 100 if part == "train" else 500]:
            side = int(rng.integers(40, 301))
            image = Image.fromarray(images.images[number].transpose(1, 2, 0))
            yield name, image.resize((side, side), Image.Resampling.BICUBIC)


def shapes(part: str) -> Named:
    """Drawings of five shapes in turn."""
    rng = np.random.default_rng(0 if part == "train" else 1)
    for number in range(200 if part == "train" else 500):
        name = tuple(SHAPES)[number % len(SHAPES)]
        yield name, draw(SHAPES[name], rng)


def draw(corners: NDArray[np.complex128], rng: np.random.Generator, size: int = 64) -> Image.Image:
    """Draw a shape at any place, size, angle and color, on a colored ground with lines across it and noise over all."""
    big = 4 * size
    image = Image.fromarray(rng.integers(0, 256, (4, 4, 3), np.uint8)).resize((big, big), Image.Resampling.BICUBIC)
    pen = ImageDraw.Draw(image)
    for _ in range(6):
        pen.line(rng.integers(0, big, 4).tolist(), (*rng.integers(0, 256, 3).tolist(),), int(rng.integers(3, 12)))
    turn = rng.uniform(0.18, 0.38) * np.exp(1j * rng.uniform(0, 2 * np.pi))
    placed = big * (turn * corners + complex(*rng.uniform(0.35, 0.65, 2)))
    pen.polygon([(one.real, one.imag) for one in placed], (*rng.integers(0, 256, 3).tolist(),))
    small = np.asarray(image.resize((size, size), Image.Resampling.BOX)) + rng.normal(0, 12, (size, size, 3))
    return Image.fromarray(small.clip(0, 255).round().astype(np.uint8))


@torch.no_grad()
def features(network: Network, folder: Path, size: int = 32) -> tuple[Tensor, Tensor, Tensor]:
    """Return what the backbone finds in images, the logits, and the labels."""
    images = load_set(str(folder), size=size)
    each = torch.tensor(images.images).split(100)
    found = torch.cat([pooled(network.backbone(network.normalize(part))) for part in each])
    logits = network.classifier(network.l2_normalize(network.projector(found)))
    return found, logits, torch.tensor(images.labels)


def probe(x: Tensor, labels: Tensor, decay: float) -> torch.nn.Linear:
    """Fit a linear classifier with weight decay, to convergence."""
    linear = torch.nn.Linear(x.shape[1], int(labels.max()) + 1)
    optimizer = torch.optim.LBFGS(linear.parameters(), max_iter=300, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = F.cross_entropy(linear(x), labels) + decay * linear.weight.square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    return linear


def show(name: str, logits: Tensor, labels: Tensor) -> None:
    right, n = int((logits.argmax(1) == labels).sum()), len(labels)
    low, high = wilson(right, n)
    print(f"{name}: {100 * right / n:.1f} % ({100 * low:.1f} to {100 * high:.1f}, n = {n})", flush=True)


def compare(kind: str, folder: Path) -> None:
    """Make a data set and print every accuracy on it."""
    for part in ("train", "test"):
        for number, (name, image) in enumerate({"cifar3": cifar3, "shapes": shapes}[kind](part)):
            (folder / part / name).mkdir(parents=True, exist_ok=True)
            image.save(folder / part / name / f"{number}.png")
    network = as_network(ttaps.load("cifar10").network.eval())
    for size in (32,) if kind == "cifar3" else (32, 64):
        x, _, labels = features(network, folder / "train", size)
        held_out, logits, truth = features(network, folder / "test", size)
        mean, std = x.mean(0), x.std(0)
        for decay in (1e-1, 1e-2, 1e-3, 1e-4):
            linear = probe((x - mean) / std, labels, decay)
            show(f"{kind}, probe at {size} px, decay {decay:g}", linear((held_out - mean) / std), truth)
        if kind == "cifar3":
            show(f"{kind}, shipped, restricted", logits[:, list(CIFAR3.values())], truth)
    start, used = time.perf_counter(), time.process_time()
    run = ttaps.train("own-data", folder, out=folder.with_name(f"{kind}-run"))
    print(
        f"{kind}: trained for {time.perf_counter() - start:.0f} s, {time.process_time() - used:.0f} s of a core",
        flush=True,
    )
    _, logits, truth = features(as_network(run.model.network.eval()), folder / "test")
    show(f"{kind}, own-data", logits, truth)


if __name__ == "__main__":
    for kind in sys.argv[2:] or ("cifar3", "shapes"):
        compare(kind, Path(sys.argv[1]) / kind)
