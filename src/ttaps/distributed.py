"""Data-parallel training: under ``torchrun`` each process takes some rows of a batch, and all take the same step.

No module is wrapped. In a step the processes exchange their sums over the batch (Sinkhorn), sum their gradients in one message, and sum
the loss terms for the log. Without ``torchrun`` there is one process, and nothing is sent."""

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

AGAIN = "Start the same command again: it resumes from what was saved last."
PATIENCE = timedelta(minutes=10)  # for a process that is silent; one that has died is noticed at once


@dataclass(frozen=True)
class Ranks:
    """This process's rank among those of the job."""

    rank: int = 0
    size: int = 1
    device: str = "cpu"  # where it computes, and where tensors must be to be sent

    @property
    def first(self) -> bool:
        """Whether this process logs and writes files."""
        return self.rank == 0

    def rows(self, total: int, task: int = 1) -> slice:
        """Return this process's rows of a batch; shares differ by at most one row, or one task of ``task`` rows."""
        tasks = total // task
        if tasks < self.size:
            raise UsageError(f"A batch of {total} images is too small to split over {self.size} processes.")
        return slice(tasks * self.rank // self.size * task, tasks * (self.rank + 1) // self.size * task)

    def logsumexp(self, logits: Tensor) -> Tensor:
        """Sum over the rows of all processes in the log domain: first per process, then over processes."""
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

    def reduce_metrics(self, parts: dict[str, Tensor], rows: slice, total: int) -> dict[str, Tensor]:
        """Return the loss terms over all ``total`` rows, from means over this process's ``rows`` or one entry per row."""
        if self.size == 1:
            return parts
        means = [name for name, part in parts.items() if part.ndim == 0]
        share = (rows.stop - rows.start) / total
        sums = self._sum(torch.stack([parts[name].detach().double() for name in means]) * share)
        result = dict(zip(means, sums, strict=True))
        for name, part in parts.items():
            if part.ndim:
                result[name] = part.new_zeros(total)
                result[name][rows] = part
                self._sum(result[name])
        return result

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Send the first process's values to all."""
        for tensor in tensors if self.size > 1 else ():
            with _explain_failure():
                distributed.broadcast(tensor.detach(), 0)

    def broadcast_int(self, value: int) -> int:
        """Return the first process's value."""
        shared = torch.tensor(value, device=self.device)
        self.broadcast([shared])
        return int(shared)

    def assert_equal(self, what: str, *parts: str | int) -> None:
        """Refuse to start if the processes were given different values."""
        if self.size == 1:
            return
        seeds = self._gather(torch.tensor(derive_seed(*parts), device=self.device))
        if len(set(map(int, seeds))) > 1:
            raise UsageError(f"The processes of this job differ in {what}: give them all the same.")

    def wait(self) -> None:
        """Wait until every process gets here."""
        self._sum(torch.zeros(1, device=self.device))

    def _sum(self, tensor: Tensor) -> Tensor:
        if self.size > 1:
            with _explain_failure():
                distributed.all_reduce(tensor)
        return tensor

    def _gather(self, tensor: Tensor) -> list[Tensor]:
        """Return every process's tensor, by rank: all sum in the same order, so all get the same bits."""
        gathered = [torch.empty_like(tensor) for _ in range(self.size)]
        with _explain_failure():
            distributed.all_gather(gathered, tensor)
        return gathered


def find_device(device: str = "auto") -> str:
    """Return the device to use: ``auto`` is a GPU if there is one, each process's own under torchrun, or else cpu."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and "LOCAL_RANK" in os.environ:
        device = f"cuda:{os.environ['LOCAL_RANK']}"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        because = f": {reason}" if len(reason) < 100 else ""  # to an unknown name torch answers with all it knows
        remedy = "Choose cpu, cuda or mps; auto takes cuda where there is one, else cpu."
        raise UsageError(f"Device '{device}' cannot be used here{because}.\n{remedy}") from error
    return device


@contextmanager
def init_distributed(device: str = "cpu", patience: timedelta = PATIENCE) -> Iterator[Ranks]:
    """Join the processes that ``torchrun`` started with this one, until the end of the block; without it, yield a single rank."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield Ranks(device=device)
        return
    place = torch.device(device)
    if place.type == "cuda":
        torch.cuda.set_device(place)
    try:
        distributed.init_process_group("nccl" if place.type == "cuda" else "gloo", timeout=patience)
    except (RuntimeError, ValueError) as error:
        raise TtapsError(f"The {size} processes did not join: {_reason(error)}.\nStart them with torchrun.") from error
    # Between GPUs a process may wait where no signal handler runs: there torchrun must end it itself.
    if place.type == "cpu":
        signal.signal(signal.SIGTERM, _terminated)
    try:
        yield Ranks(distributed.get_rank(), size, device)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        distributed.destroy_process_group()


@contextmanager
def _explain_failure() -> Iterator[None]:
    """Report that another process has ended."""
    try:
        yield
    except RuntimeError as error:
        raise TtapsError(f"Another process of this job has ended or is silent ({_reason(error)}).\n{AGAIN}") from error


def _terminated(number: int, frame: FrameType | None) -> NoReturn:
    raise TtapsError(f"Terminated, as torchrun does when another process of the job has ended.\n{AGAIN}")


def _reason(error: Exception) -> str:
    """Return the first sentence of torch's message, without its source location."""
    return str(error).splitlines()[0].split("] ", 1)[-1].split(". ")[0].rstrip(".")
