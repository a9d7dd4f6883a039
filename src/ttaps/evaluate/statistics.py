"""From rows to numbers: accuracy before and after adaptation with 95 % intervals, and whether a difference is more than chance.

``evaluate``, ``demo``, ``report``, ``reproduce`` and ``results export`` all take their numbers from :func:`accuracy_table` or
:func:`measure`. A *condition* is a corruption at a severity; its name here includes the model and the seeds, where rows have several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from math import sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from ttaps.data import CORRUPTIONS, EXTRA_CORRUPTIONS

Interval = tuple[float, float]
Z95 = NormalDist().inv_cdf(0.975)
ALPHA = 0.05
AVERAGE = "Avg."
CONDITION = ["corruption", "severity"]
STATISTICS = ["n", "before", "before_low", "before_high", "after", "after_low", "after_high"]
STATISTICS += ["change", "change_low", "change_high", "fixed", "broken", "p"]
ORDER = {name: place for place, name in enumerate(CORRUPTIONS + EXTRA_CORRUPTIONS)}


def accuracy_table(rows: pd.DataFrame, by: Sequence[str] = CONDITION) -> pd.DataFrame:
    """Return :data:`STATISTICS`, in % and points, for each value of the columns ``by`` and, last, for all rows ("Avg.").

    Corruptions are in the paper's order. The index has the columns ``by``; where there are two, the average's second one is 0.
    """
    rows = rows.assign(condition=_conditions(rows))
    found = [(key, measure(part)) for key, part in rows.groupby(list(by), sort=False)]
    found.sort(key=lambda line: [(ORDER.get(part, -1), part) for part in line[0]])
    if found:
        found.append(((AVERAGE, 0), measure(rows)))
    lines = [{**dict(zip(by, key, strict=False)), **numbers} for key, numbers in found]
    return pd.DataFrame(lines, columns=[*by, *STATISTICS]).set_index(list(by))


def compare_table(first: pd.DataFrame, second: pd.DataFrame, by: Sequence[str] = CONDITION) -> pd.DataFrame:
    """Return the accuracy table of two experiments after their last steps, on the images that both have; the first is ``before``."""
    return accuracy_table(paired_rows(first, second), by)


def paired_rows(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """Return the images that two experiments have, with ``correct_before`` of the first's and ``correct_after`` of the second's end.

    Where one has several seeds, each is paired with the one most like it: the same model, else the same seed of training.
    """
    key, names = [*CONDITION, "image"], ["fingerprint", "training_seed", "seed"]
    runs, others = (side[names].drop_duplicates().to_dict("records") for side in (first, second))
    parts = []
    for number, (run, other) in enumerate(_partners(runs, others)):
        before = _of_run(first, run)[[*key, "correct_after"]].rename(columns={"correct_after": "correct_before"})
        parts.append(before.merge(_of_run(second, other)[[*key, "correct_after"]], on=key).assign(pair=number))
    return pd.concat(parts, ignore_index=True)


def measure(rows: pd.DataFrame) -> dict[str, float]:
    """Return the :data:`STATISTICS` of rows; where they are of several conditions, each condition has the same weight.

    An image under all conditions is one observation: the intervals come from the spread between images, and the test is an exact
    sign test between the images that gained and those that lost. Under one condition that is Wilson's interval and McNemar's test.
    """
    condition = rows["condition"] if "condition" in rows else _conditions(rows)
    conditions, condition = np.unique(condition, return_inverse=True)
    before, after = (rows[f"correct_{end}"].to_numpy(dtype=float) for end in ("before", "after"))
    change = after - before
    fixed, broken = int((change > 0).sum()), int((change < 0).sum())
    n = len(rows)
    if len(conditions) == 1:
        points, difference = paired_difference(fixed, broken, n)
        p = mcnemar(fixed, broken)
        shares = [(right / n, wilson(right, n)) for right in (before.sum(), after.sum())]
    else:
        image = np.unique(rows["image"], return_inverse=True)[1]
        shares = [_average_accuracy(right, condition, image) for right in (before, after)]
        points = shares[1][0] - shares[0][0]
        gains = np.bincount(image, change / (len(conditions) * np.bincount(condition)[condition]))
        difference = average_difference(gains * len(gains), 1 / len(conditions))
        sums = np.bincount(image, change)  # whole numbers: three fixed and three broken is 0
        p = mcnemar(int((sums > 0).sum()), int((sums < 0).sum()))
    percent = [100 * x for share, interval in (*shares, (points, difference)) for x in (share, *interval)]
    return dict(zip(STATISTICS, (n, *percent, fixed, broken, p), strict=True))


def significant(line: Mapping[str, Any]) -> Any:
    """Say whether the change of a line, or of each line of a table, is more than chance explains.

    The test counts images, the interval weighs them, and both must say so.
    """
    return (line["p"] < ALPHA) & ((line["change_low"] > 0) | (line["change_high"] < 0))


def signed(number: float) -> str:
    """Return a difference with its sign; what rounds to nothing is +0.0, never -0.0."""
    return f"{round(number, 1) + 0.0:+.1f}"


def wilson(right: float, n: float) -> Interval:
    """95 % interval of a share (Wilson's score interval): never outside [0, 1], sensible for few images and at both ends."""
    if n == 0:
        return 0.0, 1.0
    share, weight = right / n, Z95 * Z95 / n
    center = (share + weight / 2) / (1 + weight)
    half = Z95 / (1 + weight) * sqrt(share * (1 - share) / n + weight / (4 * n))
    low = 0.0 if right == 0 else center - half  # exactly, whatever the rounding
    high = 1.0 if right == n else center + half
    return low, high


def mcnemar(fixed: int, broken: int) -> float:
    """Exact two-sided McNemar test: how likely so uneven a split of the images that changed would be if both ways were as likely.

    Only the images that are right in one case and wrong in the other count: P(|X - n/2| ≥ |fixed - n/2|), X ~ Binomial(n, 1/2).
    """
    from scipy.special import bdtr  # here, as in t_quantile: it takes 0.3 s to import, and scipy.stats three times that

    return min(1.0, 2 * float(bdtr(min(fixed, broken), fixed + broken, 0.5)))


def paired_difference(fixed: int, broken: int, n: int) -> tuple[float, Interval]:
    """Difference of two shares measured on the same ``n`` images, and its 95 % interval after Bonett and Price (2012).

    That is the normal interval after one image is added to ``fixed`` and one to ``broken``, which keeps its promise from about ten
    images on and does not shrink to a point where nothing changed. The difference itself is the plain one.
    """
    if n == 0:
        return 0.0, (-1.0, 1.0)
    gain, loss = (fixed + 1) / (n + 2), (broken + 1) / (n + 2)
    half = Z95 * sqrt((gain + loss - (gain - loss) ** 2) / (n + 2))
    return (fixed - broken) / n, (max(-1.0, gain - loss - half), min(1.0, gain - loss + half))


def average_difference(changes: ArrayLike, least: float) -> Interval:
    """95 % interval of the mean of changes that images made: :func:`paired_difference`'s, where a change need not be -1, 0 or 1.

    ``least`` is the smallest change there can be: 1 / corruptions, if an image's change is its mean over corruptions.
    """
    values = np.asarray(changes, dtype=float)
    n = len(values) + 2  # one image better by the least, one worse
    center = float(values.sum()) / n
    half = Z95 * sqrt((float(values @ values + 2 * least * least) / n - center * center) / n)
    return max(-1.0, center - half), min(1.0, center + half)


def clustered_error(deviations: ArrayLike) -> float | None:
    """Standard error of a sum of independent parts from each part's deviation from its expectation; None for fewer than two parts.

    A part is all that one image adds to an average over corruptions: the same image under 15 corruptions is not 15 images.
    """
    parts = np.asarray(deviations, dtype=float)
    return sqrt(float(parts @ parts) * len(parts) / (len(parts) - 1)) if len(parts) > 1 else None


@cache
def t_quantile(freedom: int) -> float:
    """Return the t that 95 % of Student's distribution lie within: what 1.96 is for a spread that was estimated from few parts."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.975))


def _average_accuracy(
    right: NDArray[np.float64], condition: NDArray[np.intp], image: NDArray[np.intp]
) -> tuple[float, Interval]:
    """Mean over conditions, and Wilson's interval for as many independent images as would have the spread found between images.

    Those are no more than there are, and fewer where the spread of few images is not well known (Korn and Graubard, 1998).
    """
    sizes = np.bincount(condition)
    means = np.bincount(condition, right) / sizes
    share = float(means.mean())
    deviations = np.bincount(image, (right - means[condition]) / (len(sizes) * sizes[condition]))
    n: float = len(deviations)
    error = clustered_error(deviations)
    if error:
        n = min(share * (1 - share) / error**2, len(right)) * (Z95 / t_quantile(int(n) - 1)) ** 2
    return share, wilson(share * n, n)


def _conditions(rows: pd.DataFrame) -> pd.Series[int]:
    """Number the corruptions and severities of each run; ``pair`` is that of :func:`paired_rows`."""
    names = ("pair", "fingerprint", "spec", "seed", *CONDITION)
    return rows.groupby([name for name in names if name in rows], sort=False).ngroup()


def _partners(runs: Sequence[Any], others: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Pair each run of the longer side with the one of the other side that it is most like."""

    def likeness(run: Mapping[str, Any], other: Mapping[str, Any]) -> list[bool]:
        return [run[name] == other[name] for name in ("fingerprint", "training_seed", "seed")]

    if len(runs) > len(others):
        return [(run, max(others, key=lambda other: likeness(run, other))) for run in runs]
    return [(max(runs, key=lambda run: likeness(run, other)), other) for other in others]


def _of_run(rows: pd.DataFrame, run: Mapping[str, Any]) -> pd.DataFrame:
    return rows[(rows["fingerprint"] == run["fingerprint"]) & (rows["seed"] == run["seed"])]
