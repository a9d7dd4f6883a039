"""Which stored experiment a model, a data set, a method and a seed are: by what a result depends on, not by how it was written."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from ttaps.adaptation import METHODS, Method
from ttaps.adaptation.spec import method_spec
from ttaps.config import from_dict
from ttaps.errors import UsageError
from ttaps.evaluate.benchmark import Benchmark
from ttaps.evaluate.store import Experiment, Store
from ttaps.model.checkpoint import Model

FACTS = ("objective", "data", "seed", "step", "steps")


def describe(model: Model, data: Benchmark, method: Method, seed: int) -> Experiment:
    """Return all that a result depends on besides the image."""
    settings = json.dumps(dataclasses.asdict(method), sort_keys=True, separators=(",", ":"))
    return Experiment(
        model.name, model.fingerprint, data.name, data.digest, method_spec(method), settings, seed, method.protocol
    )


def model_facts(model: Model) -> dict[str, Any]:
    """Return what a report says about a model: how it was trained and what its network is."""
    known = {name: model.info[name] for name in FACTS if name in model.info}
    return {**known, "model": dataclasses.asdict(model.network.config)}


def stored_method(experiment: Experiment) -> Method | None:
    """Return an experiment's method; a setting that did not exist yet has its default. None if this version does not know it."""
    try:
        return from_dict(METHODS[experiment.method], json.loads(experiment.settings), where=experiment.spec)
    except (KeyError, UsageError):
        return None


def find_experiment(store: Store, experiment: Experiment) -> int | None:
    """Return the number of a stored experiment that is the same, also one from before a setting existed; None if there is none."""
    wanted, method = dataclasses.replace(experiment, settings="", spec=""), stored_method(experiment)
    for number, other in store.experiments().items():
        if dataclasses.replace(other, settings="", spec="") == wanted and stored_method(other) == method:
            return number
    return None


def open_experiment(store: Store, experiment: Experiment) -> int:
    """Return the number of an experiment, a new one if it is not stored yet."""
    found = find_experiment(store, experiment)
    return store.experiment(experiment) if found is None else found


def refresh_specs(store: Store) -> None:
    """Write the settings of stored experiments as this version does: a preset that a spec names may have changed since."""
    for number, experiment in store.experiments().items():
        method = stored_method(experiment)
        if method is not None and (spec := method_spec(method)) != experiment.spec:
            store.rename(number, spec)
