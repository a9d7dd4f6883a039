"""Bonett and Price's interval (2012) in closed form, as in the paper: the reference for :mod:`ttaps.evaluation.statistics`."""

from __future__ import annotations

from math import sqrt

from ttaps.evaluation.statistics import Z95


def paired_difference(fixed: int, broken: int, n: int) -> tuple[float, tuple[float, float]]:
    """Difference of two shares measured on the same ``n`` images, and its 95 % interval."""
    gain, loss = (fixed + 1) / (n + 2), (broken + 1) / (n + 2)
    half = Z95 * sqrt((gain + loss - (gain - loss) ** 2) / (n + 2))
    return (fixed - broken) / n, (max(-1.0, gain - loss - half), min(1.0, gain - loss + half))
