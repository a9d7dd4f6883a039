"""Baseline: the cross-entropy alone, on a random crop."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from ttaps.model import Network
from ttaps.training.batch import Batch
from ttaps.training.config import LossConfig
from ttaps.views import CropViews


def loss(network: Network, batch: Batch, config: LossConfig, joint: float) -> dict[str, Tensor]:
    """L_CE of the supervised crop."""
    logits = network(batch.views(CropViews(scale=config.crop_scale), "crop"))
    cross_entropy = F.cross_entropy(logits, batch.labels, label_smoothing=config.label_smoothing)
    return {"loss": cross_entropy, "ce": cross_entropy.detach(), "accuracy": accuracy(logits, batch.labels)}


def accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """Share of images whose largest logit is their label's."""
    return (logits.detach().argmax(-1) == labels).float().mean()
