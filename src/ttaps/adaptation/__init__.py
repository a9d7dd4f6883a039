"""Test-time adaptation: one short file per method.

A method is a frozen dataclass of its own settings. ``method.adapt(network, images, keys)`` returns class probabilities before and after
every step, (N, steps + 1, classes), and leaves the network as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

from torch import Tensor

from ttaps.adaptation.result import Result
from ttaps.adaptation.settings import SETTINGS
from ttaps.adaptation.source import Source
from ttaps.adaptation.ttaps import Ttaps
from ttaps.config import from_dict, nearest
from ttaps.errors import UsageError
from ttaps.model import Network


class Method(Protocol):
    """What every method is."""

    name: ClassVar[str]

    def adapt(self, network: Network, images: Tensor, keys: Sequence[int]) -> Tensor:
        """Return class probabilities (N, steps + 1, classes) for uint8 images (N, 3, H, W), each with its own key."""
        ...


METHODS: dict[str, type[Method]] = {"source": Source, "ttaps": Ttaps}


def make_method(name: str, settings: dict[str, Any] | None = None) -> Method:
    """Return a method by name (``ttaps``, or ``ttaps:fast`` for its settings of that name), with further settings on top."""
    method, _, named = name.partition(":")
    if method not in METHODS:
        raise UsageError(f"Unknown method '{method}'{nearest(method, METHODS)}.")
    known = SETTINGS.get(method, {})
    if named and named not in known:
        raise UsageError(f"Method '{method}' has no settings called '{named}'{nearest(named, known)}.")
    return from_dict(METHODS[method], known.get(named, {}) | (settings or {}), where=method)


__all__ = ["METHODS", "Method", "Result", "Source", "Ttaps", "make_method"]
