"""A model is a folder: ``model.safetensors``, ``config.json`` and a card for people. Loading one never runs code from it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from ttaps import __version__
from ttaps.config import from_dict
from ttaps.errors import CheckpointError, UsageError
from ttaps.files import write_bytes, write_text
from ttaps.model.config import ModelConfig
from ttaps.model.network import Network

FORMAT = 1
WEIGHTS = "model.safetensors"
CONFIG = "config.json"
# What a fingerprint calls settings that have been renamed since the first fingerprints were written: those stay valid.
FINGERPRINT_KEYS = {
    "num_classes": "classes",
    "num_prototypes": "prototypes",
    "projection_dim": "projection",
    "hidden_dim": "hidden",
    "num_groups": "groups",
    "zero_init_residual": "zero_init",
}


@dataclass(frozen=True, repr=False)
class Model:
    """A network with what one must know to use it."""

    network: Network
    classes: tuple[str, ...]
    """Names of the classes, in the order of the logits."""
    name: str = "model"
    fingerprint: str = ""
    """The first 12 hexadecimal digits of a hash over all weights: results state it, so that models never get mixed up."""
    card: str = ""
    """The README of the model's folder."""
    info: dict[str, Any] = dataclasses.field(default_factory=dict)
    """What ``config.json`` says besides: objective, data set, seed, training."""

    @property
    def objective(self) -> str:
        """What the network was trained by, nothing where that is not known."""
        return str(self.info.get("objective", ""))

    def __repr__(self) -> str:
        trained = f"trained by {self.objective}, " if self.objective else ""
        return (
            f"Model({self.name}, {trained}{len(self.classes)} classes, fingerprint {self.fingerprint or 'not known'})"
        )


def save_model(folder: Path, network: Network, classes: tuple[str, ...], info: dict[str, Any], card: str) -> None:
    """Write a model folder, each file whole or not at all."""
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in network.state_dict().items()}
    model = dataclasses.asdict(network.config)
    config = {"format": FORMAT, "ttaps": __version__, "model": model, "classes": classes, **info}
    write_bytes(folder / WEIGHTS, save(weights, metadata={"fingerprint": fingerprint(network)}))
    write_text(folder / CONFIG, json.dumps(config, indent=1) + "\n")
    write_text(folder / "README.md", card)


def load_model(folder: Path, backbone: nn.Module | None = None, features: int | None = None) -> Model:
    """Read a model folder; ``backbone`` (and its ``features``) as given to :class:`Network` where it is not our own ResNet."""
    path = folder / CONFIG
    config = _read_config(path)
    try:
        model_config = from_dict(ModelConfig, config["model"], where="model")
        network = Network(model_config, backbone, features)
    except (KeyError, TypeError, AttributeError, UsageError) as error:
        raise CheckpointError(
            f"{path} does not describe a network ({error}).\nGet or train the model again, or undo what was edited there."
        ) from error
    classes = config.get("classes") or [str(index) for index in range(model_config.num_classes)]
    if not isinstance(classes, list) or len(classes) != model_config.num_classes:
        raise CheckpointError(f"{path} must name {model_config.num_classes} classes, not {classes!r}.")
    _fill(network, folder / WEIGHTS)
    card = folder / "README.md"
    return Model(
        network=network.eval(),
        classes=tuple(map(str, classes)),
        name=folder.resolve().name,
        fingerprint=fingerprint(network),
        card=card.read_text("utf-8") if card.exists() else "",
        info={k: v for k, v in config.items() if k not in ("model", "classes", "fingerprint")},
    )


def fingerprint(network: Network) -> str:
    """Hash what decides a network's answers: all weights with their names and shapes, and the settings that are not the defaults."""
    values, usual = dataclasses.asdict(network.config), dataclasses.asdict(ModelConfig())
    changed = {FINGERPRINT_KEYS.get(name, name): values[name] for name in values if values[name] != usual[name]}
    digest = hashlib.sha256(json.dumps(changed, sort_keys=True).encode())
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())  # numpy has no bfloat16
    return digest.hexdigest()[:12]


def _read_config(path: Path) -> dict[str, Any]:
    if not path.parent.is_dir():
        raise CheckpointError(
            f"There is no model folder {path.parent}.\nUse a run folder of 'ttaps train' or a name that 'ttaps info' lists."
        )
    try:
        config = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path.parent} is not a model folder: it has no {CONFIG}.") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"Cannot read {path}: {error}") from error
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        found = config.get("format") if isinstance(config, dict) else None
        raise CheckpointError(
            f"{path} has format {found!r}; this version of ttaps ({__version__}) reads format {FORMAT}.\n"
            "Install the version that wrote it, or train it again."
        )
    return config


def _fill(network: Network, path: Path) -> None:
    """Load weights and say exactly which do not fit."""
    try:
        with safe_open(path, framework="pt") as file:  # once: a run that trains may replace the file meanwhile
            noted = (file.metadata() or {}).get("fingerprint")
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (safe_open is no mapping)
    except FileNotFoundError as error:
        if path.exists():  # safetensors says so of a file it may not read, too
            raise CheckpointError(f"Cannot read {path}: get the right to read it.") from error
        raise CheckpointError(f"{path} is missing: the folder holds no finished checkpoint yet.") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} is damaged or not a safetensors file ({error}).\nGet or train the model again."
        ) from error
    have, want = (
        {name: tuple(tensor.shape) for name, tensor in side.items()} for side in (weights, network.state_dict())
    )
    wrong = [name for name in want | have if have.get(name) != want.get(name)]
    if wrong:
        name, nothing = wrong[0], "nothing"
        raise CheckpointError(
            f"{path} does not fit its {CONFIG}: '{name}' has shape {have.get(name, nothing)}, "
            f"the network wants {want.get(name, nothing)} ({len(wrong)} such weights).\n"
            "Weights and config come from different models, or your own backbone must be passed to load()."
        )
    network.load_state_dict(weights)
    if noted and noted != fingerprint(network):
        raise CheckpointError(
            f"{path} is damaged, or its {CONFIG} was edited: its fingerprint is {fingerprint(network)}, not {noted}.\n"
            "Get or train the model again."
        )
