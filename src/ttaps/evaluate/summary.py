"""From stored rows to what a table says: accuracy before and after with intervals, and whether a difference is real."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ttaps.data import CORRUPTIONS, EXTRA_CORRUPTIONS
from ttaps.errors import UsageError
from ttaps.evaluate.plan import Plan
from ttaps.evaluate.statistics import (
    Z95,
    average_difference,
    clustered_error,
    mcnemar,
    mean_std,
    paired_difference,
    t_quantile,
    wilson,
)
from ttaps.evaluate.store import Experiment, Outcome, Store

AVERAGE = "Avg."
SURE = 0.05
ORDER = {name: place for place, name in enumerate(CORRUPTIONS + EXTRA_CORRUPTIONS)}
# An image's outcome in two cases; places are numbered from 0, without a gap.
PAIR = np.dtype([("place", "i4"), ("image", "i8"), ("before", "?"), ("after", "?")])
Pairs = NDArray[np.void]
Place = tuple[str, int]


@dataclass(frozen=True)
class Accuracy:
    """An accuracy in % with its 95 % interval."""

    percent: float
    low: float
    high: float


def signed(number: float) -> str:
    """Return a difference with its sign; what rounds to nothing is +0.0, never -0.0."""
    return f"{round(number, 1) + 0.0:+.1f}"


@dataclass(frozen=True)
class Difference:
    """A paired difference in points with its 95 % interval, and the p value of the exact test."""

    points: float
    low: float
    high: float
    p: float
    fixed: int
    """Images that were wrong and became right."""
    broken: int
    """Images that were right and became wrong."""

    @property
    def significant(self) -> bool:
        """Whether it is more than chance explains: the test counts pictures, the interval weighs them, and both must say so."""
        return self.p < SURE and not self.low <= 0 <= self.high

    @property
    def interval(self) -> str:
        """The interval in words."""
        return f"{signed(self.low)} to {signed(self.high)}"


@dataclass(frozen=True)
class Line:
    """One line of a table: a corruption at a severity, or the average over all (whose severity is None)."""

    corruption: str
    severity: int | None
    n: int
    before: Accuracy
    after: Accuracy
    difference: Difference


@dataclass(frozen=True)
class Summary:
    """A table: one experiment before and after adaptation, or two experiments on the images that both have."""

    experiments: tuple[Experiment, ...]
    lines: tuple[Line, ...]
    average: Line


@dataclass(frozen=True)
class SeedLine:
    """Accuracy in % over seeds; one seed has no deviation."""

    corruption: str
    severity: int | None
    mean: float
    std: float | None
    seeds: int


def summarize(store: Store, number: int, plan: Plan | None = None) -> Summary:
    """Compare an experiment's predictions after the last step with those before adaptation, on all its images or those of a plan."""
    outcomes = store.outcomes(number)
    if plan is not None:
        asked = plan.asks_for()
        outcomes = (outcome for outcome in outcomes if asked(*outcome[:3]))
    return _table((store.experiments()[number],), outcomes)


def compare(store: Store, first: int, second: int) -> Summary:
    """Compare two experiments after their last steps, on the images that both have: ``before`` is the first, ``after`` the second."""
    known = {row.item: row.right(-1) for row in store.rows(first)}
    outcomes = ((*row.item, known[row.item], row.right(-1)) for row in store.rows(second) if row.item in known)
    experiments = store.experiments()
    return _table((experiments[first], experiments[second]), outcomes)


def over_seeds(summaries: Sequence[Summary]) -> list[SeedLine]:
    """Return mean and deviation of the accuracy after adaptation over summaries that differ only in their seed; the average is last."""
    values: dict[tuple[str, int | None], list[float]] = {}
    for summary in summaries:
        for line in (*summary.lines, summary.average):
            values.setdefault((line.corruption, line.severity), []).append(line.after.percent)
    ordered = sorted(
        values.items(), key=lambda entry: entry[0][1] is None
    )  # stable: only the average moves, to the end
    return [SeedLine(*place, *mean_std(shares), len(shares)) for place, shares in ordered]


def measure(pairs: Pairs, corruption: str = AVERAGE, severity: int | None = None) -> Line:
    """Return the line of some pairs; where they are of several places (corruptions, seeds), each place has the same weight.

    A picture at all its places is one observation: the intervals come from the spread between pictures, and the test is an
    exact sign test between the pictures that gained and those that lost. With one place that is Wilson's interval and McNemar's test.
    """
    places = len(np.unique(pairs["place"]))
    if places == 1:
        return _line(corruption, severity, pairs)
    before, after = (_average_accuracy(pairs, pairs[when]) for when in ("before", "after"))
    changes = pairs["after"].astype(float) - pairs["before"]
    gains, signs = (
        _by_picture(pairs, changes),
        np.bincount(_pictures(pairs), changes),
    )  # whole numbers: three fixed, three broken is 0
    low, high = average_difference((gains * len(gains)).tolist(), 1 / places)
    p = mcnemar(int((signs > 0).sum()), int((signs < 0).sum()))
    fixed, broken = int((pairs["after"] > pairs["before"]).sum()), int((pairs["after"] < pairs["before"]).sum())
    difference = Difference(after.percent - before.percent, 100 * low, 100 * high, p, fixed, broken)
    return Line(corruption, severity, len(pairs), before, after, difference)


def to_json(summaries: Iterable[Summary]) -> str:
    """Return summaries for machines; a method's settings are an object, not text."""
    return json.dumps([_plain(summary) for summary in summaries], indent=1)


def _plain(summary: Summary) -> dict[str, Any]:
    values = dataclasses.asdict(summary)
    for experiment in values["experiments"]:
        experiment["settings"] = json.loads(experiment["settings"])
    return values


def _table(experiments: tuple[Experiment, ...], outcomes: Iterable[Outcome]) -> Summary:
    places: dict[Place, int] = {}
    pairs = np.fromiter(
        ((places.setdefault((name, severity), len(places)), *rest) for name, severity, *rest in outcomes), dtype=PAIR
    )
    if not len(pairs):
        raise UsageError(f"No image has been evaluated yet with {' and '.join(e.method for e in experiments)}.")
    ordered = sorted(places, key=lambda place: (ORDER.get(place[0], -1), place))
    lines = tuple(_line(*place, pairs[pairs["place"] == places[place]]) for place in ordered)
    return Summary(experiments, lines, measure(pairs))


def _line(corruption: str, severity: int | None, pairs: Pairs) -> Line:
    before, after = pairs["before"], pairs["after"]
    n, fixed, broken = len(pairs), int((~before & after).sum()), int((before & ~after).sum())
    change, (low, high) = paired_difference(fixed, broken, n)
    difference = Difference(100 * change, 100 * low, 100 * high, mcnemar(fixed, broken), fixed, broken)
    return Line(corruption, severity, n, _accuracy(int(before.sum()), n), _accuracy(int(after.sum()), n), difference)


def _accuracy(right: int, n: int) -> Accuracy:
    low, high = wilson(right, n)
    return Accuracy(100 * right / n, 100 * low, 100 * high)


def _average_accuracy(pairs: Pairs, right: NDArray[np.bool_]) -> Accuracy:
    """Wilson's interval for as many independent images as would have the spread that was found between pictures.

    Those are no more than there are, and fewer where the spread of few pictures is not well known (Korn and Graubard, 1998).
    """
    means = np.bincount(pairs["place"], right) / np.bincount(pairs["place"])
    share = float(means.mean())
    error = clustered_error(_by_picture(pairs, right - means[pairs["place"]]).tolist())
    n: float = len(np.unique(pairs["image"]))
    if error:
        n = min(share * (1 - share) / error**2, len(pairs)) * (Z95 / t_quantile(int(n) - 1)) ** 2
    low, high = wilson(share * n, n)
    return Accuracy(100 * share, 100 * low, 100 * high)


def _by_picture(pairs: Pairs, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what each picture adds to the mean over places of the mean at each place."""
    counts = np.bincount(pairs["place"])
    return np.bincount(_pictures(pairs), values / (len(counts) * counts[pairs["place"]])).astype(np.float64)


def _pictures(pairs: Pairs) -> NDArray[np.intp]:
    """Return the number of each pair's picture among all pictures."""
    return np.unique(pairs["image"], return_inverse=True)[1]
