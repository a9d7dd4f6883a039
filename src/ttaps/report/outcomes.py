"""Stored rows as arrays: what a report is made of. One run is one experiment, from whichever folders hold parts of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ttaps.errors import TtapsError
from ttaps.evaluate import Experiment, Row, Store

Outcomes = NDArray[np.void]
ITEM = ["corruption", "severity", "image"]


@dataclass(frozen=True, eq=False)
class Run:
    """The outcomes of one experiment."""

    experiment: Experiment
    facts: dict[str, Any]
    """What is known about the model: objective, seed, network; empty for results of older versions."""
    rows: Outcomes
    """A record for each image under each corruption, see :func:`record`, in the order of corruption, severity and image."""

    @property
    def steps(self) -> int:
        """Gradient steps per image."""
        return int(self.rows["right"].shape[1]) - 1


def record(steps: int) -> np.dtype[np.void]:
    """Return what is kept of a row: whether it is right before and after every step, and both ends of its predictions.

    A prediction of -1 is none; its confidence is 0.
    """
    return np.dtype(
        [
            *(
                ("corruption", "U32"),
                ("severity", "i4"),
                ("image", "i8"),
                ("label", "i4"),
                ("right", "?", (steps + 1,)),
            ),
            *(("predictions", "i4", (2,)), ("confidence", "f4", (2,)), ("seconds", "f8")),
        ]
    )


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """Read all experiments of some results folders; those without a row yet are left out, and there must be one that has."""
    parts: dict[Experiment, list[Run]] = {}
    for folder in folders:
        with Store(folder, write=False) as store:
            models = store.models()
            for number, experiment in store.experiments().items():
                rows = to_array(store.rows(number))
                if rows is not None:
                    run = Run(experiment, models.get(experiment.fingerprint, {}), rows)
                    parts.setdefault(experiment, []).append(run)
    if not parts:
        where = ", ".join(map(str, folders))
        raise TtapsError(f"No image has been evaluated yet in {where}.\nGo on with the ttaps evaluate that made it.")
    return [_united(runs) for runs in parts.values()]


def to_array(rows: Iterator[Row]) -> Outcomes | None:
    """Return rows as one array of records; None where there are none."""
    first = next(rows, None)
    if first is None:
        return None
    found: Outcomes = np.fromiter(map(_values, chain([first], rows)), dtype=record(len(first.predictions) - 1))
    np.nan_to_num(found["confidence"], copy=False)
    return found


def _values(row: Row) -> tuple[Any, ...]:
    right = tuple(prediction == row.label for prediction in row.predictions)
    predictions, confidence = ((trace[0], trace[-1]) for trace in (row.predictions, row.confidence))
    return *row.item, row.label, right, predictions, confidence, row.seconds


def _united(runs: Sequence[Run]) -> Run:
    """Return the parts of an experiment as one, each image once."""
    if len(runs) == 1:
        return runs[0]
    rows = np.concatenate([run.rows for run in runs])
    facts = next((run.facts for run in runs if run.facts), {})
    return Run(runs[0].experiment, facts, rows[np.unique(rows[ITEM], return_index=True)[1]])
