"""Work side by side on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")


def side_by_side(function: Callable[[int], T], count: int, in_turn: bool = False) -> list[T]:
    """Return ``function(index)`` of images, or batches of them, on a CPU.

    They run side by side with one thread each: no thread ever waits for another, and an image's numbers do not depend on how
    many threads there are. Waiting is what makes two threads on one image many times slower on a busy machine (docs/log.md).
    ``in_turn`` runs them one after the other, for methods that keep something from image to image.
    """
    threads = torch.get_num_threads()
    workers = 1 if in_turn else min(count, threads)
    try:
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(function, range(count)))
    finally:
        torch.set_num_threads(threads)  # workers also set the default of threads to come
