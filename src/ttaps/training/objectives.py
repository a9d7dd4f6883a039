"""Training objectives: each draws the views it needs and returns its loss and the terms to log."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.func import functional_call, grad
from torch.nn import functional as F

from ttaps import losses
from ttaps.model import Byol, Network
from ttaps.rng import generator
from ttaps.training.config import AugmentationConfig, Mt3Config, TrainConfig
from ttaps.training.data import TrainBatch
from ttaps.views import MT3_VIEWS, CropViews, PrimeViews, ShiftViews, SwavViews, quarter_turns, shift_task

Weights = dict[str, Tensor]
Objective = Callable[[Network, TrainBatch, TrainConfig, float], dict[str, Tensor]]
"""The last argument is the weight of the whole loss against the cross-entropy alone, above 0 and up to 1."""


def baseline(network: Network, batch: TrainBatch, config: TrainConfig, joint: float = 0.0) -> dict[str, Tensor]:
    """L_CE of one view of every image: a random crop or a SwAV view."""
    kind = config.augmentation.ce_only_view
    views = batch.views(SwavViews(), "s") if kind == "views" else supervised_crop(batch, config.augmentation, kind)
    logits = network(views)
    cross_entropy = F.cross_entropy(logits, batch.labels, label_smoothing=config.loss.label_smoothing)
    return {"loss": cross_entropy, "ce": cross_entropy, "accuracy": accuracy(logits, batch.labels)}


def jt(network: Network, batch: TrainBatch, config: TrainConfig, joint: float, entropy: bool) -> dict[str, Tensor]:
    """JT and JT+ENT, eq. (8): L_SwAV + γ1 L_CE + γ2 L_ent at ``joint`` = 1, and its blend with L_CE alone below that."""
    weights, augmentation, kind = config.loss, config.augmentation, SwavViews()
    second = with_prime(batch.views(kind, "t"), batch, augmentation.prime_swav_share, "prime-t", kind.scale)
    views = [batch.views(kind, "s"), second]
    if augmentation.ce_view != "views":
        views.append(supervised_crop(batch, augmentation, augmentation.ce_view))
    z_s, z_t, *z_ce = network.project(torch.cat(views)).split(len(batch.images))

    scores = network.scores(z_s), network.scores(z_t)
    settings = weights.epsilon, weights.sinkhorn_iterations, batch.logsumexp
    codes_s, codes_t = (losses.sinkhorn_codes(each, *settings) for each in scores)
    both = losses.swapped_prediction(*scores, codes_s, codes_t, weights.tau)

    logits = network.classifier(torch.cat(z_ce or [z_s, z_t]))
    labels = batch.labels.repeat(len(logits) // len(batch.labels))
    cross_entropy = F.cross_entropy(logits, labels, label_smoothing=weights.label_smoothing)
    ent = losses.prototype_entropy(network.classifier(network.prototypes))

    swav = both / 2 if weights.swap_reduction == "mean" else both
    total = swav + weights.gamma_ce * cross_entropy + (weights.gamma_ent * ent if entropy else 0)
    parts = {"swav": both / 2, "ce": cross_entropy, "ent": ent, "accuracy": accuracy(logits, labels)}
    return {"loss": joint * total + (1 - joint) * cross_entropy, **parts, "used": scores[0].argmax(-1)}


def ttt(network: Network, batch: TrainBatch, config: TrainConfig, joint: float) -> dict[str, Tensor]:
    """TTT (Sun et al., 2020): L_CE + L_rotation, predicting how far an image was rotated, both on the same images."""
    colored = config.augmentation.ce_view == "color"
    images = supervised_crop(batch, config.augmentation, "color") if colored else batch.views(ShiftViews(), "crop")
    logits = network(images)
    cross_entropy = F.cross_entropy(logits, batch.labels, label_smoothing=config.loss.label_smoothing)

    turned, turns = rotated(images, batch, config.ttt.rotations)
    rotation_logits = network.rotation_branch()(turned)
    rotation = F.cross_entropy(rotation_logits, turns)
    accuracies = {"accuracy": accuracy(logits, batch.labels), "rotation_accuracy": accuracy(rotation_logits, turns)}
    return {"loss": cross_entropy + joint * rotation, "ce": cross_entropy, "rotation": rotation, **accuracies}


def mt3(network: Network, batch: TrainBatch, config: TrainConfig, joint: float) -> dict[str, Tensor]:
    """MT3 (Bartler et al., 2022): L_CE + γ L_BYOL after one inner step per task; the gradient passes through the step."""
    byol = network.byol()
    weights: Weights = dict(byol.named_parameters())
    logits, byol_losses = [], []
    for task in draw_tasks(batch, config.mt3.task_images):  # 4 % faster on a CPU than vmap with 32 filters
        pairs = slice(len(task) // 3 * 2)
        adapted = inner_step(byol, weights, task[pairs], config.mt3)
        z, predictions = functional_call(byol, adapted, (task,))
        logits.append(network.classifier(z[pairs.stop :]))
        byol_losses.append(losses.byol(predictions[pairs], z[pairs]))

    classes, byol_loss = torch.cat(logits), torch.stack(byol_losses).mean()
    cross_entropy = F.cross_entropy(classes, batch.labels, label_smoothing=config.loss.label_smoothing)
    parts = {"ce": cross_entropy, "byol": byol_loss, "accuracy": accuracy(classes, batch.labels)}
    return {"loss": cross_entropy + config.mt3.gamma_byol * byol_loss, **parts}


OBJECTIVES: dict[str, Objective] = {
    "baseline": baseline,
    "jt": partial(jt, entropy=False),
    "jt+ent": partial(jt, entropy=True),
    "ttt": ttt,
    "mt3": mt3,
}


def supervised_crop(batch: TrainBatch, config: AugmentationConfig, kind: str) -> Tensor:
    """Return a ``crop`` of every image, or with ``color`` one augmented like SwAV's views; a share are PRIME views instead."""
    kinds = {"crop": CropViews, "color": SwavViews}
    views = batch.views(kinds[kind](scale=config.crop_scale), "crop")
    return with_prime(views, batch, config.prime_share, "prime", config.crop_scale)


def with_prime(views: Tensor, batch: TrainBatch, share: float, name: str, scale: tuple[float, float]) -> Tensor:
    """Replace a share of the views, spread evenly over the batch, by PRIME views of the same images."""
    rows = torch.arange(batch.total)
    chosen = ((rows + 1) * share).floor() > (rows * share).floor()
    own = chosen[batch.rows].nonzero()[:, 0]
    if len(own):
        views[own] = batch.views(PrimeViews(scale=scale), name, own)
    return views


def accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """Share of images whose largest logit is that of their label."""
    return (logits.argmax(-1) == labels).float().mean()


def rotated(images: Tensor, batch: TrainBatch, rotations: str) -> tuple[Tensor, Tensor]:
    """Return rotated images and their quarter turns: each image in all four rotations, or in one drawn for this step."""
    if rotations == "all":
        turns = torch.arange(4).repeat_interleave(len(images))
        images = images.repeat(4, 1, 1, 1)
    else:
        draw = generator(batch.seed, "turns", batch.step)
        turns = torch.randint(4, (batch.total,), generator=draw)[batch.rows]
    turns = turns.to(images.device)
    return quarter_turns(images, turns), turns


def draw_tasks(batch: TrainBatch, task_images: int) -> list[Tensor]:
    """Return the images of MT3's tasks, (3 * task_images, 3, H, W): two views of each image, then the images to classify."""
    kinds = ((MT3_VIEWS, "s"), (MT3_VIEWS, "t"), (ShiftViews(padding=2, flip_p=0.0), "crop"))
    views = torch.stack([batch.views(kind, name) for kind, name in kinds])  # (3, B, 3, H, W)
    tasks, first = views.split(task_images, dim=1), (batch.rows.start or 0) // task_images
    draws = (generator(batch.seed, "task", batch.step, first + number) for number in range(len(tasks)))
    return [shift_task(task.flatten(0, 1), draw) for task, draw in zip(tasks, draws, strict=True)]


def inner_step(byol: Byol, weights: Weights, pairs: Tensor, config: Mt3Config) -> Weights:
    """θ ← θ - α∇θ L_BYOL with clipped gradients, differentiable in θ."""

    def inner_loss(weights: Weights) -> Tensor:
        z, predictions = functional_call(byol, weights, (pairs,))
        return losses.byol(predictions, z)

    gradients: Weights = grad(inner_loss)(weights)
    return {name: w - config.inner_lr * clipped(gradients[name], config.inner_clip) for name, w in weights.items()}


def clipped(gradient: Tensor, most: float) -> Tensor:
    """Clip a gradient to norm ``most``."""
    return gradient.div((gradient.norm() / most).clamp_min(1.0))
