"""Several processes on one batch: under ``torchrun`` each takes some of its rows, and all take the same step.

Nothing is wrapped. In a step the processes pass round their sums over the batch (Sinkhorn), add up their gradients in one message, and add
up the parts of the loss for whoever watches. Without ``torchrun`` there is one process, and nothing is sent.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from types import FrameType
from typing import NoReturn

import torch
from torch import Tensor, distributed, nn

from ttaps.errors import TtapsError, UsageError
from ttaps.rng import derive_seed
from ttaps.training.batch import Batch

AGAIN = "Start the same command again: it goes on from what was saved last."
PATIENCE = timedelta(minutes=10)  # for one that is silent; one that has died is noticed at once


@dataclass(frozen=True)
class Ranks:
    """This process's place among those that work together."""

    rank: int = 0
    size: int = 1
    device: str = "cpu"
    """Where tensors must be to be sent."""

    @property
    def first(self) -> bool:
        """Whether this process speaks and writes for all."""
        return self.rank == 0

    def rows(self, total: int, task: int = 1) -> slice:
        """Return this process's rows of a batch; shares differ by at most one row, or one task of ``task`` rows that stay together."""
        tasks = total // task
        if tasks < self.size:
            raise UsageError(f"A batch of {total} images is too small to share out over {self.size} processes.")
        return slice(tasks * self.rank // self.size * task, tasks * (self.rank + 1) // self.size * task)

    def logsumexp(self, logits: Tensor) -> Tensor:
        """Sum over the rows of all processes, in the log domain: each its own, then all sums together."""
        own = logits.logsumexp(0)
        return own if self.size == 1 else torch.stack(self._gather(own)).logsumexp(0)

    def add_gradients(self, weights: Iterable[nn.Parameter]) -> None:
        """Replace every gradient by its sum over all processes, in one message."""
        if self.size == 1:
            return
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        flat = self._sum(torch.cat([gradient.flatten() for gradient in gradients]))
        for gradient, total in zip(gradients, flat.split([one.numel() for one in gradients]), strict=True):
            gradient.copy_(total.view_as(gradient))

    def reduce_metrics(self, parts: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """Return the parts of the loss over the whole batch: a mean over rows stays one, a part with an entry per row gets all rows."""
        if self.size == 1:
            return parts
        means = [name for name, part in parts.items() if part.ndim == 0]
        totals = self._sum(torch.stack([parts[name].detach().double() for name in means]) * batch.share)
        result = dict(zip(means, totals, strict=True))
        for name, part in parts.items():
            if part.ndim:
                result[name] = part.new_zeros(batch.total or len(part))
                result[name][batch.rows] = part
                self._sum(result[name])
        return result

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Give the first process's values to all."""
        for tensor in tensors if self.size > 1 else ():
            with _in_touch():
                distributed.broadcast(tensor.detach(), 0)

    def broadcast_int(self, value: int) -> int:
        """Return the first process's value."""
        shared = torch.tensor(value, device=self.device)
        self.broadcast([shared])
        return int(shared)

    def assert_equal(self, what: str, *parts: str | int) -> None:
        """Refuse to go on when the processes were given different things."""
        if (
            self.size > 1
            and len(set(map(int, self._gather(torch.tensor(derive_seed(*parts), device=self.device))))) > 1
        ):
            raise UsageError(f"The processes of this job differ in {what}: give all of them the same.")

    def wait(self) -> None:
        """Wait until every process is here."""
        self._sum(torch.zeros(1, device=self.device))

    def _sum(self, tensor: Tensor) -> Tensor:
        if self.size > 1:
            with _in_touch():
                distributed.all_reduce(tensor)
        return tensor

    def _gather(self, tensor: Tensor) -> list[Tensor]:
        """Return everybody's tensor, in the order of ranks: all add up in the same order, so all get the same bits."""
        everybody = [torch.empty_like(tensor) for _ in range(self.size)]
        with _in_touch():
            distributed.all_gather(everybody, tensor)
        return everybody


@contextmanager
def init_distributed(device: str = "cpu", patience: timedelta = PATIENCE) -> Iterator[Ranks]:
    """Join the processes that ``torchrun`` started with this one, until the end of the block; without it, yield a single rank."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield Ranks()
        return
    place = torch.device(device)
    if place.type == "cuda":
        torch.cuda.set_device(place)
    try:
        distributed.init_process_group("nccl" if place.type == "cuda" else "gloo", timeout=patience)
    except (RuntimeError, ValueError) as error:
        raise TtapsError(
            f"The {size} processes of this job did not meet: {_reason(error)}.\nStart them with torchrun."
        ) from error
    if (
        place.type == "cpu"
    ):  # between GPUs a process may wait where it hears no signal: there torchrun must end it itself
        signal.signal(signal.SIGTERM, _told_to_stop)
    try:
        yield Ranks(distributed.get_rank(), size, device)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        distributed.destroy_process_group()


@contextmanager
def _in_touch() -> Iterator[None]:
    """Tell in plain words that somebody is gone."""
    try:
        yield
    except RuntimeError as error:
        raise TtapsError(f"Another process of this job has ended or is silent ({_reason(error)}).\n{AGAIN}") from error


def _told_to_stop(number: int, frame: FrameType | None) -> NoReturn:
    """Say why torchrun ends this process."""
    raise TtapsError(f"Told to stop, as torchrun does when another process of the job has ended.\n{AGAIN}")


def _reason(error: Exception) -> str:
    """Return the first sentence of torch's complaint, without the place in its source."""
    return str(error).splitlines()[0].split("] ", 1)[-1].split(". ")[0].rstrip(".")
