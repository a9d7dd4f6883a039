"""Projections of some images, stored beside the results: a report draws them without a model."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from ttaps.evaluate.benchmark import Benchmark
from ttaps.evaluate.plan import Plan
from ttaps.files import write_bytes
from ttaps.model.checkpoint import Model
from ttaps.model.network import eval_mode

FOLDER = "projections"
"""A file for each model and data set: ``z`` (N, Z), ``labels`` (N,), ``prototypes`` (K, Z), ``prototype_labels`` (K,), and the names
``classes``, ``model``, ``fingerprint`` and ``data``."""
BATCH = 64


def projections_file(folder: Path, model: Model, data: Benchmark) -> Path:
    """Return the file of a model's projections in a folder of results."""
    return folder / FOLDER / f"{model.fingerprint}-{data.name}.npz"


def stored_files(folder: Path) -> list[Path]:
    """Return all files of projections in a folder of results."""
    return sorted((folder / FOLDER).glob("*.npz"))


@torch.no_grad()
def write_projections(model: Model, data: Benchmark, folder: Path, images: int) -> None:
    """Store z of the first images of a stratified order, before adaptation, and the prototypes with their classes."""
    data, network = data.aligned_to(model), model.network
    items = list(islice(Plan(data.labels, data.corruptions, data.severities), images))
    device = network.prototypes.device
    with eval_mode(network):
        parts = [network.project(data.read(items[i : i + BATCH]).to(device)) for i in range(0, len(items), BATCH)]
        prototype_labels = network.classifier(network.prototypes).argmax(1)
    buffer = io.BytesIO()
    np.savez(
        buffer,
        z=torch.cat(parts).cpu().numpy(),
        labels=data.labels[[item.image for item in items]],
        prototypes=network.prototypes.cpu().numpy(),
        prototype_labels=prototype_labels.cpu().numpy(),
        classes=np.array(data.classes),
        model=model.name,
        fingerprint=model.fingerprint,
        data=data.name,
    )
    write_bytes(projections_file(folder, model, data), buffer.getvalue())


def merge_projections(folders: Sequence[Path], into: Path) -> int:
    """Copy the projections of several folders to one, and return how many were new; those that are there already stay as they are."""
    added = 0
    for path in (path for folder in folders for path in stored_files(folder)):
        target = into / FOLDER / path.name
        if not target.exists():
            write_bytes(target, path.read_bytes())
            added += 1
    return added
