"""The images of a run: what is trained on, and what is only looked at."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from ttaps.data import ImageSet, load_set, split_train
from ttaps.errors import UsageError
from ttaps.model import ModelConfig


@dataclass(frozen=True)
class Split:
    """Four fifths to learn from and a fifth to validate on: the paper's 40,000 and 10,000. The same in every run."""

    train: ImageSet
    validation: ImageSet

    @classmethod
    def of(cls, images: ImageSet) -> Split:
        """Split a training set."""
        return cls(
            *(
                replace(images, images=images.images[part], labels=images.labels[part])
                for part in split_train(len(images))
            )
        )

    @cached_property
    def digest(self) -> str:
        """Return a checksum of what is learnt: a run may not go on with other images."""
        return "-".join(
            f"{zlib.crc32(np.ascontiguousarray(part).data):08x}" for part in (self.train.images, self.train.labels)
        )


def training_images(data: str, root: Path, model: ModelConfig, any_classes: bool = False) -> Split:
    """Load the training images of a data set, or say why this network, or one with as many classes as they have, cannot learn them."""
    images = load_set(data, root, split="train", size=model.image_size)
    if len(images.classes) != model.num_classes and not any_classes:
        raise UsageError(
            f"{data} has {len(images.classes)} classes, the network {model.num_classes}: set --model.num-classes {len(images.classes)}."
        )
    height, width = images.images.shape[-2:]
    if not height == width == model.image_size:
        raise UsageError(
            f"{data} has images of {width}x{height} pixels, the network takes {model.image_size}x{model.image_size}.\n"
            "Set --model.image-size, or make the images square."
        )
    return Split.of(images)
