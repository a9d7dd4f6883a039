"""One training run without its folder: network, optimizer, schedule; one step and validation."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ttaps.distributed import Ranks
from ttaps.errors import UsageError
from ttaps.model import Network, eval_mode, to_float
from ttaps.model.checkpoint import Model
from ttaps.model.heads import start_rotation_head
from ttaps.rng import derive_seed
from ttaps.training.config import TrainConfig
from ttaps.training.data import Batch, Split, batch_indices, epoch_order
from ttaps.training.init_from import (
    HEADS_AND_PROTOTYPES,
    has_trained,
    init_model,
    interpolate_weights,
    load_init_weights,
)
from ttaps.training.numerics import candidates
from ttaps.training.objectives import OBJECTIVES
from ttaps.training.optimizer import Optimizer, WeightEMA
from ttaps.training.schedule import Schedule

ALONE = Ranks()
CHUNK = 128  # images of one forward pass without gradients


class Trainer:
    """Takes training steps. Everything random is a function of (seed, step), so any step can be repeated exactly.

    With several ``ranks`` each takes some rows of every batch, and all take the same step.
    """

    def __init__(self, config: TrainConfig, split: Split, device: str = "cpu", ranks: Ranks = ALONE) -> None:
        if ranks.size > 1 and config.model.norm == "batch":
            raise UsageError("model.norm = batch needs the whole batch in one process: use 1 process or group norm.")
        self.config, self.split, self.ranks, self.device = config, split, ranks, torch.device(device)
        self.start = init_model(config.init_from)
        if self.start and config.wise_ft and self.start.classes != split.train.classes:
            raise UsageError(
                f"wise_ft interpolates between classifiers, but '{config.init_from}' was trained for other classes than "
                f"{config.data} has: --wise-ft 0."
            )
        # A run that starts from weights has other orders and views than the run that made them.
        self.seed = derive_seed(config.seed, "after", self.start.fingerprint) if self.start else config.seed
        self.network = initial_network(config, self.start, split.train.classes).to(self.device)
        weights = dict(self.network.named_parameters())
        self.optimizer = Optimizer(weights, config.optimizer)
        self.ema = WeightEMA(weights, config.ema_decay) if config.ema_decay else None
        self.images = torch.from_numpy(split.train.images).to(self.device)
        self.labels = torch.from_numpy(split.train.labels).to(self.device)
        self.schedule = Schedule.of(config, len(self.images))
        self.numerics = candidates(config)[0]
        if config.compile:
            self.network.backbone.compile()

    def step(self, step: int) -> dict[str, Tensor]:
        """Take one gradient step on one batch, and return the parts of the loss."""
        batch, joint = self.batch(step), self.schedule.joint_weight(step)
        if self.schedule.joint_begins(step):
            self.begin_joint(self.schedule.size(step), self.start if step == 0 else None)
        objective = OBJECTIVES[self.config.objective if joint else "baseline"]
        with self.numerics.autocast(self.device):
            parts = objective(self.network, batch, self.config, joint)
        self.network.zero_grad(set_to_none=True)
        (parts["loss"] * batch.share).backward()
        if self.schedule.prototypes_frozen(step):
            self.network.prototypes.grad = None
        self.ranks.add_gradients(self.network.parameters())
        self.optimizer.step(self.schedule.lr_factor(step))
        self.network.renormalize_prototypes()
        if self.ema:
            self.ema.update(step)
        return self.ranks.reduce_metrics(parts, batch.rows, batch.total or len(batch.images))

    def batch(self, step: int) -> Batch:
        """Return the images of one step, or this process's rows of them."""
        task = self.config.mt3.task_images if self.config.objective == "mt3" else 1
        chosen = batch_indices(len(self.images), self.config.batch_size, self.seed, step)
        chosen = chosen[: len(chosen) // task * task]
        if not len(chosen):
            raise UsageError(
                f"mt3 needs at least one task of {task} training images (mt3.task_images), not {len(self.images)}."
            )
        rows = self.ranks.rows(len(chosen), task)
        own, size = chosen[rows].to(self.device), self.schedule.size(step)
        common = self.seed, step, size, rows, len(chosen), self.ranks.logsumexp
        return Batch(self.images[own], self.labels[own], *common)

    def begin_joint(self, size: int, start: Model | None = None) -> None:
        """Initialize what the cross-entropy alone has not trained from what the network has learned, unless ``start`` had trained it."""
        if self.config.init_prototypes_from_data and not has_trained(start, self.network, "prototypes"):
            self.init_prototypes(size)
        if self.config.objective == "ttt" and not has_trained(start, self.network, "rotation"):
            start_rotation_head(self.network)
        if self.ema:  # what starts now has no past to average
            self.ema.restart(HEADS_AND_PROTOTYPES)

    @torch.no_grad()
    def init_prototypes(self, size: int) -> None:
        """Move the prototypes to projections of training images, as far as there are so many: training has left random ones far off."""
        chosen = epoch_order(len(self.images), self.seed, -1)[: self.config.model.num_prototypes].to(self.device)
        images = F.interpolate(to_float(self.images[chosen]), (size, size), mode="bilinear", antialias=True)
        with eval_mode(self.network):  # a BatchNorm must not count these images
            projections = torch.cat([self.network.project(part) for part in images.split(CHUNK)])
        self.network.prototypes[: len(projections)] = projections.float()
        self.ranks.broadcast([self.network.prototypes])

    def validate(self, size: int, limit: int | None = None) -> float:
        """Return the accuracy of the result so far on validation images."""
        images, labels = self.split.validation.images[:limit], self.split.validation.labels[:limit]
        return accuracy(self.result(), torch.from_numpy(images), torch.from_numpy(labels), size)

    def result(self) -> Network:
        """Return the network as the run would deliver it now: EMA or last weights, interpolated with those it started from."""
        if not self.ema and not self.config.wise_ft:
            return self.network
        weights = self.network.state_dict() | (self.ema.weights if self.ema else {})
        if self.start and self.config.wise_ft:
            weights = interpolate_weights(weights, self.start, self.config.wise_ft)
        network = Network(self.config.model).to(self.device)
        network.load_state_dict(weights)
        network.renormalize_prototypes()
        return network

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """Return all tensors that change from step to step, by group and name."""
        groups = {"weights": self.network.state_dict(), "momentum": self.optimizer.momentum}
        return groups | ({"average": self.ema.weights} if self.ema else {})


def initial_network(config: TrainConfig, start: Model | None = None, classes: tuple[str, ...] = ()) -> Network:
    """Return the network before the first step: random, as a function of the seed alone, or with the weights of a model."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(config.seed, "weights"))
        network = Network(config.model).train()
    if start:
        load_init_weights(network, start, classes)
    return network


@torch.no_grad()
def accuracy(network: Network, images: Tensor, labels: Tensor, size: int | None = None) -> float:
    """Return the share of images classified right, at ``size`` pixels (their own unless given)."""
    device = next(network.parameters()).device
    right = 0
    with eval_mode(network):
        for chunk, truth in zip(images.split(CHUNK), labels.split(CHUNK), strict=True):
            pixels = to_float(chunk.to(device))
            if size not in (None, images.shape[-1]):
                pixels = F.interpolate(pixels, (size, size), mode="bilinear", antialias=True)
            right += int((network(pixels).argmax(-1) == truth.to(device)).sum())
    return right / max(1, len(images))
