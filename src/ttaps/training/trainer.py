"""Training without a run folder: initial network (random or from a trained model), optimizer, schedule; one step, validation."""

import copy
import timeit
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from ttaps.data import ImageSet
from ttaps.distributed import Ranks
from ttaps.errors import CheckpointError, UsageError
from ttaps.model import Network, as_network, eval_mode, to_float
from ttaps.model.checkpoint import Model, load_model
from ttaps.model.network import count_features
from ttaps.model.own import Factory, backbone_factory
from ttaps.model.registry import folder_of
from ttaps.rng import derive_seed
from ttaps.training.config import TrainConfig
from ttaps.training.data import Split, TrainBatch, batch_indices, epoch_order
from ttaps.training.objectives import OBJECTIVES
from ttaps.training.optimizer import Optimizer, WeightEMA
from ttaps.training.schedule import Schedule

ALONE = Ranks()
CHUNK = 128  # images of one forward pass without gradients
CLASSIFIER_IMAGES = 2_000  # at most, for the means of the classes
HEADS_AND_PROTOTYPES = ("prototypes", "heads.")  # weights that belong to a loss rather than to the classifier
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the initial weights, to select from
MIN_SPEEDUP = 1.1  # less is not worth giving up the plain way
FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
TRIALS = 3  # timed steps of each candidate, after one that is not


class Numerics(NamedTuple):
    """Memory format and precision; stored with the run, so that a resumed run repeats the same bits."""

    memory_format: str = "contiguous"
    precision: str = "float32"

    def place(self, network: nn.Module) -> None:
        """Set the memory format of a network's weights."""
        network.to(memory_format=FORMATS[self.memory_format])  # type: ignore[call-overload]

    def autocast(self, device: torch.device) -> torch.autocast:
        """Return the context of a forward pass."""
        return torch.autocast(device.type, torch.bfloat16, enabled=self.precision == "bfloat16")

    def __str__(self) -> str:
        return f"{self.memory_format} {self.precision}"


class Trainer:
    """Takes training steps, on some rows of each batch if there are other ``ranks``. All randomness depends only on (seed, step)."""

    def __init__(
        self, config: TrainConfig, split: Split, ranks: Ranks = ALONE, backbone: Factory | None = None
    ) -> None:
        if ranks.size > 1 and config.model.norm == "batch":
            raise UsageError("model.norm = batch needs the whole batch in one process: use 1 process or group norm.")
        self.config, self.split, self.ranks, self.device = config, split, ranks, torch.device(ranks.device)
        try:
            self.start = load_model(folder_of(config.init_from)) if config.init_from else None
        except CheckpointError as error:
            remedy = "A clone of the repository has its models; otherwise train it and give its folder as --init-from."
            raise CheckpointError(f"init_from: {error}\n{remedy}") from error
        # A run that starts from weights has other orders and views than the run that made them.
        self.fingerprint = self.start.fingerprint if self.start else ""
        self.seed = derive_seed(config.seed, "after", self.fingerprint) if self.start else config.seed
        self.network = initial_network(config, self.start, split.train.classes, backbone).to(self.device)
        if config.backbone:
            self._check_backbone()
        self.images = torch.from_numpy(split.train.images).to(self.device)
        self.labels = torch.from_numpy(split.train.labels).to(self.device)
        self.same_classes = self.start is not None and self.start.classes == split.train.classes
        if config.init_classifier_from_data and not self.same_classes:
            self._init_classifier()
        kept = self.network.state_dict() if self.start else {}
        self.initial = {name: weight.clone() for name, weight in kept.items()}
        self.share = config.wise_ft
        weights = dict(self.network.named_parameters())
        self.optimizer = Optimizer(weights, config.optimizer)
        self.ema = WeightEMA(weights, config.ema_decay) if config.ema_decay else None
        self.schedule = Schedule.of(config, len(self.images))
        self.numerics = candidates(config)[0]
        if config.compile:
            self.network.backbone.compile()

    def _check_backbone(self) -> None:
        """Refuse a backbone of the user's own that cannot take what the run gives it."""
        for size in sorted({self.config.model.image_size, *self.config.schedule.resolutions}):
            count_features(self.network.backbone, size)
        normed = any(isinstance(layer, _BatchNorm) for layer in self.network.backbone.modules())
        if normed and (self.ranks.size > 1 or self.config.objective == "mt3"):
            alone = "objective mt3 does not support running statistics"
            why = "1 process has it" if self.ranks.size > 1 else alone
            raise UsageError(f"The backbone has BatchNorm, which needs the whole batch: {why}.")

    def step(self, step: int) -> dict[str, Tensor]:
        """Take one gradient step on one batch, and return the loss terms."""
        batch, joint = self.batch(step), self.schedule.joint_weight(step)
        if self.schedule.joint_begins(step):
            self.begin_joint(self.schedule.size(step), self.start if step == 0 else None)
        objective = OBJECTIVES[self.config.objective if joint else "baseline"]
        with self.numerics.autocast(self.device):
            parts = objective(self.network, batch, self.config, joint)
        self.network.zero_grad(set_to_none=True)
        (parts["loss"] * (len(batch.images) / batch.total)).backward()  # the mean over its rows, by their share
        if self.schedule.prototypes_frozen(step):
            self.network.prototypes.grad = None
        self.ranks.add_gradients(self.network.parameters())
        self.optimizer.step(self.schedule.lr_factor(step))
        self.network.renormalize_prototypes()
        if self.ema:
            self.ema.update(step)
        detached = {name: part.detach() for name, part in parts.items()}
        return self.ranks.reduce_metrics(detached, batch.rows, batch.total)

    def batch(self, step: int) -> TrainBatch:
        """Return the images of one step, or this process's rows of them."""
        task, count = self.config.mt3.task_images if self.config.objective == "mt3" else 1, len(self.images)
        chosen = batch_indices(count, self.config.batch_size, self.seed, step)
        chosen = chosen[: len(chosen) // task * task]
        if not len(chosen):
            raise UsageError(f"mt3 needs at least one task of {task} training images (mt3.task_images), not {count}.")
        rows = self.ranks.rows(len(chosen), task)
        own, drawn = chosen[rows].to(self.device), (self.seed, step, self.schedule.size(step))
        return TrainBatch(self.images[own], self.labels[own], *drawn, rows, len(chosen), self.ranks.logsumexp)

    @torch.no_grad()
    def begin_joint(self, size: int, start: Model | None = None) -> None:
        """Initialize the parts not trained by cross-entropy from what the network has learned, unless trained in ``start``."""
        theirs = as_network(start.network) if start else None
        prototypes = theirs.prototypes if start and theirs and start.objective in ("jt", "jt+ent") else None
        trained = self.same_classes and prototypes is not None and prototypes.shape == self.network.prototypes.shape
        if self.config.init_prototypes_from_data and not trained:
            # As far as there are so many images; training has left the random prototypes far off.
            projections, _ = self._projections(self.config.model.num_prototypes, size)
            self.network.prototypes[: len(projections)] = projections
            self.ranks.broadcast([self.network.prototypes])
        if self.config.objective == "ttt" and not (theirs and "rotation" in theirs.heads):
            self.network.start_rotation_head()
        if self.ema:  # what starts now has no past to average
            self.ema.restart(HEADS_AND_PROTOTYPES)

    @torch.no_grad()
    def _init_classifier(self) -> None:
        """Let the classifier choose the class whose mean projection is nearest: a softmax of -|z - mean|²/2τ, as of prototypical networks.
        On 300 images of three classes this is right where the old classifier, restricted to these, is; a random one unlearns that."""
        z, labels = self._projections(CLASSIFIER_IMAGES, self.config.model.image_size)
        weight, bias, tau = self.network.classifier.weight, self.network.classifier.bias, self.config.loss.tau
        for label in labels.unique():
            mean = z[labels == label].mean(0)
            weight[label], bias[label] = mean / tau, mean.square().sum() / (-2 * tau)

    def _projections(self, count: int, size: int) -> tuple[Tensor, Tensor]:
        """Return z and the labels of so many training images, drawn at random."""
        chosen = epoch_order(len(self.images), self.seed, -1)[:count].to(self.device)
        images = F.interpolate(to_float(self.images[chosen]), (size, size), mode="bilinear", antialias=True)
        with eval_mode(self.network):  # a BatchNorm must not count these images
            return torch.cat([self.network.project(part).float() for part in images.split(CHUNK)]), self.labels[chosen]

    def result(self) -> Network:
        """Return the network to save: EMA or last weights, interpolated with the initial ones."""
        share = self.share
        if not self.ema and not share:
            return self.network
        weights = self.network.state_dict() | (self.ema.weights if self.ema else {})
        theirs = self.initial if share else {}
        drawn = not self.same_classes and not self.config.init_classifier_from_data
        own = ("classifier.", *HEADS_AND_PROTOTYPES) if drawn else HEADS_AND_PROTOTYPES
        for name in weights.keys() & theirs.keys():
            if weights[name].is_floating_point() and not name.startswith(own):
                weights[name] = weights[name].lerp(theirs[name].to(weights[name]), share)
        network = copy.deepcopy(self.network)
        network.load_state_dict(weights)
        network.renormalize_prototypes()
        return network

    def select_share(self) -> None:
        """Choose the share of the initial weights that is best on the validation images; among ties the largest, which changes least."""

        def measured(share: float) -> tuple[float, float]:
            self.share = share
            return measure_accuracy(self.result(), self.split.validation), share

        self.share = max(map(measured, SHARES))[1]

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """Return all tensors that change from step to step, by group and name."""
        groups = {"weights": self.network.state_dict(), "momentum": self.optimizer.momentum}
        return groups | ({"average": self.ema.weights} if self.ema else {})


@torch.no_grad()
def initial_network(
    config: TrainConfig, start: Model | None = None, classes: tuple[str, ...] = (), backbone: Factory | None = None
) -> Network:
    """Return the network before the first step: random by the seed alone, or with the weights of ``start`` that fit.
    ``backbone`` makes the backbone if ``config.backbone`` cannot."""
    if config.backbone.startswith("<") and backbone is None:
        given = f"The backbone {config.backbone} was given in Python"
        raise UsageError(f"{given}: ttaps.train(..., backbone=...) resumes it.")
    make = backbone or (backbone_factory(config.backbone) if config.backbone else None)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(config.seed, "weights"))
        network = Network(config.model, make() if make else None).train()
    if start is None:
        return network
    theirs = start.network.state_dict()
    for name, weight in network.state_dict().items():  # a classifier of other ``classes`` and other heads stay random
        if name.startswith("classifier.") and start.classes != classes:
            continue
        if name in theirs and theirs[name].shape == weight.shape:
            weight.copy_(theirs[name])
        elif not name.startswith(("classifier.", *HEADS_AND_PROTOTYPES)):
            there = f"shape {tuple(theirs[name].shape)}" if name in theirs else "no such weights"
            here = f"init_from: '{name}' has shape {tuple(weight.shape)} here"
            settings = "--model.width, --model.depth, ...; see its train.toml"
            remedy = f"Use that model's architecture for this run ({settings})."
            raise UsageError(f"{here} and {there} in the model '{start.name}'.\n{remedy}")
    return network


@torch.no_grad()
def measure_accuracy(network: Network, data: ImageSet, size: int | None = None, limit: int | None = None) -> float:
    """Return the accuracy on images (at most ``limit``), at ``size`` pixels (their own unless given)."""
    images, labels = torch.from_numpy(data.images[:limit]), torch.from_numpy(data.labels[:limit])
    device, right = next(network.parameters()).device, 0
    with eval_mode(network):
        for chunk, truth in zip(images.split(CHUNK), labels.split(CHUNK), strict=True):
            pixels = to_float(chunk.to(device))
            if size not in (None, images.shape[-1]):
                pixels = F.interpolate(pixels, (size, size), mode="bilinear", antialias=True)
            right += int((network(pixels).argmax(-1) == truth.to(device)).sum())
    return right / max(1, len(images))


def candidates(config: TrainConfig) -> list[Numerics]:
    """Return what the settings allow, the plain one first."""
    formats = FORMATS if config.memory_format == "auto" else [config.memory_format]
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
    """Return the shortest time of a step: other load can only make it longer."""
    numerics.place(network)

    def step() -> None:
        with numerics.autocast(images.device):
            loss = network(images).float().square().mean()
        network.zero_grad(set_to_none=True)
        loss.backward()
        if images.device.type == "cuda":
            torch.cuda.synchronize()

    return min(timeit.repeat(step, number=1, repeat=TRIALS + 1)[1:])
