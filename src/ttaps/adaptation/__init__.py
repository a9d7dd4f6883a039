"""Test-time adaptation: one short file per method.

A method is a frozen dataclass of its settings. ``method.adapt(network, images, keys)`` returns class probabilities before and after
every step, (N, steps + 1, classes), and does not change the network. docs/methods.md has the equations."""

import importlib
from typing import Any

from torch import nn

from ttaps.adaptation.augment import Augment as Augment
from ttaps.adaptation.bn import Bn as Bn
from ttaps.adaptation.cotta import Cotta as Cotta
from ttaps.adaptation.eata import Eata as Eata
from ttaps.adaptation.lame import Lame as Lame
from ttaps.adaptation.memo import Memo as Memo
from ttaps.adaptation.method import EPISODIC as EPISODIC
from ttaps.adaptation.method import Method as Method
from ttaps.adaptation.mt3 import Mt3 as Mt3
from ttaps.adaptation.result import Result as Result
from ttaps.adaptation.sar import Sar as Sar
from ttaps.adaptation.source import Source as Source
from ttaps.adaptation.t3a import T3a as T3a
from ttaps.adaptation.tent import Tent as Tent
from ttaps.adaptation.ttaps import Ttaps as Ttaps
from ttaps.adaptation.ttt import Ttt as Ttt
from ttaps.errors import UsageError
from ttaps.methods import METHOD_TABLE, MethodEntry


def load_class(entry: MethodEntry) -> type[Method]:
    """Return the class of a method."""
    module, _, name = entry.place.partition(":")
    return getattr(importlib.import_module(f"ttaps.adaptation.{module}"), name)


METHODS = {name: load_class(entry) for name, entry in METHOD_TABLE.items()}
"""Every method by name."""

MILD = {"scale": [0.7, 1.0], "jitter_strength": 0.0, "gray_p": 0.0, "blur_p": 1.0}
PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "ttaps": {
        # as printed: the defaults
        "paper": {},
        # the authors' code: its momentum leaks from image to image, so results depend on the order
        "reference": {"momentum": 0.9, "weight_decay": 1e-5, "swap_reduction": "mean", "keep_momentum": True},
        # the paper's ten steps as one of ten times the size: they are so small that the gradient hardly changes in between
        "fast": {"num_pairs": 24, "steps": 1, "lr": 1.0, "confidence_threshold": 0.7},
        # best on validation images under the four extra corruptions; plain steps, nothing shared between images
        "tuned": {"view_pool": 16, "num_pairs": 8, "adapt_params": "last_block", "steps": 2, "lr": 2.0}
        | {"tau": 0.1, "epsilon": 0.05, "confidence_threshold": 0.5, "views": MILD},
    },
    # exactly the views of ttaps:tuned
    "augment": {"tuned": {"views": MILD}},
}
"""``ttaps:fast`` is method ``ttaps`` with the settings called ``fast``."""


def missing_requirement(method: Method, network: nn.Module, objective: str = "") -> str | None:
    """Describe what a method needs and a network lacks, or return None. ``objective`` trained the network; empty if unknown."""
    if objective and method.trained_by and objective not in method.trained_by:
        return f"training with objective {' or '.join(method.trained_by)} (this model's is {objective})"
    return method.missing_requirement(network)


def supported_methods(network: nn.Module, objective: str = "") -> list[str]:
    """Return the names of the methods that can adapt a network."""
    return [name for name, kind in METHODS.items() if missing_requirement(kind(), network, objective) is None]


def ensure_supported(method: Method, network: nn.Module, objective: str = "") -> None:
    """Refuse a method that a network does not support, and say what is missing and what is supported."""
    if missing := missing_requirement(method, network, objective):
        known = ", ".join(supported_methods(network, objective))
        raise UsageError(f"Method '{method.name}' needs {missing}; this model supports {known}.")
    method.check_settings(network)
