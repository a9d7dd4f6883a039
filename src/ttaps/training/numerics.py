"""How a run computes: the layout of its images in memory and the precision of its forward pass, by measurement where that is asked for."""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor, nn

from ttaps.training.config import TrainConfig

WORTH = 1.1  # times as fast: less is not worth giving up the plain way
FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
TRIALS = 3  # timed steps of each way, after one that is not


@dataclass(frozen=True)
class Numerics:
    """A way to compute; its words are stored, so that a resumed run repeats the same bits."""

    memory_format: str = "contiguous"
    precision: str = "float32"

    def place(self, network: nn.Module) -> None:
        """Lay the weights of a network out in memory."""
        network.to(memory_format=FORMATS[self.memory_format])  # type: ignore[call-overload]

    def autocast(self, device: torch.device) -> torch.autocast:
        """Return the context of a forward pass."""
        return torch.autocast(device.type, torch.bfloat16, enabled=self.precision == "bfloat16")

    def __str__(self) -> str:
        return f"{self.memory_format} {self.precision}"


def candidates(config: TrainConfig) -> list[Numerics]:
    """Return the ways that the settings allow, the plain ones first."""
    formats = ["contiguous", "channels_last"] if config.memory_format == "auto" else [config.memory_format]
    precisions = ["float32", "bfloat16"] if config.precision == "auto" else [config.precision]
    return [Numerics(*way) for way in product(formats, precisions)]


def fastest(config: TrainConfig, network: nn.Module, device: torch.device) -> Numerics:
    """Return the fastest way to train ``network`` here; without a choice, nothing is measured."""
    ways = candidates(config)
    if len(ways) == 1:
        return ways[0]
    images = torch.rand(min(config.batch_size, 64), 3, config.model.image_size, config.model.image_size, device=device)
    seconds = {way: _seconds(way, copy.deepcopy(network), images) for way in ways}
    best = min(ways, key=lambda way: seconds[way])
    return best if seconds[ways[0]] > WORTH * seconds[best] else ways[0]


def _seconds(way: Numerics, network: nn.Module, images: Tensor) -> float:
    """Time one step, at best: what else runs here can only make it slower."""
    way.place(network)
    times = []
    for _ in range(TRIALS + 1):
        began = time.perf_counter()
        with way.autocast(images.device):
            loss = network(images).float().square().mean()
        network.zero_grad(set_to_none=True)
        loss.backward()
        if images.device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return min(times[1:])
