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
    logits = network(batch.views(SwavViews(), "s") if config.alone == "view" else crop(batch, config, config.alone))
    cross_entropy = F.cross_entropy(logits, batch.labels, label_smoothing=config.label_smoothing)
    return {"loss": cross_entropy, "ce": cross_entropy.detach(), "accuracy": accuracy(logits, batch.labels)}


def crop(batch: Batch, config: LossConfig, kind: str) -> Tensor:
    """Return a crop of every image, ``coloured`` and blurred as SwAV's views are or just cut out."""
    kinds = {"crop": CropViews, "coloured": SwavViews}
    return batch.views(kinds[kind](scale=config.crop_scale), "crop")


def accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """Share of images whose largest logit is their label's."""
    return (logits.detach().argmax(-1) == labels).float().mean()
