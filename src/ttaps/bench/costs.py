"""What each method costs per image, as a multiple of one prediction: what ``ttaps methods`` measures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from ttaps.adaptation import METHODS, Method, Source
from ttaps.bench.measure import interleaved
from ttaps.model import ModelConfig, Network
from ttaps.rng import derive_seed

SOURCES = 8  # images of the prediction that all is compared with, which is short


def costs(config: ModelConfig, images: Tensor, rounds: int, done: Callable[[], object]) -> dict[str, float]:
    """Return the cost of every method relative to source, on untrained networks: it does not depend on the weights."""
    found = {"source": 1.0}
    for name, kind in METHODS.items():
        if name != "source":
            found[name] = cost(fitting(kind(), config), kind(), images, rounds)
            done()
    return found


def cost(network: Network, method: Method, images: Tensor, rounds: int) -> float:
    """Return the time of adapting one image over that of predicting one, by the median of interleaved rounds."""
    jobs = {
        "source": lambda: Source().adapt(network, images[:SOURCES], range(SOURCES)),
        "method": lambda: method.adapt(network, images[:1], [0]),
    }
    times = interleaved(jobs, rounds)
    return times["method"].over(times["source"]).median * SOURCES


def fitting(method: Method, config: ModelConfig) -> Network:
    """Return an untrained network that has what a method needs: extra heads, or BatchNorm."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed("costs"))
        network = Network(replace(config, heads=("rotation", "predictor")))
        return Network(replace(config, norm="batch")) if method.missing_requirement(network) else network
