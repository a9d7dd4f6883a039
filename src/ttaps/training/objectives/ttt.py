"""TTT (Sun et al., 2020): the cross-entropy, and the cross-entropy of telling how far a picture was turned."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ttaps.model import Network
from ttaps.rng import generator
from ttaps.training.batch import Batch
from ttaps.training.config import LossConfig
from ttaps.training.objectives import baseline
from ttaps.training.objectives.baseline import accuracy
from ttaps.views import ShiftViews, quarter_turns


def loss(network: Network, batch: Batch, config: LossConfig, joint: float) -> dict[str, Tensor]:
    """L_CE + L_rotation, both of the same pictures; L_CE alone at ``joint`` = 0."""
    if joint == 0:
        return baseline.loss(network, batch, config, joint)
    colored = config.ce_view == "color"
    pictures = baseline.crop(batch, config, "color") if colored else batch.views(ShiftViews(), "crop")
    logits = network(pictures)
    cross_entropy = F.cross_entropy(logits, batch.labels, label_smoothing=config.label_smoothing)

    turned, turns = rotated(pictures, batch, config.rotations)
    rotation_logits = network.rotation_branch()(turned)
    rotation = F.cross_entropy(rotation_logits, turns)
    return {
        "loss": cross_entropy + joint * rotation,
        "ce": cross_entropy.detach(),
        "rotation": rotation.detach(),
        "accuracy": accuracy(logits, batch.labels),
        "rotation_accuracy": accuracy(rotation_logits, turns),
    }


def rotated(pictures: Tensor, batch: Batch, rotations: str) -> tuple[Tensor, Tensor]:
    """Return turned pictures and by how many quarters: each picture in all four ways, or in one drawn for this step."""
    count = len(pictures)
    if rotations == "all":
        turns = torch.arange(4).repeat_interleave(count)
        pictures = pictures.repeat(4, 1, 1, 1)
    else:
        draw = generator(batch.seed, "turns", batch.step)
        turns = torch.randint(4, (batch.total or count,), generator=draw)[batch.rows or slice(None)]
    turns = turns.to(pictures.device)
    return quarter_turns(pictures, turns), turns
