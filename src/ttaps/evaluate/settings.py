"""What is special about an experiment's method: its settings beside the default ones."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from typing import Any

from ttaps.adaptation import EPISODIC, METHODS
from ttaps.adaptation.presets import PRESETS
from ttaps.adaptation.spec import parse_method
from ttaps.config import flat
from ttaps.evaluate.store import Experiment

IN_PROTOCOL = ("online", "keep_momentum")
"""Settings that an experiment states as its protocol."""


def changed_settings(experiment: Experiment) -> dict[str, Any]:
    """Return the settings that differ from the method's defaults, nested ones by their full names (``views.flip``).

    Of a method or a setting that this version does not know, everything is a change.
    """
    return _changes(flat(json.loads(experiment.settings)), _usual(experiment.method))


def all_settings(experiment: Experiment) -> dict[str, Any]:
    """Return an experiment's settings by their full names; one from before a setting existed had its default."""
    return _usual(experiment.method) | flat(json.loads(experiment.settings))


def as_stored(experiment: Experiment, stored: Iterable[Experiment]) -> Experiment:
    """Return the stored experiment that is the same one, as it was written then; else the experiment as it is."""
    settings, plain = all_settings(experiment), dataclasses.replace(experiment, settings="")
    for other in stored:
        if dataclasses.replace(other, settings="") == plain and all_settings(other) == settings:
            return other
    return experiment


def settings_name(experiment: Experiment) -> str:
    """Return a short name for an experiment's settings: nothing for the defaults, ``fast`` for those of that name, ``fast, lr 0.3``.

    What is kept from image to image is added where it is not what the name says: ``online``, or ``reference, episodic``.
    """
    best, different = _nearest(experiment)
    rest = [f"{name} {value}" for name, value in different.items()]
    usual = parse_method(f"{experiment.method}:{best}").protocol if best else EPISODIC
    kept = "" if experiment.protocol == usual else experiment.protocol
    return ", ".join(filter(None, [best, kept, *rest]))  # long names are cut at their end


def default_name(method: str) -> str:
    """Return what a method's default settings are called where they have a name: TTAPS's are the ``paper``'s."""
    return next((name for name, known in PRESETS.get(method, {}).items() if not known), "")


def _nearest(experiment: Experiment) -> tuple[str, dict[str, Any]]:
    """Return the named settings that the fewest of an experiment's differ from (no name for the defaults), and those that do."""
    settings = flat(json.loads(experiment.settings))
    names = [name for name, known in PRESETS.get(experiment.method, {}).items() if known]
    differences = {name: _changes(settings, _usual(experiment.method, name)) for name in ("", *names)}
    best = min(differences, key=lambda name: len(differences[name]))
    return best, differences[best]


def _usual(method: str, named: str = "") -> dict[str, Any]:
    """Return a method's settings by default, or those of a name; nothing of a method that this version does not know."""
    if method not in METHODS:
        return {}
    made = parse_method(f"{method}:{named}")
    return flat(json.loads(json.dumps(dataclasses.asdict(made))))  # lists for tuples, as they are stored


def _changes(settings: dict[str, Any], usual: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in usual or value != usual[name]}
