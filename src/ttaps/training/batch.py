"""One step's images and their views: a function of (seed, step) only, so that a resumed run repeats itself exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ttaps.losses import Reduce
from ttaps.rng import generator
from ttaps.views import CropViews, PrimeViews, ShiftViews, SwavViews


@dataclass(frozen=True)
class Batch:
    """Images of one step, uint8 (B, 3, H, W), with the randomness of their views."""

    images: Tensor
    labels: Tensor
    seed: int
    step: int
    size: int
    """Resolution of the views in pixels."""
    rows: slice | None = None
    """This process's rows of the whole batch; views are drawn for the whole batch, so sharing it out changes nothing."""
    total: int | None = None
    """Size of the whole batch, over all processes."""
    logsumexp: Reduce | None = None
    """Sums over the whole batch, for Sinkhorn; None where one process has it all."""

    @property
    def share(self) -> float:
        """This process's part of the whole batch: the weight of its mean over rows."""
        return len(self.images) / (self.total or len(self.images))

    def views(
        self, kind: SwavViews | CropViews | ShiftViews | PrimeViews, name: str, chosen: Tensor | None = None
    ) -> Tensor:
        """Return one view of every image, or of the ``chosen`` ones, drawn for this step and ``name``."""
        draw = generator(self.seed, "views", name, self.step)
        parameters: Any = kind.sample(self.total or len(self.images), self.images.shape[-1], draw)
        parameters = parameters[self.rows or slice(None)]
        images = self.images
        if chosen is not None:
            parameters, images = parameters[chosen], images[chosen.to(images.device)]
        with torch.autocast(self.images.device.type, enabled=False):  # images stay exact under mixed precision
            return kind.apply(images, parameters, self.size)


def epoch_order(images: int, seed: int, epoch: int) -> Tensor:
    """Return the shuffled order of the training images in one epoch."""
    return torch.randperm(images, generator=generator(seed, "order", epoch))


def batch_indices(images: int, batch: int, seed: int, step: int) -> Tensor:
    """Return which images step ``step`` takes; each epoch sees every image at most once and drops the incomplete last batch."""
    epoch, place = divmod(step, epoch_steps(images, batch))
    return epoch_order(images, seed, epoch)[place * batch : (place + 1) * batch]


def epoch_steps(images: int, batch: int) -> int:
    """Return how many whole batches an epoch has."""
    return max(1, images // batch)
