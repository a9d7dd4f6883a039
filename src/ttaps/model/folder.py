"""What a model's folder says without torch, which takes seconds to import: config, presets, and whether its weights are those saved."""

import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import load

from ttaps import __version__
from ttaps.config import from_dict, read_toml
from ttaps.errors import CheckpointError, TtapsError
from ttaps.files import cannot_read
from ttaps.model.config import CONFIG, ModelConfig
from ttaps.progress import log_info

FORMAT = 1
WEIGHTS = "model.safetensors"
PRESETS = "presets.toml"
AGAIN = "Get or train the model again"
# What a fingerprint calls settings that have been renamed since the first fingerprints were written: those stay valid.
FINGERPRINT_KEYS = {
    **{"num_classes": "classes", "num_prototypes": "prototypes", "num_groups": "groups"},
    **{"projection_dim": "projection", "hidden_dim": "hidden", "zero_init_residual": "zero_init"},
}
BUFFERS = ("running_mean", "running_var", "num_batches_tracked")  # of BatchNorm: saved, and no weights
Described = tuple[str, tuple[int, ...], str, bytes]  # a weight: name, shape, torch's name of its type, content


def read_presets(folder: Path, weights: str = "") -> dict[str, Any]:
    """Return the presets in a model's folder; none where there are none, or where they were found for other weights.
    ``weights`` is the fingerprint of those of now; the one that their file notes, if it is not given."""
    if not (folder / PRESETS).exists():
        return {}
    presets = read_toml(folder / PRESETS)
    weights = weights or noted_fingerprint(folder)
    if presets.get("fingerprint") != weights:
        text = "was made for other weights and is not used: run ttaps tune again"
        log_info(f"{folder / PRESETS} {text}.")
        return {}
    return presets


def read_card(folder: Path) -> str:
    """Return the README of a model's folder; empty if there is none."""
    card = folder / "README.md"
    return card.read_text("utf-8") if card.exists() else ""


def read_config(path: Path) -> dict[str, Any]:
    """Return what a model's ``config.json`` says, of whatever network."""
    if not path.parent.is_dir():
        remedy = "Use a run folder of 'ttaps train' or a name that 'ttaps info' lists."
        raise CheckpointError(f"There is no model folder {path.parent}.\n{remedy}")
    try:
        config = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path.parent} is not a model folder: it has no {CONFIG}.") from None
    except OSError as error:
        raise cannot_read(path, error) from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"Cannot read {path}: {error}") from error
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        found = config.get("format") if isinstance(config, dict) else None
        ours = f"this version of ttaps ({__version__}) reads format {FORMAT}"
        remedy = "Install the version that wrote it, or train it again."
        raise CheckpointError(f"{path} has format {found!r}; {ours}.\n{remedy}")
    return config


def noted_fingerprint(folder: Path) -> str:
    """Return the fingerprint that a model's weights had when they were saved; empty if the file cannot be read."""
    with suppress(OSError, ValueError, AttributeError, RecursionError):
        return notes((folder / WEIGHTS).read_bytes()).get("fingerprint", "")
    return ""


def read_whole(path: Path) -> bytes:
    """Return what is in a file of weights, which is not mapped: there an input/output error would end the process."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, IsADirectoryError):
        raise
    except OSError as error:
        raise cannot_read(path, error) from error


def notes(content: bytes) -> dict[str, str]:
    """Return what a safetensors file notes."""
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return dict(header.get("__metadata__") or {})


def class_names(config: dict[str, Any], model: ModelConfig, path: Path) -> tuple[str, ...]:
    """Return the names of a model's classes, their numbers if it has none."""
    classes = config.get("classes") or [str(index) for index in range(model.num_classes)]
    if not isinstance(classes, list) or len(classes) != model.num_classes:
        raise CheckpointError(f"{path} must name {model.num_classes} classes, not {classes!r}.")
    return tuple(map(str, classes))


def training_facts(config: dict[str, Any]) -> dict[str, Any]:
    """Return what ``config.json`` says besides the network: objective, data set, seed, training."""
    return {name: value for name, value in config.items() if name not in ("model", "classes", "fingerprint")}


def unusual_settings(config: ModelConfig) -> dict[str, Any]:
    """Return the settings of a network that are not the defaults, by the names that fingerprints have for them."""
    values, usual = asdict(config), asdict(ModelConfig())
    return {FINGERPRINT_KEYS.get(name, name): values[name] for name in values if values[name] != usual[name]}


def weights_hash(settings: dict[str, Any], weights: Iterable[Described]) -> str:
    """Hash settings and weights, which are sorted by name: a model's fingerprint."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for name, shape, dtype, content in weights:
        digest.update(f"{name}{shape}{dtype}".encode())
        digest.update(content)
    return digest.hexdigest()[:12]


def describe_intact(folder: Path) -> tuple[str, dict[str, Any]] | None:
    """Return a model's card and what ``Model.to_dict`` says of it, if its weights are to the last bit those that were saved with these
    settings. None for all else, which ``load_model`` has words for, and where the backbone is not ours."""
    try:
        config = read_config(folder / CONFIG)
        model = from_dict(ModelConfig, config["model"], where="model")
        classes = class_names(config, model, folder / CONFIG)
        weights = dict(sorted(load((folder / WEIGHTS).read_bytes()).items()))
    except (TtapsError, SafetensorError, KeyError, TypeError, AttributeError, ValueError, OSError):
        return None
    described = ((name, each.shape, f"torch.{each.dtype}", each.tobytes()) for name, each in weights.items())
    noted = noted_fingerprint(folder)
    if "backbone" in config or noted != weights_hash(unusual_settings(model), described):
        return None
    read_presets(folder, noted)  # says if they are of other weights
    count = sum(each.size for name, each in weights.items() if not name.endswith(BUFFERS))
    known = {"name": folder.resolve().name, "fingerprint": noted, "weights": count, "classes": list(classes)}
    return read_card(folder), {**known, **training_facts(config), "model": asdict(model)}
