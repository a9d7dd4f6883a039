"""``ttaps bench`` and ``ttaps methods``: cost of adaptation."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from ttaps.adaptation import METHODS, PRESETS, Method, Source
from ttaps.api import load
from ttaps.bench import Suite, interleaved
from ttaps.cli import commands, common
from ttaps.data.sample import read_sample
from ttaps.errors import UsageError
from ttaps.model import ModelConfig, Network, as_network
from ttaps.progress import bar, text_table
from ttaps.rng import derive_seed

MEANING = {
    "naive_over_exact": "time per image, the authors' way / ttaps",
    "naive_over_fast": "time per image, the authors' way / ttaps:fast",
    "exact_utilization": "operations of ttaps / time / rate of matrix products",
    "train_utilization": "the same for a training step of jt+ent, with its views",
    "views_per_second_ratio": "batched views / the same views by Pillow",
}
SOURCES = 8  # images of the prediction that all is compared with, which is short
# By --measure --rounds 3 on an AVX2 core, ResNet-26 with 32 filters, good to some 20 %.
COSTS = {"t3a": 2.9, "lame": 2.6, "eata": 5.9, "sar": 8.8, "cotta": 50.0}  # of an image that counts; CoTTA: on AVX-512
COSTS |= {"augment": 11.0, "bn": 5.6, "tent": 8.0, "memo": 57.0, "mt3": 92.0, "ttt": 395.0, "ttaps": 458.0}


def bench(options: commands.Bench) -> None:
    """Measure and print."""
    if options.rounds < 1:
        raise UsageError(f"--rounds must be at least 1, not {options.rounds}.")
    common.use("cpu", options.threads)
    suite = Suite(options.model)
    with bar() as progress:
        task = progress.add_task("Measuring", total=options.rounds * len(suite.jobs), note="")
        result = suite.run(options.rounds, lambda: progress.advance(task))
    common.print_json(result) if options.json else print(as_text(result))


def as_text(result: dict[str, Any]) -> str:
    """Return a result as tables."""
    speed = f"{result['multiply_gflops']:.0f} GFLOP/s by matrix products"
    head = f"{result['model']}, threads: {result['threads']}, rounds: {result['rounds']}, {speed}"
    quartiles, span, fine = result["quartiles"], "{:.2f} to {:.2f}".format, "{:.3f} to {:.3f}".format
    ratios = [[name, text, f"{result[name]:.2f}", span(*quartiles[name])] for name, text in MEANING.items()]
    seconds = result["seconds_per_image"].items()
    modes = [[mode, f"{found['median']:.3f}", fine(*found["quartiles"])] for mode, found in seconds]
    sure = f"ttaps:fast was confident of {result['fast_skipped']:.0%} of its images and did not adapt to them."
    first = text_table(["", "", "median", "quartiles"], ratios, left=2)
    second = text_table(["mode", "seconds per image", "quartiles"], modes)
    return f"{head}\n\n{first}\n\n{second}\n\n{sure}"


def methods(options: commands.Methods) -> None:
    """Measure if asked, and print the table."""
    if options.rounds < 1:
        raise UsageError(f"--rounds must be at least 1, not {options.rounds}.")
    costs = {"source": 1.0, **(measure_costs(options.model, options.rounds) if options.measure else COSTS)}
    rows = [_describe(kind(), costs.get(name)) for name, kind in METHODS.items()]
    if options.json:
        common.print_json(rows)
        return
    head = ["method", "trained by", "adapts", "paper", "steps", "lr", "cost"]
    print(text_table(head, [[_cell(value) for value in list(row.values())[: len(head)]] for row in rows], left=4))
    presets = [f"{row['name']}:{preset}" for row in rows for preset in row["presets"]]
    print(f"\npresets: {', '.join(presets)}")
    where = "with the cifar10 model on a CPU; --measure: on this machine"
    where = "measured on this machine" if options.measure else where
    print(f"\ncost: time per image as a multiple of one prediction by the same network, {where}")


def measure_costs(model: str, rounds: int) -> dict[str, float]:
    """Return the cost of every method except source on untrained networks of a model's architecture: weights do not matter."""
    config = as_network(load(model).network).config
    common.use("cpu", threads=1)
    images = torch.from_numpy(read_sample("gaussian_noise").images)
    found = {}
    with bar() as progress:
        task = progress.add_task("Measuring", total=len(METHODS) - 1, note="")
        for name in METHODS.keys() - {"source"}:
            method = METHODS[name]()
            found[name] = cost(fitting(method, config), method, images, rounds)
            progress.advance(task)
    return found


def cost(network: Network, method: Method, images: torch.Tensor, rounds: int) -> float:
    """Return the time of adapting to one image divided by that of predicting one, by the median of interleaved rounds."""
    source = partial(Source().adapt, network, images[:SOURCES], range(SOURCES))
    times = interleaved({"source": source, "method": partial(method.adapt, network, images[:1], [0])}, rounds)
    return float(np.median(times["method"] / times["source"])) * SOURCES


def fitting(method: Method, config: ModelConfig) -> Network:
    """Return an untrained network that has what a method needs: extra heads, or BatchNorm."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed("costs"))
        network = Network(replace(config, heads=("rotation", "predictor")))
        return Network(replace(config, norm="batch")) if method.missing_requirement(network) else network


def _describe(method: Method, cost: float | None) -> dict[str, Any]:
    trained_by, presets = list(method.trained_by) or ["any"], list(PRESETS.get(method.name, {}))
    about = {"name": method.name, "trained_by": trained_by, "adapts": method.adapts, "paper": method.paper or None}
    return {**about, "steps": method.steps or None, "lr": method.lr, "cost": cost, "presets": presets}


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return " or ".join(value)
    return f"{value:.3g}" if isinstance(value, float) else str(value or "-")
