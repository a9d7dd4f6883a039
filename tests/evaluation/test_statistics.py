"""Intervals and tests against scipy, against exact enumeration, and at their ends; tables of rows against numbers by hand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import comb, isclose, sqrt

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest, t

from helpers.bonett_price import paired_difference
from ttaps.data import CORRUPTIONS
from ttaps.evaluation.statistics import (
    AVERAGE,
    STATISTICS,
    Z95,
    accuracy_table,
    average_difference,
    compare_table,
    mcnemar,
    measure,
    signed,
    significant,
    t_quantile,
    wilson,
)

Outcomes = Sequence[tuple[int, int]]
TRACES = [(0, 1)] * 4 + [(1, 0)] + [(1, 1)] * 3 + [(0, 0)] * 2
"""Ten images, right (1) or wrong (0) before and after: four are fixed, one is broken."""


def rows_of(
    corruption: str, outcomes: Outcomes, severity: int = 5, seed: int = 0, training_seed: int = 0
) -> pd.DataFrame:
    """Return the rows of images from whether each was right before and after."""
    right = pd.DataFrame(outcomes, columns=["correct_before", "correct_after"]).astype(bool)
    identity = {"fingerprint": f"f{training_seed}", "training_seed": training_seed, "spec": "ttaps", "seed": seed}
    return right.assign(image=range(len(right)), corruption=corruption, severity=severity, **identity)


@pytest.mark.parametrize(("right", "n"), [(0, 1), (1, 1), (0, 10), (3, 10), (10, 10), (812, 1000), (9_999, 10_000)])
def test_wilson_is_scipys(right: int, n: int) -> None:
    reference = binomtest(right, n).proportion_ci(method="wilson")
    assert wilson(right, n) == pytest.approx((reference.low, reference.high), abs=1e-12)


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 9, 14, 99, 299, 1000, 1001, 9_999])
def test_t_quantile_is_scipys(freedom: int) -> None:
    assert t_quantile(freedom) == pytest.approx(t.ppf(0.975, freedom), rel=1e-12)


def test_wilson_knows_nothing_of_no_images() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize(("fixed", "broken"), [(0, 0), (1, 0), (5, 5), (8, 2), (2, 8), (0, 30), (120, 80), (700, 790)])
def test_mcnemar_is_the_exact_binomial_test(fixed: int, broken: int) -> None:
    reference = binomtest(fixed, fixed + broken, 0.5).pvalue if fixed + broken else 1.0
    assert isclose(mcnemar(fixed, broken), reference, rel_tol=1e-9)


def test_mcnemar_of_many_changes_is_a_number_and_fast() -> None:
    assert mcnemar(10_000, 0) == 0.0
    assert 0 < mcnemar(10_200, 9_800) < 0.01


def interval(fixed: int, broken: int, n: int) -> tuple[float, float]:
    """Return the interval of the difference of two shares of the same images, of which so many changed."""
    return average_difference([1.0] * fixed + [-1.0] * broken + [0.0] * (n - fixed - broken), least=1.0)


def test_paired_interval_covers_the_truth_as_often_as_it_says() -> None:
    n, coverages = 25, []
    for gain, loss in [(0.02, 0.02), (0.05, 0.15), (0.2, 0.2), (0.3, 0.05), (0.4, 0.4)]:
        coverages.append(
            sum(
                comb(n, b) * comb(n - b, c) * gain**b * loss**c * (1 - gain - loss) ** (n - b - c)
                for b, c in product(range(n + 1), repeat=2)
                if b + c <= n and _inside(gain - loss, interval(b, c, n))
            )
        )
    assert min(coverages) > 0.94
    assert sum(coverages[1:]) / 4 < 0.98  # and is not simply wide


def _inside(value: float, interval: tuple[float, float]) -> bool:
    return interval[0] <= value <= interval[1]


def test_paired_difference_and_its_ends() -> None:
    # Bonett and Price for 7 and 1 of 21 by hand: 8/23 - 2/23 and its normal interval.
    assert interval(7, 1, 21) == pytest.approx((0.0133799, 0.5083593), abs=1e-7)
    assert interval(0, 0, 0) == (-1.0, 1.0)
    low, high = interval(0, 0, 100)
    assert low == -high < 0
    assert interval(1, 0, 1)[1] == 1.0


@pytest.mark.parametrize("fixed", [0, 1, 7])
@pytest.mark.parametrize("broken", [0, 2, 14])
def test_one_corruption_has_bonett_and_prices_interval(fixed: int, broken: int) -> None:
    line = measure(rows_of("fog", [(0, 1)] * fixed + [(1, 0)] * broken + [(1, 1)] * (21 - fixed - broken)))
    points, ends = paired_difference(fixed, broken, 21)
    assert line["change"] == 100 * points
    assert (line["change_low"], line["change_high"]) == pytest.approx(tuple(100 * end for end in ends), abs=1e-12)


def test_the_average_of_many_images_has_the_normal_interval() -> None:
    many = np.random.default_rng(0).normal(0.1, 0.3, 20_000)
    half = Z95 * float(many.std()) / sqrt(20_000)
    assert average_difference(many.tolist(), 1 / 15) == pytest.approx(
        (many.mean() - half, many.mean() + half), abs=1e-4
    )


def test_an_average_has_the_error_of_its_images_not_of_its_rows() -> None:
    """The standard error of the images' means, as effective images of Wilson's interval; a single image has none."""
    right = np.random.default_rng(0).integers(0, 2, (3, 50))
    rows = [rows_of(name, [(0, one) for one in part]) for name, part in zip(CORRUPTIONS, right.tolist(), strict=False)]
    line, share = measure(pd.concat(rows, ignore_index=True)), right.mean()
    images = share * (1 - share) / (right.mean(0).var(ddof=1) / 50) * (Z95 / t_quantile(49)) ** 2
    expected = [100 * end for end in wilson(share * images, images)]
    assert [line["after_low"], line["after_high"]] == pytest.approx(expected)
    alone = measure(pd.concat([part[:1] for part in rows], ignore_index=True))
    share = right[:, 0].mean()
    assert [alone["after_low"], alone["after_high"]] == pytest.approx([100 * end for end in wilson(share, 1)])
    assert isclose(Z95, 1.959963984540054, rel_tol=1e-12)


def test_a_table_counts_what_changed() -> None:
    """10 images under two corruptions; fog: 4 are fixed and 1 is broken, snow: nothing changes."""
    table = accuracy_table(pd.concat([rows_of("snow", [(1, 1)] * 10), rows_of("fog", TRACES)], ignore_index=True))
    assert list(table.index) == [("fog", 5), ("snow", 5), (AVERAGE, 0)]  # the paper's order
    assert list(table.columns) == STATISTICS
    fog, snow, average = table.loc[("fog", 5)], table.loc[("snow", 5)], table.loc[(AVERAGE, 0)]
    assert (fog["n"], fog["before"], fog["after"]) == (10, 40.0, 70.0)
    assert (fog["change"], fog["fixed"], fog["broken"]) == (30.0, 4, 1)
    assert fog["p"] == 2 * (1 + 5) / 2**5
    assert (fog["before_low"], fog["before_high"]) == tuple(100 * end for end in wilson(4, 10))
    assert (snow["change"], snow["p"]) == (0.0, 1.0)
    assert (average["n"], average["before"], average["after"]) == (20, 70.0, 85.0)
    assert average["change"] == pytest.approx(15.0)
    # Ten images changed by ±1/2 or 0 on average, two more by ±1/2 (Bonett and Price), and their normal interval.
    changes = np.array([1, 1, 1, 1, -1, 0, 0, 0, 0, 0, 1, -1]) / 2
    low, high = changes.mean() + np.array([-1.959964, 1.959964]) * changes.std() / np.sqrt(12)
    assert (average["change_low"], average["change_high"]) == pytest.approx((100 * low, 100 * high), abs=1e-4)
    assert average["p"] == fog["p"]
    assert not significant(average)
    assert not significant(table).any()


def test_two_experiments_are_compared_on_the_images_that_both_have() -> None:
    source = rows_of("fog", [(before, before) for before, _ in TRACES[:8]])
    table = compare_table(source, pd.concat([rows_of("fog", TRACES), rows_of("snow", TRACES)], ignore_index=True))
    assert table.loc[("fog", 5), ["n", "change"]].tolist() == [8, 37.5]
    assert ("snow", 5) not in table.index
    assert compare_table(source, rows_of("snow", TRACES)).empty


def test_seeds_are_compared_with_the_seed_they_are_most_like() -> None:
    """Two trainings of each: the same model, else the same seed of training, is the partner, whatever the order."""
    worse = [rows_of("fog", [(0, 0)] * 4 + [(0, seed)], training_seed=seed) for seed in (0, 1)]
    better = [rows_of("fog", [(0, 1)] * 4 + [(0, seed)], training_seed=seed) for seed in (1, 0)]
    table = compare_table(pd.concat(worse, ignore_index=True), pd.concat(better, ignore_index=True))
    assert table.loc[("fog", 5), ["n", "fixed", "broken"]].tolist() == [10, 8, 0]
    only = compare_table(worse[0], pd.concat(better, ignore_index=True))
    assert only.loc[("fog", 5), ["n", "fixed", "broken"]].tolist() == [10, 9, 0]


def test_a_table_by_severity_averages_over_corruptions() -> None:
    parts = [rows_of(name, TRACES, severity) for name in ("fog", "snow") for severity in (1, 5)]
    table = accuracy_table(pd.concat(parts, ignore_index=True), ["severity"])
    assert list(table.index) == [1, 5, AVERAGE]
    assert table["n"].tolist() == [20, 20, 40]
    assert table.loc[1, "after"] == pytest.approx(70.0)


def test_the_same_image_under_more_corruptions_is_not_more_images() -> None:
    outcomes = [(image % 2, image % 4 // 2) for image in range(40)]
    table = accuracy_table(pd.concat([rows_of(name, outcomes) for name in ("fog", "snow", "frost")], ignore_index=True))
    one, average = table.loc[("fog", 5)], table.loc[(AVERAGE, 0)]
    assert (average["n"], average["after"], average["p"]) == (120, one["after"], one["p"])
    # Of 40 images one is spent on the mean; and a spread that was estimated from them has Student's tails.
    images = 39 * (Z95 / t_quantile(39)) ** 2
    low, high = wilson(images * one["after"] / 100, images)
    assert (average["after_low"], average["after_high"]) == pytest.approx((100 * low, 100 * high))


def test_another_seed_of_the_same_images_is_not_more_images() -> None:
    once = pd.concat([rows_of("fog", TRACES), rows_of("snow", TRACES)], ignore_index=True)
    first, both = measure(once), measure(pd.concat([once, once.assign(seed=1)], ignore_index=True))
    assert both["n"] == 2 * first["n"]
    ends = ["before", "before_low", "before_high", "after", "after_low", "after_high", "change"]
    assert [both[name] for name in ends] == pytest.approx([first[name] for name in ends])


def test_an_image_that_gains_as_often_as_it_loses_did_neither() -> None:
    """Under 15 corruptions, with 300 images each: sums of 1/4500 are not exactly 0."""
    parts = []
    for place, corruption in enumerate(CORRUPTIONS):
        outcome = {0: (0, 1), 1: (1, 0)}.get(place // 3, (1, 1))  # fixed under three, broken under three
        parts.append(rows_of(corruption, [outcome] * 300))
    assert measure(pd.concat(parts, ignore_index=True))["p"] == 1.0


def test_differences_have_a_sign_and_nothing_is_plus_nothing() -> None:
    assert [signed(number) for number in (1.25, -0.04, -3.0)] == ["+1.2", "+0.0", "-3.0"]


def test_a_change_is_significant_where_test_and_interval_agree() -> None:
    lines = pd.DataFrame({"p": [0.01, 0.01, 0.06], "change_low": [0.1, -0.1, 0.1], "change_high": [2.0, 2.0, 2.0]})
    assert significant(lines).tolist() == [True, False, False]
