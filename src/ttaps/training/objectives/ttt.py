"""TTT (Sun et al., 2020): the cross-entropy, and the cross-entropy of recognizing how far an image was rotated."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ttaps.model import Network
from ttaps.rng import generator
from ttaps.training.config import TrainConfig
from ttaps.training.data import Batch
from ttaps.training.objectives import baseline
from ttaps.training.objectives.baseline import accuracy
from ttaps.views import ShiftViews, quarter_turns


def loss(network: Network, batch: Batch, config: TrainConfig, joint: float) -> dict[str, Tensor]:
    """L_CE + L_rotation, both of the same images."""
    colored = config.augmentation.ce_view == "color"
    images = baseline.crop(batch, config.augmentation, "color") if colored else batch.views(ShiftViews(), "crop")
    logits = network(images)
    cross_entropy = F.cross_entropy(logits, batch.labels, label_smoothing=config.loss.label_smoothing)

    turned, turns = rotated(images, batch, config.ttt.rotations)
    rotation_logits = network.rotation_branch()(turned)
    rotation = F.cross_entropy(rotation_logits, turns)
    return {
        "loss": cross_entropy + joint * rotation,
        "ce": cross_entropy.detach(),
        "rotation": rotation.detach(),
        "accuracy": accuracy(logits, batch.labels),
        "rotation_accuracy": accuracy(rotation_logits, turns),
    }


def rotated(images: Tensor, batch: Batch, rotations: str) -> tuple[Tensor, Tensor]:
    """Return rotated images and their quarter turns: each image in all four rotations, or in one drawn for this step."""
    count = len(images)
    if rotations == "all":
        turns = torch.arange(4).repeat_interleave(count)
        images = images.repeat(4, 1, 1, 1)
    else:
        draw = generator(batch.seed, "turns", batch.step)
        turns = torch.randint(4, (batch.total or count,), generator=draw)[batch.rows]
    turns = turns.to(images.device)
    return quarter_turns(images, turns), turns
