"""Intervals and tests against scipy, against exact enumeration, and at their ends."""

from __future__ import annotations

from itertools import product
from math import comb, isclose, sqrt

import numpy as np
import pytest
from scipy.stats import binomtest, t

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


@pytest.mark.parametrize(("right", "n"), [(0, 1), (1, 1), (0, 10), (3, 10), (10, 10), (812, 1000), (9_999, 10_000)])
def test_wilson_is_scipys(right: int, n: int) -> None:
    reference = binomtest(right, n).proportion_ci(method="wilson")
    assert wilson(right, n) == pytest.approx((reference.low, reference.high), abs=1e-12)


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 9, 14, 99, 299, 1000, 1001, 9_999])
def test_student_is_scipys(freedom: int) -> None:
    assert t_quantile(freedom) == pytest.approx(t.ppf(0.975, freedom), rel=2e-6)


def test_wilson_knows_nothing_of_no_images() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize(("fixed", "broken"), [(0, 0), (1, 0), (5, 5), (8, 2), (2, 8), (0, 30), (120, 80), (700, 790)])
def test_mcnemar_is_the_exact_binomial_test(fixed: int, broken: int) -> None:
    reference = binomtest(fixed, fixed + broken, 0.5).pvalue if fixed + broken else 1.0
    assert isclose(mcnemar(fixed, broken), reference, rel_tol=1e-9)


def test_mcnemar_of_many_changes_is_a_number_and_fast() -> None:
    assert mcnemar(10_000, 0) == 0.0
    assert 0 < mcnemar(10_200, 9_800) < 0.01


def test_paired_interval_covers_the_truth_as_often_as_it_says() -> None:
    n, coverages = 25, []
    for gain, loss in [(0.02, 0.02), (0.05, 0.15), (0.2, 0.2), (0.3, 0.05), (0.4, 0.4)]:
        coverages.append(
            sum(
                comb(n, b) * comb(n - b, c) * gain**b * loss**c * (1 - gain - loss) ** (n - b - c)
                for b, c in product(range(n + 1), repeat=2)
                if b + c <= n and _inside(gain - loss, paired_difference(b, c, n)[1])
            )
        )
    assert min(coverages) > 0.94
    assert sum(coverages[1:]) / 4 < 0.98  # and is not simply wide


def _inside(value: float, interval: tuple[float, float]) -> bool:
    return interval[0] <= value <= interval[1]


def test_paired_difference_and_its_ends() -> None:
    assert paired_difference(7, 1, 21)[0] == 6 / 21
    # Bonett and Price for 7 and 1 of 21 by hand: 8/23 - 2/23 and its normal interval.
    assert paired_difference(7, 1, 21)[1] == pytest.approx((0.0133799, 0.5083593), abs=1e-7)
    assert paired_difference(0, 0, 0) == (0.0, (-1.0, 1.0))
    low, high = paired_difference(0, 0, 100)[1]
    assert low == -high < 0
    assert paired_difference(1, 0, 1)[1][1] == 1.0


def test_the_average_of_one_corruption_is_the_paired_difference() -> None:
    changes = [1.0] * 7 + [-1.0] * 1 + [0.0] * 13
    assert average_difference(changes, least=1.0) == pytest.approx(paired_difference(7, 1, 21)[1], abs=1e-12)
    many = np.random.default_rng(0).normal(0.1, 0.3, 20_000)
    half = Z95 * float(many.std()) / sqrt(20_000)
    assert average_difference(many.tolist(), 1 / 15) == pytest.approx(
        (many.mean() - half, many.mean() + half), abs=1e-4
    )


def test_clustered_error_counts_pictures_not_rows() -> None:
    values = np.random.default_rng(0).random(50)
    plain = float(values.std(ddof=1)) / sqrt(50)
    assert isclose(clustered_error(((values - values.mean()) / 50).tolist()) or 0, plain)
    assert clustered_error([0.1]) is None
    assert isclose(Z95, 1.959963984540054, rel_tol=1e-12)


def test_one_seed_has_no_deviation() -> None:
    assert mean_std([3.0]) == (3.0, None)
    assert mean_std([1.0, 2.0, 3.0]) == (2.0, 1.0)
