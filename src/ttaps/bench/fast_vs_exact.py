"""What fast mode costs in accuracy: a stored evaluation of both modes on the same images, or the file beside a model made of one.

That file is written by ``python -m ttaps.bench.fast_vs_exact MODEL RESULTS``, where RESULTS is a folder that
``ttaps evaluate MODEL --methods ttaps,ttaps:fast --out RESULTS`` has filled, and MODEL the name of a model or a run folder.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ttaps.adaptation import EPISODIC
from ttaps.api import load
from ttaps.errors import TtapsError
from ttaps.evaluate import Experiment, Store, compare, to_json
from ttaps.evaluate.settings import settings_name
from ttaps.files import write_text
from ttaps.model.registry import known_models

FILE = "fast_vs_exact.json"
EXACT, FAST = "", "fast"  # names of settings: exact mode is the method's own

Evaluation = dict[str, Any]
"""A summary of both experiments for machines, as ``to_json`` makes it."""


def fast_minus_exact(model: str, fingerprint: str, results: Path | None = None) -> dict[str, Any] | None:
    """Return the paired difference in points with its 95 % interval and where it was measured, or None if it was not with these weights.

    Without a folder of ``results`` it is that of the file beside the model, unless the settings have changed since.
    """
    found = stored(results, fingerprint) if results else written(file_of(model), fingerprint)
    if found is None:
        return None
    average, exact = found["average"], found["experiments"][0]
    difference = {name: average["difference"][name] for name in ("points", "low", "high", "fixed", "broken", "p")}
    places = {"data": exact["data"], "corruptions": len(found["lines"]), "seed": exact["seed"]}
    return {**difference, "n": average["n"], **places}


def stored(folder: Path, fingerprint: str) -> Evaluation | None:
    """Compare exact and fast mode in a folder of results, on the data set and seed with the most images that both have."""
    with Store(folder, write=False) as store:
        found = [compare(store, *pair) for pair in _pairs(store, fingerprint)]
    if not found:
        return None
    best: Evaluation = json.loads(to_json([max(found, key=lambda summary: summary.average.n)]))[0]
    return best


def written(path: Path, fingerprint: str) -> Evaluation | None:
    """Read a file that was written from an evaluation; None if there is none, or it is of other weights or settings than today's."""
    if not path.exists():
        return None
    try:
        found: Evaluation = json.loads(path.read_text("utf-8"))
        experiments = [Experiment(**{**e, "settings": json.dumps(e["settings"])}) for e in found["experiments"]]
    except (ValueError, TypeError, KeyError) as error:
        raise TtapsError(
            f"{path} is damaged ({error}).\nDelete it, or write it again: python -m ttaps.bench.fast_vs_exact MODEL RESULTS"
        ) from error
    today = [(fingerprint, EXACT), (fingerprint, FAST)]
    return found if [(e.fingerprint, settings_name(e)) for e in experiments] == today else None


def file_of(model: str) -> Path:
    """Return where the file beside a model is."""
    return known_models().get(model, Path(model)) / FILE


def _pairs(store: Store, fingerprint: str) -> Iterator[tuple[int, int]]:
    """Yield the numbers of both modes' experiments with one model, on each data set and seed where both have corrupted images."""
    groups: dict[tuple[str, str, int], dict[str, int]] = {}
    for number, e in store.experiments().items():
        if (e.fingerprint, e.method, e.protocol) == (fingerprint, "ttaps", EPISODIC):
            groups.setdefault((e.data, e.digest, e.seed), {})[settings_name(e)] = number
    for group in groups.values():
        if {EXACT, FAST} <= group.keys():
            both = set(store.items(group[EXACT])) & set(store.items(group[FAST]))
            if any(item.severity for item in both):
                yield group[EXACT], group[FAST]


def main(model: str, results: str) -> None:
    """Write the file beside a model."""
    found = stored(Path(results), load(model).fingerprint)
    if found is None:
        raise TtapsError(f"{results} holds no images evaluated by both ttaps and ttaps:fast with the model {model}.")
    write_text(file_of(model), json.dumps(found, indent=1) + "\n")
    print(file_of(model))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("Name a model and a folder of results: python -m ttaps.bench.fast_vs_exact MODEL RESULTS")
    try:
        main(*sys.argv[1:])
    except TtapsError as error:
        sys.exit(str(error))
