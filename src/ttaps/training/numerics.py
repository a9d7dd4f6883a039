"""How a run computes: the memory layout of its images and the precision of its forward pass, measured where a setting is ``auto``."""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor, nn

from ttaps.training.config import TrainConfig

MIN_SPEEDUP = 1.1  # less is not worth giving up the plain way
FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
TRIALS = 3  # timed steps of each candidate, after one that is not


@dataclass(frozen=True)
class Numerics:
    """Memory format and precision; stored with the run, so that a resumed run repeats the same bits."""

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
    """Return what the settings allow, the plain one first."""
    formats = ["contiguous", "channels_last"] if config.memory_format == "auto" else [config.memory_format]
    precisions = ["float32", "bfloat16"] if config.precision == "auto" else [config.precision]
    return [Numerics(*pair) for pair in product(formats, precisions)]


def fastest(config: TrainConfig, network: nn.Module, device: torch.device) -> Numerics:
    """Return the fastest candidate for ``network`` on this machine; without a choice, nothing is measured."""
    plain, *others = candidates(config)
    if not others:
        return plain
    images = torch.rand(min(config.batch_size, 64), 3, config.model.image_size, config.model.image_size, device=device)
    seconds = {one: seconds_per_step(one, copy.deepcopy(network), images) for one in (plain, *others)}
    best = min(others, key=seconds.__getitem__)
    return best if seconds[plain] > MIN_SPEEDUP * seconds[best] else plain


def seconds_per_step(numerics: Numerics, network: nn.Module, images: Tensor) -> float:
    """Return the shortest time of a step: other work on the machine can only make it longer."""
    numerics.place(network)
    times = []
    for _ in range(TRIALS + 1):
        began = time.perf_counter()
        with numerics.autocast(images.device):
            loss = network(images).float().square().mean()
        network.zero_grad(set_to_none=True)
        loss.backward()
        if images.device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return min(times[1:])
