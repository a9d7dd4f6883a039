"""Peak memory of adapting to one image, the authors' way, exactly and fast; and whether the time per image grows with their number.

python tools/memory_and_growth.py [MODEL] [ROUNDS]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ttaps.adaptation import Ttaps
from ttaps.api import load
from ttaps.bench import FAST, Rounds, interleaved, naive, sample_images
from ttaps.model import Network, as_network

STATUS = Path("/proc/self/status")
COUNTS, PAIRS = (1, 4, 16, 64), 8  # numbers of images; one step of few pairs each, so that this takes seconds


def peak_memory(function: Callable[..., object], *arguments: Any) -> float:
    """Peak memory in MB that a call adds to a new process, which has imported what it needs and done nothing else."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak, (function, arguments))


def _peak(function: Callable[..., object], arguments: tuple[Any, ...]) -> float:
    before = peak_so_far()
    function(*arguments)
    return peak_so_far() - before


def peak_so_far() -> float:
    """Return the most memory in MB that this process has held.

    Linux counts what a process held before its exec in its ru_maxrss, so that a child starts with its parent's; VmHWM starts anew.
    """
    known = re.search(r"VmHWM:\s*(\d+) kB", STATUS.read_text()) if STATUS.exists() else None
    if known:
        return int(known[1]) / 1024
    import resource

    unit = 2**20 if sys.platform == "darwin" else 2**10  # bytes there, kB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def adapt_one(model: str, mode: str, threads: int) -> None:
    """Adapt to one image, in a process whose memory is watched."""
    torch.set_num_threads(threads)
    network, image = as_network(load(model).network), sample_images(1)
    if mode == "naive":
        naive(network, image, Ttaps(steps=1), 0)  # each step takes as much as the first
    else:
        method = Ttaps() if mode == "exact" else replace(FAST, confidence_threshold=1.0)
        method.adapt(network, image, [0])


def growth(network: Network, images: Tensor, rounds: int) -> dict[int, Rounds]:
    """Return the time per image, by the number of images, relative to that of one."""
    method = Ttaps(steps=1, num_pairs=PAIRS)

    def job(count: int) -> Callable[[], object]:
        return lambda: method.adapt(network, images[:count], range(count))

    times = interleaved({str(count): job(count) for count in COUNTS}, rounds)
    return {count: times[str(count)] / count / times["1"] for count in COUNTS}


if __name__ == "__main__":
    model, rounds = (sys.argv[1:] + ["cifar10", "5"][len(sys.argv) - 1 :])[:2]
    for mode in ("naive", "exact", "fast"):
        print(f"{mode:<6} {peak_memory(adapt_one, model, mode, torch.get_num_threads()):6.0f} MB for one image")
    for count, found in growth(as_network(load(model).network), sample_images(max(COUNTS)), int(rounds)).items():
        print(f"{count:>3} images: {np.median(found):.2f} x the time per image of one")
