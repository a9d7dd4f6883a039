"""A tiny untrained model for CIFAR-10's classes on disk, and images for it: for tests of the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from ttaps.data.cifar import CIFAR10_CLASSES
from ttaps.model import ModelConfig, Network
from ttaps.model.checkpoint import save_model

SIZES: dict[str, Any] = {"depth": 8, "width": 4, "num_groups": 4, "projection_dim": 8, "hidden_dim": 16}
SMALL = ModelConfig(**SIZES, num_prototypes=12)
QUICK = ("--steps", "1", "--num-pairs", "2")
"""Options of ``ttaps adapt`` that keep it short."""


def write_model(folder: Path) -> Path:
    """Write the model and return its folder."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = Network(SMALL)
    card = "# An untrained net\n\nFor tests only.\n\nSettings: none.\n"
    save_model(folder, network, CIFAR10_CLASSES, {"objective": "jt"}, card)
    return folder


def write_image(path: Path, width: int = 32, height: int = 32) -> Path:
    """Write a image of noise and return its path."""
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path
