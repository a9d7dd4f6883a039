"""What the paper's whole grid would take on GPUs: operations and messages by count, times by assumption.

    python tools/grid_estimate.py            prints the estimate of docs/notes/speed.md; a minute on one core, and no data set is needed

Counted: operations of a training step and of adapting to one image, for every model and method of ``presets/reproduce/paper-*.toml``,
and the messages of a training step. Assumed: the constants below.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from unittest.mock import patch

import torch
from torch import distributed

from ttaps.adaptation import Method
from ttaps.adaptation.engine import CarriedState
from ttaps.adaptation.spec import method_spec
from ttaps.bench import operations
from ttaps.data.sample import read_sample, read_sample_train
from ttaps.distributed import Ranks
from ttaps.model import ModelConfig
from ttaps.reproduce import GridJob, read_grid
from ttaps.training.config import TrainConfig, find_preset
from ttaps.training.data import Split
from ttaps.training.schedule import Schedule
from ttaps.training.trainer import Trainer, initial_network

RATE = 5e12  # operations a second that a GPU sustains: a quarter of an A100's float32 peak
NEAR, FAR = 100e9, 10e9  # bytes a second of an all-reduce, inside a machine and between machines
LATENCY = 50e-6  # seconds a message takes however short it is
TEAM = 4  # GPUs that share a training: MT3's batch is four tasks, which are not torn apart

GRIDS = ("paper-cifar10", "paper-cifar100")
IMAGES, CORRUPTED = 40_000, 15 * 10_000  # of a training epoch, and of CIFAR-C at one severity
COUNTED = 16  # images of the step whose operations are counted
HOUR = 3600

IMAGENET, IMAGENET_C, EPOCHS, BATCH = 1_281_167, 15 * 50_000, 90, 4096
RESNET50, WEIGHTS = 8.2e9, 25.6e6  # operations of a forward pass at 224 pixels, and weights


@dataclass(frozen=True)
class Training:
    """One kind of training, by count."""

    image: float
    """Operations for one image."""
    batch: int
    steps: int
    messages: tuple[int, ...]
    """Bytes of each message of a step."""

    @property
    def operations(self) -> float:
        """Of the whole training."""
        return self.image * self.batch * self.steps

    def seconds(self, gpus: int) -> float:
        """Return how long it takes on so many GPUs of one machine; nothing is sent while anything is computed."""
        return self.operations / (RATE * gpus) + self.steps * sending(self.messages, gpus, NEAR)


def sending(messages: Sequence[float], gpus: int, bandwidth: float) -> float:
    """Return the seconds of a step's messages: in a ring each process sends its part on, 2 (n - 1) times."""
    if gpus == 1:
        return 0.0
    return sum(messages) * 2 * (gpus - 1) / gpus / bandwidth + len(messages) * LATENCY


@cache
def training(config: TrainConfig) -> Training:
    """Count a training's operations and messages; its steps are those of the paper's 40,000 images."""
    split = Split.of(read_sample_train())
    sample = Trainer(replace(config, batch_size=COUNTED), split)
    steps = Schedule.of(config, IMAGES).steps
    return Training(operations(lambda: sample.step(0)) / COUNTED, config.batch_size, steps, messages(config, split))


def messages(config: TrainConfig, split: Split) -> tuple[int, ...]:
    """Do one process's part of a step among two, and write down what it would send; of a shorter batch, which changes only the last."""
    sent: list[int] = []
    with (
        patch.object(distributed, "all_reduce", lambda tensor: sent.append(tensor.nbytes)),
        patch.object(distributed, "all_gather", lambda everybody, tensor: sent.append(tensor.nbytes)),
    ):
        Trainer(replace(config, batch_size=COUNTED), split, ranks=Ranks(0, 2)).step(0)
    return tuple(sent)


@cache
def adapting(config: TrainConfig, method: Method) -> int:
    """Count the operations of a method on one image, with an untrained network; in this thread, where they can be counted."""
    network, image = initial_network(config).eval(), torch.from_numpy(read_sample("fog").images[:1])
    with patch("ttaps.adaptation.method.map_images", lambda adapt_one, *_: adapt_one(image, 0, CarriedState())):
        return operations(lambda: method.adapt(network, image, [0]))


def kind(job: GridJob) -> TrainConfig:
    """Return a job's training without its seed, which changes no count."""
    return replace(job.train, seed=0)


def makespan(trainings: Sequence[Training], gpus: int) -> float:
    """Return the seconds until all are done, the longest first, each by a team of its own."""
    team = min(gpus, TEAM)
    free = [0.0] * (gpus // team)
    for seconds in sorted((one.seconds(team) for one in trainings), reverse=True):
        free[free.index(min(free))] += seconds
    return max(free)


def print_counts(jobs: Sequence[GridJob]) -> None:
    """Print a line for each kind of model."""
    print(
        "| model | an image of a step | a step sends | a training | method: adapting to one image |\n|---|--:|--:|--:|---|"
    )
    for job in jobs:
        one = training(kind(job))
        methods = ", ".join(f"{method_spec(one)} {adapting(kind(job), one) / 1e9:.3g} G" for one in job.methods)
        name, sent = job.name.rpartition("-seed")[0], f"{sum(one.messages) / 1e6:.1f} MB in {len(one.messages)}"
        classes = job.train.model.num_classes
        print(
            f"| {name}, {classes} classes | {one.image / 1e9:.2f} G | {sent} | {one.operations / 1e15:.1f} P | {methods} |"
        )


def print_times(grids: dict[str, list[GridJob]]) -> None:
    """Print hours on 1, 8 and 64 GPUs."""
    print("\n| | operations | 1 GPU | 8 GPUs | 64 GPUs |\n|---|--:|--:|--:|--:|")
    for name, jobs in {**grids, "both": list(chain(*grids.values()))}.items():
        trainings = [training(kind(job)) for job in jobs]
        adapted = CORRUPTED * sum(adapting(kind(job), method) for job in jobs for method in job.methods)
        times = [(makespan(trainings, gpus), adapted / RATE / gpus) for gpus in (1, 8, 64)]
        sums = [sum(one.operations for one in trainings), adapted]
        for row, what in enumerate((f"{len(jobs)} trainings", "evaluation")):
            hours = " | ".join(f"{time[row] / HOUR:,.1f} h" for time in times)
            print(f"| {name}: {what} | {sums[row] / 1e15:,.0f} P | {hours} |")
        print(
            f"| {name}: together | {sum(sums) / 1e15:,.0f} P | {' | '.join(f'{sum(time) / HOUR:,.1f} h' for time in times)} |"
        )


def print_sending(one: Training) -> None:
    """Print the share of a step that is sending."""
    print("\n| jt+ent, K = 300 | computing | sending |\n|---|--:|--:|")
    for gpus, bandwidth, where in ((4, NEAR, "one machine"), (8, NEAR, "one machine"), (64, FAR, "eight machines")):
        computing, sent = one.image * one.batch / RATE / gpus, sending(one.messages, gpus, bandwidth)
        print(f"| {gpus} GPUs, {where} | {1e3 * computing:.1f} ms | {1e3 * sent:.2f} ms |")


def print_imagenet(one: Training, forward: int, adapted: int) -> None:
    """Print what ResNet-50 on ImageNet would take on 64 GPUs, at the same multiples of a forward pass as here."""
    image, gpus = RESNET50 * one.image / forward, 64
    step = image * BATCH / RATE / gpus + sending([4 * WEIGHTS, *sorted(one.messages)[:-1]], gpus, FAR)
    trained = EPOCHS * IMAGENET / BATCH * step
    severity = IMAGENET_C * RESNET50 * adapted / forward / RATE / gpus
    print(
        f"\nForward: {forward / 1e9:.3f} G; an image of a step {one.image / forward:.1f} times that, TTAPS {adapted / forward:,.0f} times."
    )
    hours = (trained / HOUR, severity / HOUR, 5 * severity / HOUR)
    print("ImageNet on 64 GPUs: training {:.1f} h, ImageNet-C {:.1f} h a severity, {:.0f} h for five.".format(*hours))


def main() -> None:
    """Count, and print."""
    torch.set_num_threads(1)
    grids = {name: read_grid(find_preset(name, grids=True))[1] for name in GRIDS}
    print_counts([job for jobs in grids.values() for job in jobs if job.train.seed == 0])
    print_times(grids)
    usual = next(
        kind(job) for job in grids[GRIDS[0]] if job.train.objective == "jt+ent" and job.train.model == ModelConfig()
    )
    print_sending(training(usual))
    print_imagenet(training(usual), adapting(usual, "source"), adapting(usual, "ttaps"))


if __name__ == "__main__":
    main()
