"""The images of a run: the training split, and the views of each step, which depend only on (seed, step)."""

import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from ttaps.data import ImageSet, load_set, split_train
from ttaps.errors import UsageError
from ttaps.losses import Reduce
from ttaps.model import ModelConfig
from ttaps.rng import generator
from ttaps.views import CropViews, PrimeViews, ShiftViews, SwavViews

Kind = SwavViews | CropViews | ShiftViews | PrimeViews


@dataclass(frozen=True)
class Split:
    """Four fifths for training and a fifth for validation: the paper's 40,000 and 10,000. The same in every run."""

    train: ImageSet
    validation: ImageSet

    @classmethod
    def of(cls, images: ImageSet) -> Self:
        """Split a training set."""
        return cls(*map(images.part, split_train(len(images))))

    @cached_property
    def digest(self) -> str:
        """Return a checksum of the training images and labels: a run may not be resumed with others."""
        parts = (self.train.images, self.train.labels)
        return "-".join(f"{zlib.crc32(np.ascontiguousarray(part).data):08x}" for part in parts)


def training_images(data: str | ImageSet, root: Path, model: ModelConfig, any_classes: bool = False) -> Split:
    """Load the training images of a data set; refuse those that this network (``any_classes``: with any number) cannot learn."""
    images = load_set(data, root, split="train", size=model.image_size) if isinstance(data, str) else data
    data = images.name
    count, wanted = len(images.classes), model.num_classes
    if count != wanted and not any_classes:
        raise UsageError(f"{data} has {count} classes, the network {wanted}: set --model.num-classes {count}.")
    if count < 2:
        raise UsageError(f"{data} has only one class, '{images.classes[0]}': a classifier needs at least two.")
    if empty := sorted(set(range(count)) - set(images.labels.tolist())):
        names = ", ".join(images.classes[label] for label in empty[:3]) + (", ..." if len(empty) > 3 else "")
        remedy = "Leave those classes out, and number the labels from 0 without gaps."
        raise UsageError(f"{data} has no image of {len(empty)} of its {count} classes ({names}).\n{remedy}")
    (height, width), size = images.images.shape[-2:], model.image_size
    if not height == width == size:
        remedy = f"Set --model.image-size {width}." if height == width else "Make the images square."
        raise UsageError(f"{data} has images of {width}x{height} pixels, the network takes {size}x{size}.\n{remedy}")
    return Split.of(images)


@dataclass(frozen=True)
class TrainBatch:
    """Images of one step, uint8 (B, 3, H, W), with the randomness of their views."""

    images: Tensor
    labels: Tensor
    seed: int
    step: int
    size: int  # resolution of the views in pixels
    # This process's rows of the whole batch; views are drawn for the whole batch, so the number of processes does not change them.
    rows: slice
    total: int  # size of the whole batch, over all processes
    logsumexp: Reduce | None = None  # sums over the whole batch, for Sinkhorn; None where one process has all of it

    def views(self, kind: Kind, name: str, chosen: Tensor | None = None) -> Tensor:
        """Return one view of every image, or of the ``chosen`` ones, drawn for this step and ``name``."""
        draw = generator(self.seed, "views", name, self.step)
        parameters: Any = kind.sample(self.total, self.images.shape[-1], draw)[self.rows]
        images = self.images
        if chosen is not None:
            parameters, images = parameters[chosen], images[chosen.to(images.device)]
        with torch.autocast(images.device.type, enabled=False):  # images stay exact under mixed precision
            return kind.apply(images, parameters, self.size)


def epoch_order(images: int, seed: int, epoch: int) -> Tensor:
    """Return the shuffled order of the training images in one epoch."""
    return torch.randperm(images, generator=generator(seed, "order", epoch))


def batch_indices(images: int, batch: int, seed: int, step: int) -> Tensor:
    """Return the images of step ``step``; an epoch uses every image at most once and drops the incomplete last batch."""
    epoch, place = divmod(step, max(1, images // batch))
    return epoch_order(images, seed, epoch)[place * batch : (place + 1) * batch]
