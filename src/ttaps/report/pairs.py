"""Outcomes side by side, image by image: before and after adaptation, or two columns of a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ttaps.evaluate.summary import PAIR, Pairs
from ttaps.report.columns import Column
from ttaps.report.outcomes import ITEM, Outcomes, Run


def before_after(column: Column, severity: int, corruption: str | None = None, step: int = -1) -> Pairs:
    """Return a column's outcomes before adaptation and after a step, under one corruption or all; a place for each seed."""
    parts = []
    for seed, run in enumerate(column.runs):
        rows = select(run.rows, severity, corruption)
        parts.append((seed, rows, rows["right"][:, 0], rows["right"][:, step]))
    return _pairs(parts)


def right_after(column: Column, severity: int) -> NDArray[np.bool_]:
    """Return whether each image is right after every step, (n, steps + 1), in the order of :func:`before_after`."""
    return np.concatenate([select(run.rows, severity)["right"] for run in column.runs])


def versus(first: Column, second: Column, severity: int, corruption: str | None = None) -> Pairs:
    """Return the outcomes after two columns' last steps, on the images that both have; the first is ``before``."""
    parts = []
    for seed, (one, other) in enumerate(_partners(first.runs, second.runs)):
        rows, others = (select(run.rows, severity, corruption) for run in (one, other))
        if not np.array_equal(rows[ITEM], others[ITEM]):  # the usual case is quick
            common = np.intersect1d(_names(rows), _names(others), return_indices=True)
            rows, others = rows[common[1]], others[common[2]]
        parts.append((seed, rows, rows["right"][:, -1], others["right"][:, -1]))
    return _pairs(parts)


def select(rows: Outcomes, severity: int, corruption: str | None = None) -> Outcomes:
    """Return the rows of a severity, under one corruption or all."""
    wanted = rows["severity"] == severity
    if corruption is not None:
        wanted &= rows["corruption"] == corruption
    chosen: Outcomes = rows[wanted]
    return chosen


def _pairs(parts: Iterable[tuple[int, Outcomes, NDArray[np.bool_], NDArray[np.bool_]]]) -> Pairs:
    """Join the outcomes of several seeds; each corruption of each seed is a place."""
    found, places = [], []
    for seed, rows, before, after in parts:
        pairs = np.empty(len(rows), dtype=PAIR)
        pairs["image"], pairs["before"], pairs["after"] = rows["image"], before, after
        found.append(pairs)
        places.append(np.char.add(rows["corruption"], f" {seed}"))
    joined = np.concatenate(found)
    joined["place"] = np.unique(np.concatenate(places), return_inverse=True)[1]
    return joined


def _names(rows: Outcomes) -> NDArray[np.str_]:
    return np.char.add(rows["corruption"], np.char.mod(" %d", rows["image"]))


def _partners(first: Sequence[Run], second: Sequence[Run]) -> list[tuple[Run, Run]]:
    """Pair each run of the longer side with the one most like it: the same model, else the same seed of training, and the same seed."""
    if len(first) > len(second):
        return [(one, max(second, key=lambda other: _likeness(one, other))) for one in first]
    return [(max(first, key=lambda one: _likeness(one, other)), other) for other in second]


def _likeness(one: Run, other: Run) -> tuple[bool, bool, bool]:
    a, b = one.experiment, other.experiment
    return a.fingerprint == b.fingerprint, one.facts.get("seed") == other.facts.get("seed"), a.seed == b.seed
