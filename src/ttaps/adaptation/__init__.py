"""Test-time adaptation: one short file per method.

A method is a frozen dataclass of its own settings. ``method.adapt(network, images, keys)`` returns class probabilities before and after
every step, (N, steps + 1, classes), and leaves the network as it was. docs/methods.md has the equations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

from torch import Tensor, nn

from ttaps.adaptation.augment import Augment
from ttaps.adaptation.bn import Bn
from ttaps.adaptation.memo import Memo
from ttaps.adaptation.mt3 import Mt3
from ttaps.adaptation.presets import PRESETS
from ttaps.adaptation.result import Result
from ttaps.adaptation.source import Source
from ttaps.adaptation.tent import Tent
from ttaps.adaptation.ttaps import Ttaps
from ttaps.adaptation.ttt import Ttt
from ttaps.config import did_you_mean, from_dict
from ttaps.errors import UsageError
from ttaps.model import Network
from ttaps.model.split_network import adapted_names


class Method(Protocol):
    """What every method is."""

    name: ClassVar[str]
    paper: ClassVar[str]
    """Who published it, and when."""
    adapts: ClassVar[str]
    """What an image may change for itself."""
    trained_by: ClassVar[tuple[str, ...]]
    """Training objectives that make a network for it; none named: any will do."""

    def missing_requirement(self, network: nn.Module) -> str | None:
        """Return in words what the method needs and a network has not, or None."""
        ...

    def adapt(self, network: nn.Module, images: Tensor, keys: Sequence[int]) -> Tensor:
        """Return class probabilities (N, steps + 1, classes) for uint8 images (N, 3, H, W), each with its own key."""
        ...


METHODS: dict[str, type[Method]] = {
    "source": Source,
    "augment": Augment,
    "bn": Bn,
    "tent": Tent,
    "memo": Memo,
    "ttt": Ttt,
    "mt3": Mt3,
    "ttaps": Ttaps,
}


def make_method(name: str, settings: dict[str, Any] | None = None) -> Method:
    """Return a method by name (``ttaps``, or ``ttaps:fast`` for its settings of that name), with further settings on top."""
    method, _, named = name.partition(":")
    if method not in METHODS:
        raise UsageError(f"Unknown method '{method}'{did_you_mean(method, METHODS)}.")
    known = PRESETS.get(method, {})
    if named and named not in known:
        raise UsageError(f"Method '{method}' has no settings called '{named}'{did_you_mean(named, known)}.")
    base = from_dict(METHODS[method], known.get(named, {}), where=method)
    return from_dict(METHODS[method], settings or {}, where=method, base=base)


def missing_requirement(method: Method, network: nn.Module, objective: str = "") -> str | None:
    """Return in words what a method needs and a network, trained by ``objective`` where that is known, has not; or None."""
    if objective and method.trained_by and objective not in method.trained_by:
        return f"training by {' or '.join(method.trained_by)} (this model's is {objective})"
    return method.missing_requirement(network)


def supported_methods(network: nn.Module, objective: str = "") -> list[str]:
    """Return the names of the methods that can adapt a network."""
    return [name for name, kind in METHODS.items() if missing_requirement(kind(), network, objective) is None]


def ensure_supported(method: Method, network: nn.Module, objective: str = "") -> None:
    """Refuse a method that a network cannot serve, in one line that says what is missing and what can be had."""
    missing = missing_requirement(method, network, objective)
    if missing:
        known = ", ".join(supported_methods(network, objective))
        raise UsageError(f"Method '{method.name}' needs {missing}; this model can serve {known}.")
    if isinstance(method, Ttaps) and isinstance(network, Network):
        adapted_names(network, method.adapt_params)  # refuses a scope that this network has not


EPISODIC = "episodic"
"""The protocol of a method that forgets everything after each image."""


def protocol(method: Method) -> str:
    """Say what an image's result depends on besides the image: nothing (``episodic``) unless the method says so."""
    return str(getattr(method, "protocol", EPISODIC))


__all__ = [
    "EPISODIC",
    "METHODS",
    "Augment",
    "Bn",
    "Memo",
    "Method",
    "Mt3",
    "Result",
    "Source",
    "Tent",
    "Ttaps",
    "Ttt",
    "check",
    "make_method",
    "missing_requirement",
    "protocol",
    "serves",
]
