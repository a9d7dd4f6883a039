"""Your own network: any classifier behind the interface that methods use, and its command-line name (``my_nets.py:make_net``)."""

import hashlib
import importlib
import importlib.util
import math
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from ttaps.config import did_you_mean
from ttaps.errors import CheckpointError, UsageError
from ttaps.model.network import Normalize
from ttaps.model.registry import is_reference

MeanStd = tuple[tuple[float, ...], tuple[float, ...]]
Factory = Callable[[], nn.Module]
Backbone = nn.Module | Factory | str
"""A module that maps images to features, what makes one, or its reference, such as ``my_nets.py:make_net``."""
AS_IS: MeanStd = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


class Classifier(nn.Module):
    """A module that maps normalized images to logits, with the normalization in front: it takes uint8 or float pixels in [0, 1]."""

    def __init__(self, module: nn.Module, image_size: int, normalize: MeanStd = AS_IS) -> None:
        super().__init__()
        try:
            mean, std = map(tuple, normalize)
            usable = (len(mean), len(std)) == (3, 3) and all(map(math.isfinite, (*mean, *std))) and min(std) > 0
        except (TypeError, ValueError):
            usable = False
        if not usable:
            raise UsageError(f"normalize must be three means and three positive standard deviations, not {normalize}.")
        weights = [weight for weight in module.parameters() if weight.is_floating_point()]
        self.image_size = image_size
        self.normalize = Normalize(mean, std).to(weights[0]) if weights else Normalize(mean, std)
        self.module = module

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (N, classes)."""
        return logits_of(self.module(self.normalize(images)), len(images))


def logits_of(output: Any, count: int) -> Tensor:
    """Return the logits in what a classifier returned for so many images: a tensor, the first of a tuple, or ``logits`` of a dict or an
    object."""
    found = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", output)
    found = found[0] if isinstance(found, tuple | list) and found else found
    if isinstance(found, Tensor) and found.ndim == 2 and len(found) == count and found.is_floating_point():
        return found
    shape = f" of shape {tuple(found.shape)} and {found.dtype} for N = {count}" if isinstance(found, Tensor) else ""
    raise UsageError(
        f"The module returns {type(output).__name__}{shape}; a classifier returns logits (N, classes), or a tuple, a dict or an "
        "object that holds them first or as 'logits'."
    )


def make_module(reference: str) -> nn.Module:
    """Run the user's factory and return the module it makes; a module in its place is returned as it is."""
    place, _, name = reference.rpartition(":")
    found = getattr(_import(place), name, None)
    if found is None:
        raise UsageError(f"{place} has no '{name}'{did_you_mean(name, public_names(_import(place)))}.")
    try:
        made = found if isinstance(found, nn.Module) else found()
    except Exception as error:
        raise UsageError(f"{reference} failed: {type(error).__name__}: {error}") from error
    if not isinstance(made, nn.Module):
        raise UsageError(f"{reference} must return a torch.nn.Module, not {type(made).__name__}.")
    return made


def public_names(module: Any) -> list[str]:
    """Return the callables that a module defines itself."""
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
    return [name for name in own if not name.startswith("_")]


def _import(place: str) -> Any:
    """Import a file, or a module as Python finds it from the current folder; what goes wrong inside it is said with its place."""
    path = Path(place)
    if place.endswith(".py") and not path.is_file():
        raise UsageError(f"There is no file {place}.")
    folder = path.resolve().parent if place.endswith(".py") else Path.cwd()
    try:
        with _importable_from(folder):
            if not place.endswith(".py"):
                return importlib.import_module(place)
            name = f"ttaps_own_{path.stem}_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]}"
            spec = importlib.util.spec_from_file_location(name, path.resolve())
            if spec is None or spec.loader is None:
                raise UsageError(f"{place} is not a Python file.")
            module = sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{place} cannot be imported: {type(error).__name__}: {error}") from error


@contextmanager
def _importable_from(folder: Path) -> Iterator[None]:
    """Let a file import what lies beside it."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def backbone_factory(backbone: Backbone) -> Factory:
    """Return how to make a backbone: from its reference, by the user's own function, or as a copy of a module."""
    if isinstance(backbone, nn.Module):
        return partial(deepcopy, backbone)
    if not isinstance(backbone, str):
        return backbone
    if not is_reference(backbone):
        raise UsageError(f"A backbone is written my_nets.py:make_net or package.nets:make_net, not '{backbone}'.")
    return partial(make_module, backbone)


def backbone_reference(backbone: Backbone) -> str:
    """Return the name of a backbone in a run folder: a factory found from anywhere, or ``<Name>`` if only Python can pass it."""
    if isinstance(backbone, str):
        place, _, name = backbone.rpartition(":")
        return f"{Path(place).resolve()}:{name}" if place.endswith(".py") else backbone
    name = getattr(backbone, "__qualname__", type(backbone).__name__)
    home = sys.modules.get(getattr(backbone, "__module__", ""))
    at_home = home is not None and home.__name__ != "__main__" and vars(home).get(name) is backbone
    if home is None or isinstance(backbone, nn.Module) or not at_home:
        return f"<{name}>"
    return f"{home.__name__}:{name}" if "." in home.__name__ else f"{Path(str(home.__file__)).resolve()}:{name}"


def source_file(reference: str) -> Path | None:
    """Return the file that defines a factory, without running it; None if not found or only known in Python."""
    place = reference.rpartition(":")[0]
    if place.endswith(".py"):
        return Path(place)
    try:
        with _importable_from(Path.cwd()):
            spec = importlib.util.find_spec(place) if place else None
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec and spec.origin else None


def load_state(module: nn.Module, path: Path, trust: bool = False) -> None:
    """Load a ``state_dict`` from a safetensors or ``torch.save`` file, and say what does not fit."""
    weights = _read_state(path, trust)
    for prefix in ("module.", "_orig_mod."):  # what DataParallel and torch.compile put before every name
        if weights and all(name.startswith(prefix) for name in weights):
            weights = {name.removeprefix(prefix): weight for name, weight in weights.items()}
    if wrong := mismatch(weights, module):
        raise CheckpointError(f"{path} does not fit the network: {wrong}.")
    module.load_state_dict(weights)


def mismatch(weights: Mapping[str, Tensor], module: nn.Module) -> str:
    """Name the weights a module lacks or has in another shape; empty if all fit."""
    have, want = ({name: tuple(t.shape) for name, t in side.items()} for side in (weights, module.state_dict()))
    wrong = [name for name in want | have if have.get(name) != want.get(name)]
    if not wrong:
        return ""
    own, other = have.get(wrong[0], "nothing"), want.get(wrong[0], "nothing")
    return f"'{wrong[0]}' has shape {own}, the network expects {other} ({len(wrong)} such weights)"


def _read_state(path: Path, trust: bool) -> dict[str, Tensor]:
    if not path.is_file():
        raise CheckpointError(f"There are no weights {path}: no such file.")
    try:
        if path.suffix == ".safetensors":
            return safetensors.torch.load(path.read_bytes())
        with _importable_from(Path.cwd()) if trust else nullcontext():  # a whole module names the file of its class
            found = torch.load(path, map_location="cpu", weights_only=not trust)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{path} is a pickle that holds more than weights: loading it would run code from it.\n"
            "Save the weights alone, torch.save(net.state_dict(), ...) or as safetensors; or give --trust if you made the file yourself."
        ) from error
    except (ImportError, AttributeError) as error:
        remedy = "save net.state_dict() instead"
        raise CheckpointError(f"{path} needs code that is not available ({error}): {remedy}.") from error
    except Exception as error:  # on damaged bytes torch's unpickler raises whatever it ran into
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise CheckpointError(f"{path} is damaged or holds no weights ({reason}).") from error
    if isinstance(found, nn.Module):
        found = found.state_dict()
    for name in ("state_dict", "model", "model_state_dict", "net"):  # checkpoints that keep more than the weights
        if isinstance(found, Mapping) and isinstance(found.get(name), Mapping):
            found = found[name]
    if not isinstance(found, Mapping) or not all(isinstance(weight, Tensor) for weight in found.values()):
        raise CheckpointError(f"{path} holds no state_dict: it is a {type(found).__name__}, not names with tensors.")
    return dict(found)
