"""The same evaluation with other threads, orders, groups, shards and processes, while other programs keep every core busy: the same rows,
bit for bit, as docs/evaluation.md promises."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray

from helpers.small_evaluation import results, small_benchmark, small_model
from reliability import forks
from reliability.case import Case, Failed, Place
from reliability.faults import Faults
from reliability.subjects import Subject, contents, difference, ready
from ttaps.adaptation.spec import parse_methods
from ttaps.evaluation import plan
from ttaps.evaluation.plan import Shard
from ttaps.evaluation.run import evaluate

METHODS = "source,augment,tent[steps=2],memo[num_views=3],ttaps[steps=2,num_pairs=2,lr=3.0],ttaps:tuned[num_pairs=2]"
IMAGES = 22  # under three corruptions: more than the largest group
THREADS, GROUPS, SHARDS = (1, 2, 7), (1, 2, 3, 5, 8, 16, 33, 64), (1, 4)
ORDERS = ("stratified", "reversed", "shuffled")


class Setting(NamedTuple):
    """All that must not matter."""

    threads: int = 1
    order: str = "stratified"
    group: int = 8
    shards: int = 1
    together: bool = False  # all shards at once, each in its own process


def run(setting: Setting, folder: Path, place: Place) -> None:
    """Evaluate in processes forked for it."""
    parts = [Shard(index, setting.shards) for index in range(setting.shards)]

    def work(part: Shard) -> int:
        torch.set_num_threads(setting.threads)
        with patch.object(plan, "stratified_order", partial(in_order, setting.order)):
            data, methods = small_benchmark(2 if place.short else IMAGES), parse_methods(METHODS)
            shared = data.plan(shard=part)
            evaluate(small_model(), data, methods, (0,), folder=folder, plan=shared, group=setting.group)
        return 0

    running: list[forks.Child] = []
    for part in parts:
        running.append(forks.start(partial(work, part), place.log(), f"evaluate, {setting}"))
        for child in [] if setting.together else running:
            child.wait()
    for child in running:
        if child.wait():
            raise Failed(f"{setting}: {child.said[-2000:]}")


def in_order(order: str, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the images in one of three orders."""
    numbers = np.arange(len(labels), dtype=np.int64)
    return {
        "stratified": numbers,
        "reversed": numbers[::-1],
        "shuffled": np.random.default_rng(1).permutation(numbers),
    }[order]


@contextmanager
def busy_cores() -> Iterator[None]:
    """Keep every core that this program may use busy."""
    burning = []
    for _ in os.sched_getaffinity(0):
        if not (pid := os.fork()):
            forks.end_with_parent()
            while True:
                sum(range(100_000))
        burning.append(pid)
    try:
        yield
    finally:
        for pid in burning:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def compare(setting: Setting, place: Place, expected: object) -> int:
    """Evaluate with a setting and compare every row."""
    with place.folder() as folder, busy_cores():
        run(setting, folder, place)
        if results(folder) != expected:
            raise Failed(f"other rows with {setting}")
    return 1


def settings(place: Place) -> Iterator[tuple[str, Setting]]:
    """Yield one changed thing at a time, then several at once; three of several at once for the short form."""
    if place.short:
        yield "2 threads, reversed, groups of 3", Setting(2, "reversed", 3)
        yield "7 threads, shuffled, groups of 64", Setting(7, "shuffled", 64)
        yield "2 shards, at once", Setting(shards=2, together=True)
        return
    for threads in THREADS:
        yield f"{threads} threads", Setting(threads=threads)
    for order in ORDERS:
        yield "orders", Setting(order=order)
    for group in GROUPS:
        yield "groups of 1 to 64", Setting(group=group)
    for together in (False, True):
        yield "4 shards" + ", at once" * together, Setting(shards=4, together=together)
    while True:
        pick = place.rng.choice
        yield "all at once", Setting(pick(THREADS), pick(ORDERS), pick(GROUPS), pick((*SHARDS, 2)), pick((True, False)))


def two_processes(place: Place, expected: dict[str, object]) -> int:
    """Evaluate as torchrun does, in two processes with 2 threads each."""
    subject = Subject("evaluate", (COMMAND.replace("--threads 1", "--threads 2"),), processes=2)
    with place.folder() as folder, busy_cores():
        subject.finish(place, folder)
        if wrong := difference(contents(folder), expected):
            raise Failed(wrong)
    return 1


COMMAND = "evaluate {inputs}/model --data {inputs}/images.npz --methods source,ttaps[steps=2,num_pairs=2] --threads 1 --out results"


def cases(place: Place, faults: Faults) -> Iterator[Case]:
    """Yield evaluations."""
    with ready(place):
        with place.folder() as folder:
            run(Setting(), folder, place)
            expected = results(folder)
        with place.folder() as folder:
            Subject("evaluate", (COMMAND,)).finish(place, folder)
            alone = contents(folder)
        yield Case("2 processes", partial(two_processes, place, alone))
        for number, (name, setting) in enumerate(settings(place)):
            yield Case(name, partial(compare, setting, place, expected))
            if number % 25 == 24:
                yield Case("2 processes", partial(two_processes, place, alone))
