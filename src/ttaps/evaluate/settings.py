"""What is special about an experiment's method: its settings beside the default ones."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from ttaps.adaptation import METHODS, make_method, protocol
from ttaps.adaptation.settings import SETTINGS
from ttaps.evaluate.store import Experiment

EPISODIC = "episodic"
IN_PROTOCOL = ("online", "leak")
"""Settings that an experiment states as its protocol."""


def changed_settings(experiment: Experiment) -> dict[str, Any]:
    """Return the settings that differ from the method's defaults, nested ones by their full names (``views.flip``).

    Of a method or a setting that this version does not know, everything is a change.
    """
    return _changes(json.loads(experiment.settings), _defaults(experiment.method))


def settings_name(experiment: Experiment) -> str:
    """Return a short name for an experiment's settings: nothing for the defaults, ``fast`` for those of that name, ``fast, lr 0.3``.

    What is kept from image to image is added where it is not what the name says: ``online``, or ``reference, episodic``.
    """
    changed = changed_settings(experiment)
    best, own = _named(experiment)
    rest = [f"{name} {value}" for name, value in changed.items() if name not in own]
    usual = protocol(make_method(f"{experiment.method}:{best}")) if best else EPISODIC
    kept = "" if experiment.protocol == usual else experiment.protocol
    return ", ".join(filter(None, [best, *rest, kept]))


def default_name(method: str) -> str:
    """Return what a method's default settings are called where they have a name: TTAPS's are the ``paper``'s."""
    return next((name for name, known in SETTINGS.get(method, {}).items() if not known), "")


def _named(experiment: Experiment) -> tuple[str, dict[str, Any]]:
    """Return the named settings that agree with an experiment's in the most respects, and what they change; no name where none do."""
    changed, usual = changed_settings(experiment), _defaults(experiment.method)
    stored = {
        name: {key: value for key, value in known.items() if key not in IN_PROTOCOL}
        for name, known in SETTINGS.get(experiment.method, {}).items()
    }
    named = {name: _changes(known, usual) for name, known in stored.items()}
    fitting = [name for name, known in named.items() if known and known.items() <= changed.items()]
    best = max(fitting, key=lambda name: len(named[name]), default="")
    return best, named.get(best, {})


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
