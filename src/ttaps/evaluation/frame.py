"""Stored rows as pandas frames and files: one row per image and experiment, or one for each step. No model is needed."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ttaps.errors import MissingExtra, TtapsError, UsageError
from ttaps.evaluation.statistics import accuracy_table
from ttaps.evaluation.store import Store, decode_traces
from ttaps.files import atomic_write

TRAINING = ["objective", "training_seed", "num_prototypes"]
IDENTITY = ["model", "fingerprint", *TRAINING, "data", "digest", "spec", "method", "protocol", "seed"]
"""Columns that say which experiment a row belongs to; an unknown objective is "", an unknown training seed -1, an unknown number of
prototypes 0, so that group-bys need no special case."""
ITEM = ["corruption", "severity", "image"]
"""Columns that say which image a row is about; ``image`` is its number in the data set, the same under every corruption."""
STORED = ["file", "label", "before", "after", "confidence_before", "confidence_after", "seconds"]
SCORED = ["nll_before", "nll_after", "brier_before", "brier_after"]
COLUMNS = [*IDENTITY, *ITEM, *STORED[:-1], "correct_before", "correct_after", *SCORED, "seconds", "steps"]
TRACE_LENGTH = "(length(trace) / 12)"  # predictions in a trace: three numbers each; two Brier scores may follow
ENDS = {
    "nll_before": f"substr(trace, 8 * {TRACE_LENGTH} + 1, 4)",
    "nll_after": f"substr(trace, 12 * {TRACE_LENGTH} - 3, 4)",
    "brier": f"substr(trace, 12 * {TRACE_LENGTH} + 1)",
}
"""The bytes of a trace that numbers before and after adaptation are made of, in SQL."""
UNKNOWN = np.full(2, np.nan, dtype="<f4").tobytes()
TRACE_COLUMNS = [*IDENTITY, *ITEM, "file", "label", "step", "prediction", "confidence", "correct", "label_probability"]
TRACE_COLUMNS += ["nll"]


def load_rows(folders: Sequence[Path], trace: bool = False) -> pd.DataFrame:
    """Return every stored image as a row with :data:`COLUMNS`; the same experiment in several folders is merged.
    ``before`` and ``after`` are the predicted classes before adaptation and after the last step; -1 is no prediction. ``steps`` is the
    number of predictions after the first. With ``trace``, that column is included as stored."""
    parts, columns = [], [*COLUMNS, "trace"] if trace else COLUMNS
    for folder in folders:
        with Store(folder, write=False) as store:
            parts.append(read_rows(store, trace=trace)[columns])
    rows = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    if rows.empty:
        where = ", ".join(map(str, folders))
        text = f"No image has been evaluated yet in {where}.\nRun the ttaps evaluate command that made it again."
        raise TtapsError(text)
    return rows.drop_duplicates([*IDENTITY, *ITEM], ignore_index=True) if len(parts) > 1 else rows


def load_traces(folders: Sequence[Path]) -> pd.DataFrame:
    """Return every stored image after every step (0 is before adaptation) as a row with :data:`TRACE_COLUMNS`."""
    parts = [_explode(part) for _, part in load_rows(folders, trace=True).groupby("steps")]
    return pd.concat(parts, ignore_index=True)[TRACE_COLUMNS]


def read_rows(store: Store, experiments: Sequence[int] | None = None, trace: bool = False) -> pd.DataFrame:
    """Return the rows of some or all experiments, with their ids in the column ``experiment``."""
    known, models = store.experiments(), store.models()
    names = ["experiment", *ITEM, *STORED, "steps", *(["trace"] if trace else [])]
    query = ", ".join([*names, *ENDS.values()]).replace("steps", f"{TRACE_LENGTH} - 1")
    numbers = ", ".join(map(str, known if experiments is None else experiments))
    found = store.select(f"SELECT {query} FROM results WHERE experiment IN ({numbers})")
    identities = []
    for number, experiment in known.items():
        facts = models.get(experiment.fingerprint, {})
        training = facts.get("objective") or "", facts.get("seed", -1), facts.get("model", {}).get("num_prototypes", 0)
        own = {**vars(experiment), "method": experiment.method, "experiment": number}
        identities.append(own | dict(zip(TRAINING, training, strict=True)))
    rows = _with_scores(pd.DataFrame(list(found), columns=[*names, *ENDS]))
    rows = rows.merge(pd.DataFrame(identities, columns=["experiment", *IDENTITY]))
    for end in ("before", "after"):
        # Not a number: a destroyed network is sure of nothing.
        rows[f"confidence_{end}"] = rows[f"confidence_{end}"].astype(float).fillna(0.0)
        rows[f"correct_{end}"] = rows[end] == rows["label"]
    return rows


def _with_scores(rows: pd.DataFrame) -> pd.DataFrame:
    """Turn the bytes at the ends of traces into the negative log-likelihood of the true class and the Brier score, before and after."""
    for name in ("nll_before", "nll_after"):
        rows[name] = _nll(np.frombuffer(b"".join(rows[name]), dtype="<f4"))
    brier = np.frombuffer(b"".join(scores or UNKNOWN for scores in rows.pop("brier")), dtype="<f4").astype(float)
    return rows.assign(brier_before=brier[::2], brier_after=brier[1::2])


def _nll(probability: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return -ln p, at most 87.3 for a p that float32 does not have; what is not a number counts as 0."""
    known = np.nan_to_num(probability).astype(float)
    return -np.log(np.maximum(known, np.finfo(np.float32).tiny))


def export(folder: Path, path: Path, images: bool = False, steps: bool = False) -> None:
    """Write a CSV or Parquet file: accuracy tables, or every image (``images``); after every step (``steps``) or only the last."""
    if path.suffix not in (".csv", ".parquet"):
        raise UsageError(f"{path}: the file must end in .csv or .parquet.")
    rows = load_traces([folder]) if steps else load_rows([folder])
    found = with_names(rows, folder) if images else accuracies(rows, steps)
    with atomic_write(path) as partial:
        if path.suffix == ".csv":
            found.to_csv(partial, index=False, lineterminator="\n")
            return
        try:
            found.to_parquet(partial, index=False)
        except ImportError as error:
            raise MissingExtra("Writing Parquet", "figures") from error


def accuracies(rows: pd.DataFrame, steps: bool = False) -> pd.DataFrame:
    """Return the accuracy tables of all experiments, concatenated; with ``steps`` one per step."""
    key = [*IDENTITY, *(["step"] if steps else [])]
    rows = beside_first(rows) if steps else rows
    parts = {identity: accuracy_table(part).reset_index() for identity, part in rows.groupby(key, sort=False)}
    return pd.concat(parts, names=key).reset_index(key).reset_index(drop=True)


def beside_first(traces: pd.DataFrame) -> pd.DataFrame:
    """Return traces with what was before adaptation (``correct_before``, ...) beside what is after each step (``correct_after``, ...)."""
    values = ["correct", "confidence", "nll"]
    first = traces.loc[traces["step"] == 0, [*IDENTITY, *ITEM, *values]]
    first = first.rename(columns={name: f"{name}_before" for name in values})
    return traces.rename(columns={name: f"{name}_after" for name in values}).merge(first)


def with_names(rows: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Add the names of the true and predicted classes; "" if there is none."""
    with Store(folder, write=False) as store:
        names = {(model, number): name for model, known in store.classes().items() for number, name in enumerate(known)}
    for column in [name for name in ("label", "before", "after", "prediction") if name in rows]:
        keys = zip(rows["fingerprint"], rows[column], strict=True)
        rows[f"{column}_name"] = [names.get(key, "") for key in keys]
    return rows


def _explode(rows: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each entry of the traces, which all have the same length."""
    predictions, confidence, label_probability = decode_traces(rows["trace"].tolist())
    length = predictions.shape[1]
    found = rows.drop(columns="trace").loc[rows.index.repeat(length)]
    found["step"], found["prediction"] = np.tile(np.arange(length), len(rows)), predictions.ravel()
    found["confidence"] = np.nan_to_num(confidence.ravel())
    found["label_probability"] = np.nan_to_num(label_probability.ravel())
    found["nll"] = _nll(label_probability.ravel())
    found["correct"] = found["prediction"] == found["label"]
    return found
