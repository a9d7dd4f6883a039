"""Start from the weights of a trained model: a further run of a long training, or one's own data."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ttaps.errors import CheckpointError, UsageError
from ttaps.model import Network
from ttaps.model.checkpoint import Model, load_model
from ttaps.model.registry import folder_of

LEARNT = ("prototypes", "heads.")
"""What belongs to a loss, and not to the network that starts."""
OWN = ("classifier.", *LEARNT)
"""What may differ in number, and then stays as it was drawn."""


def init_model(name: str) -> Model | None:
    """Return the model that a run is to start from; an empty name is none."""
    try:
        return load_model(folder_of(name)) if name else None
    except CheckpointError as error:
        raise CheckpointError(
            f"init_from: {error}\nThe models of the repository are in a clone of it; else train it and give its folder as --init-from."
        ) from error


def facts(name: str, model: Model) -> dict[str, Any]:
    """Return what a card should say of it, with all the hours behind it."""
    hours = model.info.get("hours", 0) + model.info.get("init_from", {}).get("hours", 0)
    return {"model": name, "fingerprint": model.fingerprint, "hours": round(hours, 2)}


@torch.no_grad()
def load_init_weights(network: Network, model: Model, classes: tuple[str, ...]) -> None:
    """Copy the weights of ``model`` into a network for these ``classes``; a classifier for others stays as it was drawn."""
    theirs = model.network.state_dict()
    for name, weight in network.state_dict().items():
        if name.startswith("classifier.") and model.classes != classes:
            continue
        if name in theirs and theirs[name].shape == weight.shape:
            weight.copy_(theirs[name])
        elif not name.startswith(OWN):
            there = f"shape {tuple(theirs[name].shape)}" if name in theirs else "no such weights"
            raise UsageError(
                f"init_from: '{name}' has shape {tuple(weight.shape)} here and {there} in the model '{model.name}'.\n"
                "Give this run the network of that model (--model.width, --model.depth, ...; its train.toml has them)."
            )


def has_trained(model: Model | None, network: Network, name: str) -> bool:
    """Say whether the model that a run started from had trained its ``prototypes``, or a head of this name, and the run has them."""
    if model is None:
        return False
    if name == "prototypes":
        alike = model.network.prototypes.shape == network.prototypes.shape
        return alike and model.objective in ("jt", "jt+ent")
    return name in model.network.heads


def interpolate_weights(weights: dict[str, Tensor], model: Model, share: float) -> dict[str, Tensor]:
    """Return the mean of the weights of a run and those it started from, which have this ``share``; prototypes and heads are the run's."""
    theirs = model.network.state_dict()

    def both(name: str, own: Tensor) -> bool:
        return name in theirs and own.is_floating_point() and not name.startswith(LEARNT)

    return {name: own.lerp(theirs[name].to(own), share) if both(name, own) else own for name, own in weights.items()}
