"""Test-time adaptation: one short file per method.

A method is a frozen dataclass of its own settings. ``method.adapt(network, images, keys)`` returns class probabilities before and after
every step, (N, steps + 1, classes), and leaves the network as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

from torch import Tensor

from ttaps.adaptation.result import Result
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
    """Return a method by name, with settings other than its defaults."""
    if name not in METHODS:
        raise UsageError(f"Unknown method '{name}'{nearest(name, METHODS)}.")
    return from_dict(METHODS[name], settings or {}, where=name)


__all__ = ["METHODS", "Method", "Result", "Source", "Ttaps", "make_method"]
