"""Test-time adaptation: one short file per method.

A method is a frozen dataclass of its own settings. ``method.adapt(network, images, keys)`` returns class probabilities before and after
every step, (N, steps + 1, classes), and does not change the network. docs/methods.md has the equations.
"""

from __future__ import annotations

from torch import nn

from ttaps.adaptation.augment import Augment as Augment
from ttaps.adaptation.bn import Bn as Bn
from ttaps.adaptation.memo import Memo as Memo
from ttaps.adaptation.method import EPISODIC as EPISODIC
from ttaps.adaptation.method import Method as Method
from ttaps.adaptation.mt3 import Mt3 as Mt3
from ttaps.adaptation.result import Result as Result
from ttaps.adaptation.source import Source as Source
from ttaps.adaptation.tent import Tent as Tent
from ttaps.adaptation.ttaps import Ttaps as Ttaps
from ttaps.adaptation.ttt import Ttt as Ttt
from ttaps.errors import UsageError

METHODS: dict[str, type[Method]] = {kind.name: kind for kind in (Source, Augment, Bn, Tent, Memo, Ttt, Mt3, Ttaps)}
"""Every method by its name, as it is typed. To add one, add its class here."""


def missing_requirement(method: Method, network: nn.Module, objective: str = "") -> str | None:
    """Return in words what a method needs and a network lacks, or None. ``objective`` trained the network; empty if unknown."""
    if objective and method.trained_by and objective not in method.trained_by:
        return f"training with objective {' or '.join(method.trained_by)} (this model's is {objective})"
    return method.missing_requirement(network)


def supported_methods(network: nn.Module, objective: str = "") -> list[str]:
    """Return the names of the methods that can adapt a network."""
    return [name for name, kind in METHODS.items() if missing_requirement(kind(), network, objective) is None]


def ensure_supported(method: Method, network: nn.Module, objective: str = "") -> None:
    """Refuse a method that a network does not support, in one line that says what is missing and what is supported."""
    missing = missing_requirement(method, network, objective)
    if missing:
        known = ", ".join(supported_methods(network, objective))
        raise UsageError(f"Method '{method.name}' needs {missing}; this model supports {known}.")
    method.check_settings(network)
