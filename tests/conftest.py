"""Small things shared by tests: one thread, a tiny network, a few textures to learn from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.small_training import TINY
from ttaps.data import ImageSet
from ttaps.model import Network


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Sums then have one order, and busy cores are not fought over."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables for a file have their full width; the processes of pytest-xdist have a COLUMNS of their own."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def tiny_network() -> Network:
    """Return a whole network of a few thousand weights, always the same."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Network(TINY).eval()


@pytest.fixture(scope="session")
def textures() -> ImageSet:
    """Return 160 images of 8 x 8 pixels in four classes: stripes across, stripes down, checks, and plain."""
    rng = np.random.default_rng(0)
    labels = np.arange(160) % 4
    y, x = np.mgrid[0:8, 0:8]
    phases = np.stack([y / 2, x / 2, x + y, 0 * x])[labels] + rng.uniform(0, 2, (160, 1, 1))
    colors = rng.uniform(-90, 90, (160, 3, 1, 1))
    noise = rng.normal(0, 8, (160, 3, 8, 8))
    images = (128 + colors * np.sin(np.pi * phases)[:, None] + noise).clip(0, 255).astype(np.uint8)
    return ImageSet("textures", images, labels.astype(np.int64), ("across", "down", "checks", "plain"))


@pytest.fixture(scope="session")
def textures_file(textures: ImageSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return these images as an .npz file."""
    path = tmp_path_factory.mktemp("images") / "textures.npz"
    np.savez(path, images=textures.images, labels=textures.labels)
    return path
