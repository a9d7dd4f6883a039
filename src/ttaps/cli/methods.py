"""``ttaps methods``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ttaps.adaptation import METHODS, Method, Source
from ttaps.adaptation.presets import PRESETS
from ttaps.api import load
from ttaps.bench.measure import interleaved
from ttaps.cli.options import JsonOption, parse, print_json, table, use_threads
from ttaps.data.sample import read_sample
from ttaps.errors import UsageError
from ttaps.model import ModelConfig, Network
from ttaps.progress import bar
from ttaps.rng import derive_seed

SOURCES = 8  # images of the prediction that all is compared with, which is short
# By --measure --rounds 3 on an AVX2 core, ResNet-26 with 32 filters, good to some 20 %.
COSTS = {
    "source": 1.0,
    "augment": 11.0,
    "bn": 5.6,
    "tent": 8.0,
    "memo": 57.0,
    "mt3": 92.0,
    "ttt": 395.0,
    "ttaps": 458.0,
}


@dataclass(frozen=True)
class Methods(JsonOption):
    """List the methods: what each needs, adapts and costs per image, as a multiple of one prediction by the same network.

    Example: ttaps methods --measure --rounds 3
    """

    measure: bool = False
    """Measure the cost on this machine, with one image and one thread, instead of printing that of the cifar10 model on a CPU."""
    model: str = "cifar10"
    """A model by name or a run folder: the shape of the networks to measure with."""
    rounds: int = 2
    """How many times each method is timed."""


def run(arguments: list[str]) -> None:
    """Measure if asked, and print the table."""
    options = parse(Methods, "methods", arguments)
    if options.rounds < 1:
        raise UsageError(f"--rounds must be at least 1, not {options.rounds}.")
    costs = measure(options.model, options.rounds) if options.measure else COSTS
    rows = [_describe(name, costs.get(name)) for name in METHODS]
    if options.json:
        print_json(rows)
        return
    cells = [["-" if row[key] is None else _short(row[key]) for key in list(row)[:-1]] for row in rows]
    head = ["method", "trained by", "adapts", "paper", "steps", "lr", "cost"]
    print(table(head, cells, left=4))
    named = [f"{name}:{preset}" for name in METHODS for preset in PRESETS.get(name, {})]
    print(f"\npresets: {', '.join(named)}")
    where = (
        "measured on this machine" if options.measure else "with the cifar10 model on a CPU; --measure: on this machine"
    )
    print(f"\ncost: time per image as a multiple of one prediction by the same network, {where}")


def measure(model: str, rounds: int) -> dict[str, float]:
    """Return the cost of every method on untrained networks of a model's shape: it does not depend on the weights."""
    config = load(model).network.config
    use_threads(1)
    images = torch.from_numpy(read_sample("gaussian_noise").images)
    found = {"source": 1.0}
    with bar() as progress:
        task = progress.add_task("Measuring", total=len(METHODS) - 1, note="")
        for name in METHODS.keys() - found:
            method = METHODS[name]()
            found[name] = cost(fitting(method, config), method, images, rounds)
            progress.advance(task)
    return found


def cost(network: Network, method: Method, images: Tensor, rounds: int) -> float:
    """Return the time of adapting one image over that of predicting one, by the median of interleaved rounds."""
    jobs = {
        "source": lambda: Source().adapt(network, images[:SOURCES], range(SOURCES)),
        "method": lambda: method.adapt(network, images[:1], [0]),
    }
    times = interleaved(jobs, rounds)
    return float(np.median(times["method"] / times["source"])) * SOURCES


def fitting(method: Method, config: ModelConfig) -> Network:
    """Return an untrained network that has what a method needs: extra heads, or BatchNorm."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed("costs"))
        network = Network(replace(config, heads=("rotation", "predictor")))
        return Network(replace(config, norm="batch")) if method.missing_requirement(network) else network


def _describe(name: str, cost: float | None) -> dict[str, Any]:
    method = METHODS[name]()
    return {
        "name": name,
        "trained_by": list(method.trained_by) or ["any"],
        "adapts": method.adapts,
        "paper": method.paper or None,
        "steps": method.steps or None,
        "lr": method.lr,
        "cost": cost,
        "presets": list(PRESETS.get(name, {})),
    }


def _short(value: Any) -> str:
    if isinstance(value, list):
        return " or ".join(value)
    return f"{value:.3g}" if isinstance(value, float) else str(value)
