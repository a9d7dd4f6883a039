"""Baseline: the cross-entropy alone, on a random crop or a SwAV view."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ttaps.model import Network
from ttaps.training.config import AugmentationConfig, TrainConfig
from ttaps.training.data import Batch
from ttaps.views import CropViews, PrimeViews, SwavViews


def loss(network: Network, batch: Batch, config: TrainConfig, joint: float = 0.0) -> dict[str, Tensor]:
    """L_CE of one view of every image."""
    kind = config.augmentation.ce_only_view
    views = batch.views(SwavViews(), "s") if kind == "views" else crop(batch, config.augmentation, kind)
    logits = network(views)
    cross_entropy = F.cross_entropy(logits, batch.labels, label_smoothing=config.loss.label_smoothing)
    return {"loss": cross_entropy, "ce": cross_entropy.detach(), "accuracy": accuracy(logits, batch.labels)}


def crop(batch: Batch, config: AugmentationConfig, kind: str) -> Tensor:
    """Return a ``crop`` of every image, or one in ``color``, augmented as SwAV's views are; a share of them as PRIME views instead."""
    kinds = {"crop": CropViews, "color": SwavViews}
    views = batch.views(kinds[kind](scale=config.crop_scale), "crop")
    return with_prime(views, batch, config.prime_share, "prime", config.crop_scale)


def with_prime(views: Tensor, batch: Batch, share: float, name: str, scale: tuple[float, float]) -> Tensor:
    """Replace a share of the views, spread evenly over the batch, by PRIME views of the same images."""
    rows = torch.arange(batch.total or len(batch.images))
    chosen = ((rows + 1) * share).floor() > (rows * share).floor()
    own = chosen[batch.rows].nonzero()[:, 0]
    if len(own):
        views[own] = batch.views(PrimeViews(scale=scale), name, own)
    return views


def accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """Share of images whose largest logit is their label's."""
    return (logits.detach().argmax(-1) == labels).float().mean()
