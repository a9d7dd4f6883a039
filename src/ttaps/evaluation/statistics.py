"""From rows to numbers: accuracy before and after adaptation with 95 % intervals, and whether a difference is significant.

``evaluate``, ``demo``, ``report``, ``reproduce`` and ``results export`` all take their numbers from :func:`accuracy_table` or
:func:`measure`. A *condition* is a corruption at a severity; its name here includes the model and the seeds if rows have several."""

from collections.abc import Mapping, Sequence
from functools import cache, partial
from itertools import accumulate
from math import cos, pi, sin, sqrt, tan
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from ttaps.data.corruptions import CORRUPTIONS, TUNING_CORRUPTIONS

Interval = tuple[float, float]
Z95 = NormalDist().inv_cdf(0.975)
ALPHA = 0.05
AVERAGE = "Avg."
CONDITION = ["corruption", "severity"]
STATISTICS = ["n", "before", "before_low", "before_high", "after", "after_low", "after_high"]
STATISTICS += ["change", "change_low", "change_high", "fixed", "broken", "p", "mce"]
SCORES = [f"{score}_{end}" for score in ("error", "nll", "brier", "ece") for end in ("before", "after")]
"""How good probabilities are, where rows have them: error and expected calibration error in %, mean -ln p(true class), Brier score."""
BINS = 15  # of the confidence, for the expected calibration error
ORDER = {name: place for place, name in enumerate(CORRUPTIONS + TUNING_CORRUPTIONS)}


def accuracy_table(rows: pd.DataFrame, by: Sequence[str] = CONDITION) -> pd.DataFrame:
    """Return :data:`STATISTICS`, in % and points, and :data:`SCORES` for each value of the columns ``by`` and, last, for all rows ("Avg.").
    Corruptions are in the paper's order. The index has the columns ``by``; where there are two, the average's second one is 0."""
    rows = rows.assign(condition=_conditions(rows))
    found = [(key, measure(part)) for key, part in rows.groupby(list(by), sort=False)]
    found.sort(key=lambda line: [(ORDER.get(part, -1), part) for part in line[0]])
    if found:
        found.append(((AVERAGE, 0), measure(rows)))
    lines = [{**dict(zip(by, key, strict=False)), **numbers} for key, numbers in found]
    scores = SCORES if "nll_after" in rows else []
    return pd.DataFrame(lines, columns=[*by, *STATISTICS, *scores]).set_index(list(by))


def compare_table(first: pd.DataFrame, second: pd.DataFrame, by: Sequence[str] = CONDITION) -> pd.DataFrame:
    """Return the accuracy table of two experiments after their last steps, on the images that both have; the first is ``before``.
    Where one has several seeds, each is paired with the one most like it: the same model, else the same seed of training."""
    key, parts = [*CONDITION, "image"], []
    runs, others = ([part for _, part in side.groupby(["fingerprint", "seed"], sort=False)] for side in (first, second))
    for number, (run, other) in enumerate(_partners(runs, others)):
        before = run[[*key, "correct_after"]].rename(columns={"correct_after": "correct_before"})
        parts.append(before.merge(other[[*key, "correct_after"]], on=key).assign(pair=number))
    return accuracy_table(pd.concat(parts, ignore_index=True), by)


def measure(rows: pd.DataFrame) -> dict[str, float]:
    """Return the :data:`STATISTICS` of rows; where they are of several conditions, each condition has the same weight.
    An image under all conditions is one observation: the intervals come from the variation between images, and the test is an exact
    sign test of images that gained against images that lost. Under one condition these are Wilson's interval and McNemar's test.
    If rows have probabilities, their :data:`SCORES` are included."""
    names = rows["condition"] if "condition" in rows else _conditions(rows)
    condition, image = (np.unique(numbers, return_inverse=True)[1] for numbers in (names, rows["image"]))
    before, after = (rows[f"correct_{end}"].to_numpy(dtype=float) for end in ("before", "after"))
    change, sizes = after - before, np.bincount(condition)
    shares = [_accuracy(right, condition, image) for right in (before, after)]
    points = (np.bincount(condition, change) / sizes).mean()
    gains = np.bincount(image, change / (len(sizes) * sizes[condition]))
    difference = average_difference(gains * len(gains), 1 / len(sizes))
    percent = [100 * float(x) for share, interval in (*shares, (points, difference)) for x in (share, *interval)]
    fixed, broken = int((change > 0).sum()), int((change < 0).sum())
    sums = np.bincount(image, change)  # whole numbers: three fixed and three broken is 0
    p = mcnemar(int((sums > 0).sum()), int((sums < 0).sum()))
    errors = [(1 - right) / sizes[condition] for right in (before, after)]
    mce = corruption_error(rows.get("corruption", names), *errors)
    found = dict(zip(STATISTICS, (len(rows), *percent, fixed, broken, p, mce), strict=True))
    return found | (_scores(rows, condition) if "nll_after" in rows else {})


def corruption_error(corruption: Any, before: ArrayLike, after: ArrayLike) -> float:
    """Return the mean corruption error in % (mCE, Hendrycks and Dietterich): of each corruption the sum of errors over severities, divided
    by that of the reference, here ``before``; then the mean over corruptions. NaN where the reference makes no error."""
    kind = np.unique(corruption, return_inverse=True)[1]
    reference, errors = (np.bincount(kind, weights=parts) for parts in (before, after))
    return float(100 * (errors / reference).mean()) if reference.all() else float("nan")


def confidence_bins(confidence: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the number of the bin ((k - 1) / BINS, k / BINS] that each confidence lies in; 0 belongs to the first."""
    return np.clip(np.ceil(confidence * BINS) - 1, 0, BINS - 1).astype(np.intp)


def calibration_error(confidence: ArrayLike, right: ArrayLike, part: ArrayLike | None = None) -> float:
    """Return the expected calibration error in % (ECE): the gap of confidence and accuracy in a bin, weighted by its share of images; the
    mean over ``part``, which has a number from 0 for each image, where it is given."""
    sure, correct = (np.asarray(values, dtype=float) for values in (confidence, right))
    parts = np.zeros(len(sure), dtype=np.intp) if part is None else np.asarray(part, dtype=np.intp)
    gaps = np.bincount(parts * BINS + confidence_bins(sure), correct - sure, minlength=(parts.max() + 1) * BINS)
    return float(100 * (np.abs(gaps).reshape(-1, BINS).sum(1) / np.bincount(parts)).mean())


def _scores(rows: pd.DataFrame, condition: NDArray[np.intp]) -> dict[str, float]:
    found, sizes = {}, np.bincount(condition)
    for end in ("before", "after"):
        right, confidence = (rows[f"{name}_{end}"].to_numpy(dtype=float) for name in ("correct", "confidence"))
        means = {"error": 100 * (1 - right)} | {name: rows.get(f"{name}_{end}", np.nan) for name in ("nll", "brier")}
        for name, values in means.items():
            weights = np.broadcast_to(np.asarray(values, dtype=float), right.shape)
            found[f"{name}_{end}"] = float((np.bincount(condition, weights) / sizes).mean())
        found[f"ece_{end}"] = calibration_error(confidence, right, condition)
    return {name: found[name] for name in SCORES}


def significant(line: Mapping[str, Any]) -> Any:
    """Tell whether the change of a line, or of each line of a table, is significant: the test and the interval must agree."""
    return (line["p"] < ALPHA) & ((line["change_low"] > 0) | (line["change_high"] < 0))


def signed(number: float) -> str:
    """Return a difference with its sign; one that rounds to zero is +0.0, never -0.0."""
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
    """Exact two-sided McNemar test of the images that changed: P(|X - n/2| ≥ |fixed - n/2|), X ~ Binomial(n = fixed + broken, 1/2)."""
    n = fixed + broken
    coefficients = accumulate(range(min(fixed, broken)), lambda found, k: found * (n - k) // (k + 1), initial=1)
    return min(1.0, 2 * sum(coefficients) / 2**n)


def average_difference(changes: ArrayLike, least: float) -> Interval:
    """95 % interval of the mean of changes that images made, after Bonett and Price (2012) for shares of the same images.
    That is the normal interval after one image is added that is better by ``least``, the smallest change there can be, and one that is
    worse, which keeps its promise from about ten images on and does not shrink to a point where nothing changed."""
    values = np.asarray(changes, dtype=float)
    n = len(values) + 2
    center = float(values.sum()) / n
    half = Z95 * sqrt((float(values @ values + 2 * least * least) / n - center * center) / n)
    return max(-1.0, center - half), min(1.0, center + half)


@cache
def t_quantile(freedom: int) -> float:
    """Return the t that 95 % of Student's distribution lie within: what 1.96 is for a spread that was estimated from few parts.
    By the distribution's finite sum (Abramowitz and Stegun, 26.7.3 and 26.7.4), since scipy takes long to import."""
    k = np.arange(1 + freedom % 2, freedom - 2, 2)

    def share(angle: float) -> float:
        """Return the share within the t that is tan(angle) times the root of the freedom."""
        terms = sin(angle) * np.cumprod(np.append(1.0, k / (k + 1) * cos(angle) ** 2)).sum()
        return 2 / pi * (angle + cos(angle) * terms * (freedom > 1)) if freedom % 2 else terms

    low, high = 0.0, pi / 2
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if share(middle) < 1 - ALPHA else (low, middle)
    return sqrt(freedom) * tan(low)


def _accuracy(
    right: NDArray[np.float64], condition: NDArray[np.intp], image: NDArray[np.intp]
) -> tuple[float, Interval]:
    """Mean over conditions, and Wilson's interval for as many independent images as would have the spread found between images.
    Those are no more than there are, and fewer where the spread of few images is not well known (Korn and Graubard, 1998). All that
    one image adds to the mean is one part of its variance: the same image under 15 corruptions is not 15 images."""
    sizes = np.bincount(condition)
    means = np.bincount(condition, right) / sizes
    share = float(means.mean())
    parts = np.bincount(image, (right - means[condition]) / (len(sizes) * sizes[condition]))
    n = float(len(parts))
    if len(sizes) > 1 and n > 1 and (variance := float(parts @ parts) * n / (n - 1)):
        n = min(share * (1 - share) / variance, len(right)) * (Z95 / t_quantile(int(n) - 1)) ** 2
    return share, wilson(share * n, n)


def _conditions(rows: pd.DataFrame) -> Any:
    """Number the corruptions and severities of each run; ``pair`` is that of :func:`compare_table`."""
    names = ("pair", "fingerprint", "spec", "seed", *CONDITION)
    return rows.groupby([name for name in names if name in rows], sort=False).ngroup()


def _partners(runs: Sequence[Any], others: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Pair each run of the longer side with the one of the other side that it is most like."""

    def likeness(run: pd.DataFrame, other: pd.DataFrame) -> list[bool]:
        return [run[name].iat[0] == other[name].iat[0] for name in ("fingerprint", "training_seed", "seed")]

    if len(runs) > len(others):
        return [(run, max(others, key=partial(likeness, run))) for run in runs]
    return [(max(runs, key=partial(likeness, other)), other) for other in others]
