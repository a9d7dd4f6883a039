"""How sure a measured accuracy is: pure functions of counts, no torch, no scipy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import atan, cos, pi, sin, sqrt, tan
from statistics import NormalDist, fmean, stdev

Interval = tuple[float, float]
Z95 = NormalDist().inv_cdf(0.975)


def wilson(right: float, n: float, z: float = Z95) -> Interval:
    """95 % interval of a share (Wilson's score interval): never outside [0, 1], sensible for few images and at both ends."""
    if n == 0:
        return 0.0, 1.0
    share, weight = right / n, z * z / n
    center = (share + weight / 2) / (1 + weight)
    half = z / (1 + weight) * sqrt(share * (1 - share) / n + weight / (4 * n))
    low = 0.0 if right == 0 else center - half  # exactly, whatever the rounding
    high = 1.0 if right == n else center + half
    return low, high


def mcnemar(fixed: int, broken: int) -> float:
    """Exact two-sided McNemar test: how likely so uneven a split of the images that changed would be if both ways were as likely.

    Only the images that are right in one case and wrong in the other count: P(|X - n/2| ≥ |fixed - n/2|), X ~ Binomial(n, 1/2).
    """
    n, fewer = fixed + broken, min(fixed, broken)
    if 2 * fewer == n:
        return 1.0
    term = total = 1
    for k in range(1, fewer + 1):
        term = term * (n - k + 1) // k  # n over k, in whole numbers
        total += term
    return min(1.0, total / (1 << (n - 1)))


def paired_difference(fixed: int, broken: int, n: int, z: float = Z95) -> tuple[float, Interval]:
    """Difference of two shares measured on the same ``n`` images, and its 95 % interval after Bonett and Price (2012).

    That is the normal interval after one image is added to ``fixed`` and one to ``broken``, which keeps its promise from about ten
    images on and does not shrink to a point where nothing changed. The difference itself is the plain one.
    """
    if n == 0:
        return 0.0, (-1.0, 1.0)
    gain, loss = (fixed + 1) / (n + 2), (broken + 1) / (n + 2)
    half = z * sqrt((gain + loss - (gain - loss) ** 2) / (n + 2))
    return (fixed - broken) / n, (max(-1.0, gain - loss - half), min(1.0, gain - loss + half))


def average_difference(changes: Sequence[float], least: float, z: float = Z95) -> Interval:
    """95 % interval of the mean of changes that pictures made: :func:`paired_difference`'s, where a change need not be -1, 0 or 1.

    ``least`` is the smallest change there can be: 1 / corruptions, if a picture's change is its mean over corruptions.
    """
    n = len(changes) + 2  # one picture better by the least, one worse
    center = sum(changes) / n
    half = z * sqrt(((sum(change * change for change in changes) + 2 * least * least) / n - center * center) / n)
    return max(-1.0, center - half), min(1.0, center + half)


def clustered_error(deviations: Sequence[float]) -> float | None:
    """Standard error of a sum of independent parts from each part's deviation from its expectation; None for fewer than two parts.

    A part is all that one picture adds to an average over corruptions: the same picture under 15 corruptions is not 15 pictures.
    """
    m = len(deviations)
    return sqrt(sum(part * part for part in deviations) * m / (m - 1)) if m > 1 else None


@cache
def t_quantile(freedom: int) -> float:
    """Return the t that 95 % of Student's distribution lie within: what 1.96 is for a spread that was estimated from few parts.

    Its integral is a finite sum in the angle whose tangent is t / √freedom (Abramowitz and Stegun 26.7.3 and 26.7.4).
    """
    if freedom > 1000:
        return Z95 + (Z95**3 + Z95) / (4 * freedom)  # to 5e-6

    def within(angle: float) -> float:
        term = total = cos(angle) if freedom % 2 else 1.0
        for k in range(freedom % 2 + 2, freedom, 2):
            term *= cos(angle) ** 2 * (k - 1) / k
            total += term
        if freedom % 2 == 0:
            return sin(angle) * total
        return 2 / pi * (angle + (sin(angle) * total if freedom > 1 else 0.0))

    low, high = atan(Z95 / sqrt(freedom)), pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle) < 0.95 else (low, middle)
    return sqrt(freedom) * tan(low)


def mean_std(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and sample standard deviation over seeds; one value has no deviation."""
    return fmean(values), stdev(values) if len(values) > 1 else None
