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
STORED = ["file", "label", "before", "after", "confidence_before", "confidence_after", "seconds"]
COLUMNS = [*IDENTITY, *ITEM, *STORED[:-1], "correct_before", "correct_after", "seconds", "steps"]
TRACE_COLUMNS = [*IDENTITY, *ITEM, "file", "label", "step", "prediction", "confidence", "correct", "label_probability"]


def load_rows(folders: Sequence[Path]) -> pd.DataFrame:
    """Return every stored image as a row with :data:`COLUMNS`; the same experiment in several folders is one.

    ``before`` and ``after`` are the predicted classes before adaptation and after the last step; -1 is no prediction. ``steps`` is the
    number of predictions after the first.
    """
    return _from_folders(folders, trace=False)[COLUMNS]


def load_traces(folders: Sequence[Path]) -> pd.DataFrame:
    """Return every stored image after every step (0 is before adaptation) as a row with :data:`TRACE_COLUMNS`."""
    rows = _from_folders(folders, trace=True)
    traces = [_explode(part, int(steps) + 1) for steps, part in rows.groupby("steps")]
    return pd.concat(traces, ignore_index=True)[TRACE_COLUMNS]


def load_classes(folders: Sequence[Path]) -> dict[str, tuple[str, ...]]:
    """Return the class names that labels and predictions are numbers of, by the model's fingerprint."""
    found: dict[str, tuple[str, ...]] = {}
    for folder in folders:
        with Store(folder, write=False) as store:
            found |= store.classes()
    return found


def read_rows(store: Store, experiments: Sequence[int] | None = None, trace: bool = False) -> pd.DataFrame:
    """Return the rows of some experiments, or of all, with their number in the column ``experiment``."""
    known = store.experiments()
    numbers = ", ".join(map(str, known if experiments is None else experiments))
    names = ["experiment", *ITEM, *STORED, "steps", *(["trace"] if trace else [])]
    query = ", ".join(names).replace("steps", "length(trace) / 12 - 1")
    found = store.select(f"SELECT {query} FROM results WHERE experiment IN ({numbers})")
    models = store.models()
    identities = [_identity(number, known[number], models) for number in known]
    rows = pd.DataFrame(list(found), columns=names).merge(pd.DataFrame(identities, columns=["experiment", *IDENTITY]))
    confidence = ["confidence_before", "confidence_after"]
    # Not a number: a destroyed network is sure of nothing.
    rows[confidence] = rows[confidence].astype(float).fillna(0.0)
    for end in ("before", "after"):
        rows[f"correct_{end}"] = rows[end] == rows["label"]
    return rows


def _from_folders(folders: Sequence[Path], trace: bool) -> pd.DataFrame:
    """Return the rows of all folders, each image of an experiment once."""
    parts = []
    for folder in folders:
        with Store(folder, write=False) as store:
            parts.append(read_rows(store, trace=trace))
    rows = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    if rows.empty:
        where = ", ".join(map(str, folders))
        raise TtapsError(
            f"No image has been evaluated yet in {where}.\nRun the ttaps evaluate command that made it again."
        )
    return rows.drop_duplicates([*IDENTITY, *ITEM], ignore_index=True) if len(parts) > 1 else rows


def _identity(number: int, experiment: Experiment, models: dict[str, dict[str, Any]]) -> dict[str, Any]:
    facts = models.get(experiment.fingerprint, {})
    return {
        "experiment": number,
        **experiment.columns(),
        "objective": facts.get("objective") or "",
        "training_seed": facts.get("seed", -1),
        "num_prototypes": facts.get("model", {}).get("num_prototypes", 0),
    }


def _explode(rows: pd.DataFrame, length: int) -> pd.DataFrame:
    """Return a row for each entry of the traces, which all have the same length."""
    numbers = np.frombuffer(b"".join(rows["trace"]), dtype="<i4").reshape(len(rows), 3, length)
    prediction, confidence, label_probability = (numbers[:, part].ravel() for part in range(3))
    traces = rows.drop(columns="trace").loc[rows.index.repeat(length)]
    traces["step"], traces["prediction"] = np.tile(np.arange(length), len(rows)), prediction
    traces["confidence"] = np.nan_to_num(confidence.view("<f4"))
    traces["label_probability"] = np.nan_to_num(label_probability.view("<f4"))
    traces["correct"] = traces["prediction"] == traces["label"]
    return traces
