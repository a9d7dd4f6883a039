"""Warm start: begin with the weights of a trained model, to continue a long training or to fine-tune on one's own data."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ttaps.errors import CheckpointError, UsageError
from ttaps.model import Network
from ttaps.model.checkpoint import Model, load_model
from ttaps.model.registry import folder_of

HEADS_AND_PROTOTYPES = ("prototypes", "heads.")
"""Weights that belong to a loss rather than to the classifier."""


def init_model(name: str) -> Model | None:
    """Return the model that a run starts from; None for an empty name."""
    try:
        return load_model(folder_of(name)) if name else None
    except CheckpointError as error:
        raise CheckpointError(
            f"init_from: {error}\nThe models of the repository are in a clone of it; else train it and give its folder as --init-from."
        ) from error


def describe_init(name: str, model: Model) -> dict[str, Any]:
    """Return what a card states of it, with all the hours of training behind it."""
    hours = model.info.get("hours", 0) + model.info.get("init_from", {}).get("hours", 0)
    return {"model": name, "fingerprint": model.fingerprint, "hours": round(hours, 2)}


@torch.no_grad()
def load_init_weights(network: Network, model: Model, classes: tuple[str, ...]) -> None:
    """Copy the weights of ``model`` into a network for these ``classes``.

    A classifier for other classes, prototypes and heads of other shapes stay as they are; any other difference is refused.
    """
    theirs = model.network.state_dict()
    for name, weight in network.state_dict().items():
        if name.startswith("classifier.") and model.classes != classes:
            continue
        if name in theirs and theirs[name].shape == weight.shape:
            weight.copy_(theirs[name])
        elif not name.startswith(("classifier.", *HEADS_AND_PROTOTYPES)):
            there = f"shape {tuple(theirs[name].shape)}" if name in theirs else "no such weights"
            raise UsageError(
                f"init_from: '{name}' has shape {tuple(weight.shape)} here and {there} in the model '{model.name}'.\n"
                "Give this run the network of that model (--model.width, --model.depth, ...; its train.toml has them)."
            )


def has_trained(model: Model | None, network: Network, name: str) -> bool:
    """Whether ``model`` has trained the ``prototypes``, or the head of this name, that ``network`` got from it."""
    if model is None:
        return False
    if name == "prototypes":
        alike = model.network.prototypes.shape == network.prototypes.shape
        return alike and model.objective in ("jt", "jt+ent")
    return name in model.network.heads


def interpolate_weights(weights: dict[str, Tensor], model: Model, share: float) -> dict[str, Tensor]:
    """Interpolate between the weights of a run and those of ``model``, which have this ``share``; prototypes and heads are the run's."""
    theirs = model.network.state_dict()

    def both(name: str, own: Tensor) -> bool:
        return name in theirs and own.is_floating_point() and not name.startswith(HEADS_AND_PROTOTYPES)

    return {name: own.lerp(theirs[name].to(own), share) if both(name, own) else own for name, own in weights.items()}
