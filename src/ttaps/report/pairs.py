"""Outcomes side by side, image by image: before and after adaptation, or two columns of a table."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ttaps.evaluate.summary import PAIR, Pairs
from ttaps.report.columns import Column
from ttaps.report.outcomes import ITEM, Outcomes, Run


def before_after(column: Column, severity: int | None, corruption: str | None = None, step: int = -1) -> Pairs:
    """Return a column's outcomes before adaptation and after a step, at one severity or all, under one corruption or all."""
    parts = []
    for run in column.runs:
        rows = select(run.rows, severity, corruption)
        parts.append((rows, rows["right"][:, 0], rows["right"][:, step]))
    return _pairs(parts)


def right_after(column: Column, severity: int | None) -> NDArray[np.bool_]:
    """Return whether each image is right after every step, (n, steps + 1), in the order of :func:`before_after`."""
    return np.concatenate([select(run.rows, severity)["right"] for run in column.runs])


def versus(first: Column, second: Column, severity: int | None, corruption: str | None = None) -> Pairs:
    """Return the outcomes after two columns' last steps, on the images that both have; the first is ``before``."""
    parts = []
    for one, other in _partners(first.runs, second.runs):
        rows, others = (select(run.rows, severity, corruption) for run in (one, other))
        if not np.array_equal(rows[ITEM], others[ITEM]):  # the usual case is quick
            common = np.intersect1d(_names(rows), _names(others), return_indices=True)
            rows, others = rows[common[1]], others[common[2]]
        parts.append((rows, rows["right"][:, -1], others["right"][:, -1]))
    return _pairs(parts)


def select(rows: Outcomes, severity: int | None, corruption: str | None = None) -> Outcomes:
    """Return the rows of one severity or all, under one corruption or all; they are in the order of corruptions."""
    if corruption is not None:
        names = rows["corruption"]
        rows = rows[bisect_left(names, corruption) : bisect_right(names, corruption)]
    chosen: Outcomes = rows if severity is None else rows[rows["severity"] == severity]
    return chosen


def conditions(rows: Outcomes) -> NDArray[np.int64]:
    """Number the corruptions and severities of rows from 0 on; those of one stand together, as they were stored."""
    new = np.zeros(len(rows), dtype=bool)
    for name in ("corruption", "severity"):
        new[1:] |= rows[name][1:] != rows[name][:-1]
    return np.cumsum(new)


def _pairs(parts: Iterable[tuple[Outcomes, NDArray[np.bool_], NDArray[np.bool_]]]) -> Pairs:
    """Join the outcomes of several seeds; each corruption and severity of each seed is a place."""
    found, places = [], 0
    for rows, before, after in parts:
        pairs = np.empty(len(rows), dtype=PAIR)
        pairs["place"] = places + conditions(rows)
        pairs["image"], pairs["before"], pairs["after"] = rows["image"], before, after
        found.append(pairs)
        places = int(pairs["place"][-1]) + 1 if len(rows) else places
    return np.concatenate(found)


def _names(rows: Outcomes) -> NDArray[np.str_]:
    places = np.char.add(rows["corruption"], np.char.mod(" %d", rows["severity"]))
    return np.char.add(places, np.char.mod(" %d", rows["image"]))


def _partners(first: Sequence[Run], second: Sequence[Run]) -> list[tuple[Run, Run]]:
    """Pair each run of the longer side with the one most like it: the same model, else the same seed of training, and the same seed."""
    if len(first) > len(second):
        return [(one, max(second, key=lambda other: _likeness(one, other))) for one in first]
    return [(max(first, key=lambda one: _likeness(one, other)), other) for other in second]


def _likeness(one: Run, other: Run) -> tuple[bool, bool, bool]:
    a, b = one.experiment, other.experiment
    return a.fingerprint == b.fingerprint, one.facts.get("seed") == other.facts.get("seed"), a.seed == b.seed
