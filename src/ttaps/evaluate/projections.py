"""Projections of some images, stored beside the results: a report draws them without a model."""

from __future__ import annotations

import io
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from ttaps.evaluate.benchmark import Benchmark
from ttaps.evaluate.plan import Plan
from ttaps.files import write_bytes
from ttaps.model.checkpoint import Model
from ttaps.model.network import evaluating

FILE = "projections.npz"
"""``z`` (N, Z), ``labels`` (N,), ``prototypes`` (K, Z), ``prototype_labels`` (K,), and the names ``classes``, ``model`` and ``data``."""
BATCH = 64


@torch.no_grad()
def write_projections(model: Model, data: Benchmark, folder: Path, images: int) -> None:
    """Store z of the first images of a fair order, before adaptation, and the prototypes with the classes the classifier gives them."""
    data, network = data.fitted(model), model.network
    items = list(islice(Plan(data.labels, data.corruptions, data.severities), images))
    device = network.prototypes.device
    with evaluating(network):
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
        model=f"{model.name} ({model.fingerprint})",
        data=data.name,
    )
    write_bytes(folder / FILE, buffer.getvalue())
