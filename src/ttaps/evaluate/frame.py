"""Stored rows as pandas frames: one row per image and experiment, or one per image, experiment and step. No model is needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ttaps.errors import TtapsError
from ttaps.evaluate.store import Experiment, Store

IDENTITY = ["model", "fingerprint", "objective", "training_seed", "num_prototypes", "data", "digest"]
IDENTITY += ["spec", "method", "protocol", "seed"]
"""Columns that say which experiment a row belongs to; an unknown objective is "", an unknown training seed -1, an unknown number of
prototypes 0, so that group-bys need no special case."""
ITEM = ["corruption", "severity", "image"]
"""Columns that say which image a row is about; ``image`` is its number in the data set, the same under every corruption."""
RESULT = ["file", "label", "before", "after", "confidence_before", "confidence_after"]
RESULT += ["correct_before", "correct_after", "seconds"]
COLUMNS = [*IDENTITY, *ITEM, *RESULT]


def load_rows(folders: Sequence[Path]) -> pd.DataFrame:
    """Return every stored image as a row with :data:`COLUMNS`; the same experiment in several folders is one.

    ``before`` and ``after`` are the predicted classes before adaptation and after the last step; -1 is no prediction.
    """
    parts = [_rows(store, number, identity) for store, number, identity in _experiments(folders)]
    return _united(parts, [*IDENTITY, *ITEM], folders)[COLUMNS]


def load_traces(folders: Sequence[Path]) -> pd.DataFrame:
    """Return every stored image after every step (0 is before adaptation) as a row with the identity columns and the step's result."""
    parts = [_traces(store, number, identity) for store, number, identity in _experiments(folders)]
    return _united(parts, [*IDENTITY, *ITEM, "step"], folders)


def _experiments(folders: Sequence[Path]) -> Any:
    for folder in folders:
        with Store(folder, write=False) as store:
            models = store.models()
            for number, experiment in store.experiments().items():
                yield store, number, _identity(experiment, models.get(experiment.fingerprint, {}))


def _identity(experiment: Experiment, facts: dict[str, Any]) -> dict[str, Any]:
    return {
        "model": experiment.model,
        "fingerprint": experiment.fingerprint,
        "objective": facts.get("objective") or "",
        "training_seed": facts.get("seed", -1),
        "num_prototypes": facts.get("model", {}).get("num_prototypes", 0),
        "data": experiment.data,
        "digest": experiment.digest,
        "spec": _spec(experiment),
        "method": experiment.method,
        "protocol": experiment.protocol,
        "seed": experiment.seed,
    }


def _rows(store: Store, number: int, identity: dict[str, Any]) -> pd.DataFrame:
    found = [
        (*row.item, "", row.label, row.predictions[0], row.predictions[-1], row.confidence[0], row.confidence[-1])
        + (row.right(0), row.right(-1), row.seconds)
        for row in store.rows(number)
    ]
    return pd.DataFrame(found, columns=[*ITEM, *RESULT]).assign(**identity)


def _traces(store: Store, number: int, identity: dict[str, Any]) -> pd.DataFrame:
    found = [
        (*row.item, row.label, step, prediction, confidence, prediction == row.label, probability)
        for row in store.rows(number)
        for step, (prediction, confidence, probability) in enumerate(
            zip(row.predictions, row.confidence, row.label_probability, strict=True)
        )
    ]
    names = [*ITEM, "label", "step", "prediction", "confidence", "correct", "label_probability"]
    return pd.DataFrame(found, columns=names).assign(**identity)


def _united(parts: list[pd.DataFrame], key: list[str], folders: Sequence[Path]) -> pd.DataFrame:
    parts = [part for part in parts if len(part)]
    if not parts:
        where = ", ".join(map(str, folders))
        raise TtapsError(
            f"No image has been evaluated yet in {where}.\nRun the ttaps evaluate command that made it again."
        )
    rows = pd.concat(parts, ignore_index=True)
    for name in rows.select_dtypes(np.floating):
        rows[name] = rows[name].fillna(0.0)  # a destroyed network is sure of nothing
    return rows.drop_duplicates(key, ignore_index=True)


def _spec(experiment: Experiment) -> str:
    """Stand-in for ``ttaps.adaptation.spec.method_spec``."""
    from ttaps.adaptation import EPISODIC
    from ttaps.evaluate.settings import _nearest

    best, different = _nearest(experiment)
    if experiment.protocol == "online":
        different = {**different, "online": "true"}
    elif experiment.protocol != EPISODIC and "momentum" in experiment.protocol and best != "reference":
        different = {**different, "keep_momentum": "true"}
    inside = ",".join(f"{name}={_toml(value)}" for name, value in different.items())
    return experiment.method + (f":{best}" if best else "") + (f"[{inside}]" if inside else "")


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"[{','.join(map(_toml, value))}]" if isinstance(value, list) else str(value)
