"""Baseline: the cross-entropy alone, on a random crop or a SwAV view."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from ttaps.model import Network
from ttaps.training.batch import Batch
from ttaps.training.config import LossConfig
from ttaps.views import CropViews, SwavViews


def loss(network: Network, batch: Batch, config: LossConfig, joint: float) -> dict[str, Tensor]:
    """L_CE of one view of every image."""
    crop = CropViews(scale=config.crop_scale)
    logits = network(batch.views(crop, "crop") if config.alone == "crop" else batch.views(SwavViews(), "s"))
    cross_entropy = F.cross_entropy(logits, batch.labels, label_smoothing=config.label_smoothing)
    return {"loss": cross_entropy, "ce": cross_entropy.detach(), "accuracy": accuracy(logits, batch.labels)}


def accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """Share of images whose largest logit is their label's."""
    return (logits.detach().argmax(-1) == labels).float().mean()
