"""A model is a folder: ``model.safetensors``, ``config.json`` and a card for people. Loading one never runs code from it."""

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from ttaps import __version__
from ttaps.config import from_dict
from ttaps.errors import CheckpointError, UsageError
from ttaps.files import write_bytes, write_text
from ttaps.model.config import CONFIG, ModelConfig
from ttaps.model.folder import (
    AGAIN,
    FORMAT,
    WEIGHTS,
    class_names,
    notes,
    read_card,
    read_config,
    read_presets,
    read_whole,
    training_facts,
    unusual_settings,
    weights_hash,
)
from ttaps.model.network import Network, eval_mode, explain_failure
from ttaps.model.own import Backbone, Classifier, backbone_factory, mismatch, source_file
from ttaps.progress import log_info


@dataclass(frozen=True, repr=False)
class Model:
    """A classifier with its metadata: ``model(images)`` returns logits, ``model.to("cuda")`` moves it."""

    network: Network | Classifier
    classes: tuple[str, ...]
    """Names of the classes, in the order of the logits."""
    name: str = "model"
    fingerprint: str = ""
    """The first 12 hexadecimal digits of a hash over all weights: results state it, so that models never get mixed up."""
    card: str = ""
    """The README of the model's folder."""
    info: dict[str, Any] = dataclasses.field(default_factory=dict)
    """What ``config.json`` says besides: objective, data set, seed, training."""
    presets: dict[str, Any] = dataclasses.field(default_factory=dict)
    """What ``ttaps tune`` found for these weights (``presets.toml``): presets by method and name, in place of the package's, and how."""

    @property
    def objective(self) -> str:
        """The training objective, empty if unknown."""
        return str(self.info.get("objective", ""))

    @property
    def image_size(self) -> int:
        """Height and width of the input images."""
        return self.network.image_size

    @property
    def facts(self) -> dict[str, Any]:
        """The network's properties, as plain values."""
        if isinstance(self.network, Network):
            return dataclasses.asdict(self.network.config)
        module = type(self.network.module).__name__
        return {"module": module, "image_size": self.image_size, "num_classes": len(self.classes)}

    def to_dict(self) -> dict[str, Any]:
        """Return what is known about the model as plain values."""
        weights = sum(weight.numel() for weight in self.network.parameters())
        known = {"name": self.name, "fingerprint": self.fingerprint, "weights": weights, "classes": list(self.classes)}
        return {**known, **self.info, "model": self.facts}

    def __call__(self, images: Tensor) -> Tensor:
        """Return logits of images (N, 3, H, W), uint8 or float in [0, 1]."""
        return self.network(images)

    def to(self, device: torch.device | str) -> Self:
        """Move the network to a device; adaptation works where the network is."""
        self.network.to(device)
        return self

    def __repr__(self) -> str:
        trained = f"trained by {self.objective}, " if self.objective else ""
        known = self.fingerprint or "not known"
        return f"Model({self.name}, {trained}{len(self.classes)} classes, fingerprint {known})"


def save_model(folder: Path, network: Network, classes: tuple[str, ...], info: dict[str, Any], card: str) -> None:
    """Write a model folder, each file atomically."""
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in network.state_dict().items()}
    model = dataclasses.asdict(network.config)
    config = {"format": FORMAT, "ttaps": __version__, "model": model, "classes": classes, **info}
    write_bytes(folder / WEIGHTS, save(weights, metadata={"fingerprint": fingerprint(network)}))
    write_text(folder / CONFIG, json.dumps(config, indent=1) + "\n")
    write_text(folder / "README.md", card)


def load_model(folder: Path, backbone: Backbone | None = None, features: int | None = None) -> Model:
    """Read a model folder; ``backbone`` (and its ``features``) as given to :class:`Network` if it is not our own ResNet."""
    path = folder / CONFIG
    config = read_config(path)
    if backbone is None and "backbone" in config:
        backbone = _noted_backbone(config["backbone"], folder)
    elif backbone is not None and not isinstance(backbone, nn.Module):
        backbone = backbone_factory(backbone)()
    weights, noted = _read_weights(folder / WEIGHTS)
    try:
        model_config = from_dict(ModelConfig, config["model"], where="model")
        _check_sizes(model_config, weights, backbone)
        network = Network(model_config, backbone, features)
    except (KeyError, TypeError, AttributeError, UsageError) as error:
        remedy = f"{AGAIN}, or undo the edits"
        raise CheckpointError(f"{path} does not describe a network ({error}).\n{remedy}.") from error
    classes = class_names(config, model_config, path)
    _fill(network, weights, noted, folder / WEIGHTS)
    known = fingerprint(network)
    about = folder.resolve().name, known, read_card(folder), training_facts(config), read_presets(folder, known)
    return Model(network.eval(), classes, *about)


def own_model(network: Network | Classifier, name: str, classes: Sequence[str] = ()) -> Model:
    """Return a model of a network without a folder, after trying it on one image."""
    if isinstance(classes, str):
        raise UsageError(f"classes must be a list of names, not the text {classes!r}.")
    weight, size = next(network.parameters(), torch.empty(0)), network.image_size
    with explain_failure("module", size), eval_mode(network), torch.no_grad():
        count = network(torch.zeros(1, 3, size, size, dtype=torch.uint8, device=weight.device)).shape[1]
    if classes and len(classes) != count:
        raise UsageError(f"The model gives {count} logits, but {len(classes)} classes are named.")
    if twice := [name for name, times in Counter(classes).items() if times > 1]:
        raise UsageError(f"Two classes are named '{twice[0]}': give each its own name.")
    return Model(network, tuple(classes) or tuple(map(str, range(count))), name, fingerprint(network))


def note_backbone(reference: str, network: Network) -> dict[str, Any]:
    """Return what a run folder records about a custom backbone: its factory, its file's hash, and its number of features."""
    path = source_file(reference)
    digest = hashlib.sha256(path.read_bytes()).hexdigest() if path else ""
    return {"factory": reference, "sha256": digest, "features": network.projector.features}


def _noted_backbone(noted: Any, folder: Path) -> nn.Module:
    """Make the backbone a model was trained with, and say so: it runs code, but only the user's own, unchanged since, and never code
    from the model's folder."""
    try:
        factory, digest = str(noted["factory"]), str(noted["sha256"])
        path = source_file(factory)
    except (KeyError, TypeError) as error:
        raise CheckpointError(f"{folder / CONFIG} does not describe its backbone ({noted!r}).") from error
    remedy = "Pass the backbone itself: --backbone my_nets.py:make_net, or ttaps.load(folder, backbone=...)."
    if not digest:
        raise CheckpointError(f"The backbone of {folder} was given in Python, as {factory}.\n{remedy}")
    made = f"The backbone of {folder} was made by {factory}"
    if path is None or not path.is_file():
        raise CheckpointError(f"{made}, and there is no such file here.\n{remedy}")
    inside = path.resolve().is_relative_to(folder.resolve())
    if inside or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
        why = "a file in the same folder, which may have come with it" if inside else "which has changed since"
        raise CheckpointError(f"{made}, {why}.\n{remedy}")
    log_info(f"{made}, unchanged since.")
    return backbone_factory(factory)()


def fingerprint(network: Network | Classifier) -> str:
    """Hash what determines a network's outputs: all weights with names and shapes, and the non-default settings."""
    if isinstance(network, Classifier):
        front = [*network.normalize.mean.flatten().tolist(), *network.normalize.std.flatten().tolist()]
        changed: dict[str, Any] = {"module": type(network.module).__name__, "size": network.image_size, "front": front}
    else:
        changed = unusual_settings(network.config)
    weights = sorted(network.state_dict().items())
    described = ((name, tuple(tensor.shape), str(tensor.dtype), _bytes(tensor)) for name, tensor in weights)
    return weights_hash(changed, described)


def _bytes(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()  # numpy has no bfloat16


def _read_weights(path: Path) -> tuple[dict[str, Tensor], str]:
    """Return the weights of a file by name, and the fingerprint that it notes."""
    try:
        content = read_whole(path)  # once: a run that trains may replace the file meanwhile
        return load(content), notes(content).get("fingerprint", "")
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing: the folder holds no finished checkpoint yet.") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged or not a safetensors file ({error}).\n{AGAIN}.") from error


def _check_sizes(config: ModelConfig, weights: dict[str, Tensor], backbone: nn.Module | None) -> None:
    """Refuse sizes that no weight has before a network of such a size is made: an edited config may ask for more than all memory."""
    largest = max((size for weight in weights.values() for size in weight.shape), default=0)
    for name in ("hidden_dim", "num_prototypes", "projection_dim", "num_classes", *(() if backbone else ("width",))):
        if (size := getattr(config, name)) > largest:
            raise UsageError(f"model.{name} is {size}, and no side of a weight is longer than {largest}")


def _fill(network: Network, weights: dict[str, Tensor], noted: str, path: Path) -> None:
    """Load weights and say exactly which do not fit."""
    if wrong := mismatch(weights, network):
        why = "Weights and config come from different models, or your own backbone must be passed to load()"
        raise CheckpointError(f"{path} does not fit its {CONFIG}: {wrong}.\n{why}.")
    network.load_state_dict(weights)
    if noted and noted != (found := fingerprint(network)):
        damaged = f"{path} is damaged, or its {CONFIG} was edited"
        raise CheckpointError(f"{damaged}: its fingerprint is {found}, not {noted}.\n{AGAIN}.")
