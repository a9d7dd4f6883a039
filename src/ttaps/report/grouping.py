"""Columns that can be drawn together: of the same model, on the same images, named by what is different."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ttaps.config import flat
from ttaps.evaluate import Experiment
from ttaps.evaluate.settings import default_name
from ttaps.report.columns import Column
from ttaps.report.outcomes import Outcomes
from ttaps.report.pairs import select

Codes = NDArray[np.int64]
SYMBOLS = {"tau": "τ", "epsilon": "ε", "weight_decay": "decay"}
LONGEST = 28  # letters of a label


def by_model(columns: Sequence[Column]) -> list[list[Column]]:
    """Return groups of columns of the same model, or of the same seeds of one."""
    groups: dict[frozenset[str], list[Column]] = {}
    for column in columns:
        groups.setdefault(frozenset(run.experiment.fingerprint for run in column.runs), []).append(column)
    return list(groups.values())


def on_same_images(columns: Sequence[Column], severity: int | None, least: int) -> list[Column]:
    """Return at least so many columns with only the images that all of them have, or none.

    There may be several choices: many columns on few images, or few on many. The one with the most outcomes is taken, so that a column
    that has only begun is left out.
    """
    places: dict[str, int] = {}
    known = [_images(column, severity, places) for column in columns]
    choices = []
    for images in {codes.tobytes(): codes for codes in known}.values():
        members = [column for column, has in zip(columns, known, strict=True) if not len(np.setdiff1d(images, has))]
        if len(members) >= least and len(images):
            choices.append((members, images))
    if not choices:
        return []
    members, images = max(choices, key=lambda choice: len(choice[0]) * len(choice[1]))
    return [_cut(column, severity, images, places) for column in members]


def names_apart(columns: Sequence[Column]) -> tuple[list[str], str]:
    """Return short names for the settings of one method's columns, and what they are compared with where that is not the default.

    Where some would be long, they say only what is different from the most usual value of each setting.
    """
    usual = default_name(columns[0].method) or "defaults"
    whole = [_symbols(column.settings) or usual for column in columns]
    if max(map(len, whole)) <= LONGEST:
        return whole, ""
    known = [_settings(column.runs[0].experiment) for column in columns]
    plainest = sorted(range(len(known)), key=lambda place: len(whole[place]))  # decides where two values are as usual
    middle = {
        name: Counter(repr(known[place].get(name)) for place in plainest).most_common(1)[0][0] for name in known[0]
    }
    apart = [{name: value for name, value in own.items() if repr(value) != middle.get(name)} for own in known]
    base = whole[apart.index({})] if {} in apart else "the most usual value of each setting"
    names = [_symbols(", ".join(f"{name} {value}".strip() for name, value in own.items())) for own in apart]
    return [_cut_short(name or base) for name in names], base


def _settings(experiment: Experiment) -> dict[str, Any]:
    """Return all settings of an experiment, nested ones by their full names; what it keeps from image to image has no name."""
    return {"": experiment.protocol, **flat(json.loads(experiment.settings))}


def _symbols(words: str) -> str:
    return " ".join(SYMBOLS.get(word, word) for word in words.split())


def _cut_short(words: str) -> str:
    return words if len(words) <= LONGEST else f"{words[: LONGEST - 1]}…"


def _images(column: Column, severity: int | None, places: dict[str, int]) -> Codes:
    """Return which images all seeds of a column have, as sorted numbers."""
    found = [_codes(select(run.rows, severity), places) for run in column.runs]
    common = np.unique(found[0])
    for codes in found[1:]:
        common = np.intersect1d(common, codes)
    return common


def _codes(rows: Outcomes, places: dict[str, int]) -> Codes:
    """Return a number for each row's corruption, severity and image; corruptions are numbered as they come."""
    names, members = np.unique(rows["corruption"], return_inverse=True)
    numbers = np.array([places.setdefault(str(name), len(places)) for name in names], dtype=np.int64)
    codes: Codes = ((numbers[members] * 16 + rows["severity"]) << 40) + rows["image"]
    return codes


def _cut(column: Column, severity: int | None, images: Codes, places: dict[str, int]) -> Column:
    runs = []
    for run in column.runs:
        rows = select(run.rows, severity)
        runs.append(replace(run, rows=rows[np.isin(_codes(rows, places), images)]))
    return replace(column, runs=tuple(runs))
