"""What is special about an experiment's method: its settings beside the default ones."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from ttaps.adaptation import METHODS
from ttaps.adaptation.settings import SETTINGS
from ttaps.evaluate.store import Experiment


def changed_settings(experiment: Experiment) -> dict[str, Any]:
    """Return the settings that differ from the method's defaults, nested ones by their full names (``views.flip``).

    Of a method or a setting that this version does not know, everything is a change.
    """
    return _changes(json.loads(experiment.settings), _defaults(experiment.method))


def settings_name(experiment: Experiment) -> str:
    """Return a short name for an experiment's settings: nothing for the defaults, ``fast`` for those of that name, ``fast, lr 0.3``."""
    changed, usual = changed_settings(experiment), _defaults(experiment.method)
    named = {name: _changes(known, usual) for name, known in SETTINGS.get(experiment.method, {}).items()}
    fitting = [name for name, known in named.items() if known and known.items() <= changed.items()]
    best = max(fitting, key=lambda name: len(named[name]), default="")
    rest = [f"{name} {value}" for name, value in changed.items() if name not in named.get(best, {})]
    return ", ".join([best, *rest] if best else rest)


def _defaults(method: str) -> dict[str, Any]:
    if method not in METHODS:
        return {}
    made: Any = METHODS[method]()
    plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(made)))  # lists for tuples, as they are stored
    return plain


def _changes(settings: dict[str, Any], usual: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, dict):
            found |= _changes(value, usual.get(name, {}), f"{prefix}{name}.")
        elif name not in usual or value != usual[name]:
            found[f"{prefix}{name}"] = value
    return found
