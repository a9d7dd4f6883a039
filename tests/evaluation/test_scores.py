"""NLL, Brier score, ECE and mCE against slow independent versions, and by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ttaps.evaluation.frame import accuracies, load_rows, load_traces
from ttaps.evaluation.plan import Item
from ttaps.evaluation.run import make_row
from ttaps.evaluation.statistics import SCORES, accuracy_table, calibration_error, corruption_error, measure
from ttaps.evaluation.store import Experiment, Store

NET = Experiment("net", "f00", "cifar10-c", "d1", "tent", "{}", 0)
CONDITIONS = [("fog", 1), ("fog", 5), ("snow", 1), ("snow", 5)]


def predictions(rng: np.random.Generator, images: int) -> Any:
    """Return class probabilities (images, 3 predictions, 5 classes), many of them certain."""
    return rng.dirichlet(np.full(5, 0.3), (images, 3)).astype(np.float32)


@pytest.fixture
def stored(tmp_path: Path) -> tuple[Path, dict[tuple[str, int], tuple[Any, Any]]]:
    """Store conditions with different numbers of images, and return them as they were."""
    rng, known = np.random.default_rng(0), {}
    with Store(tmp_path) as store:
        number = store.experiment(NET)
        for (corruption, severity), images in zip(CONDITIONS, (40, 30, 20, 50), strict=True):
            p, labels = predictions(rng, images), rng.integers(0, 5, images)
            known[corruption, severity] = p, labels
            items = [Item(corruption, severity, image) for image in range(images)]
            store.add(number, [make_row(*row, 0.1) for row in zip(items, labels.tolist(), p, strict=True)])
    return tmp_path, known


def slow(p: Any, labels: Any) -> dict[str, float]:
    """Return the scores of one condition with plain loops; p is (images, classes)."""
    right = [int(np.argmax(row)) == label for row, label in zip(p, labels, strict=True)]
    nll = [-math.log(row[label]) for row, label in zip(p, labels, strict=True)]
    brier = [
        sum((float(x) - (k == label)) ** 2 for k, x in enumerate(row)) for row, label in zip(p, labels, strict=True)
    ]
    ece = 0.0
    for k in range(15):
        inside = [i for i, row in enumerate(p) if k / 15 < max(row) <= (k + 1) / 15]
        if inside:
            gap = np.mean([right[i] for i in inside]) - np.mean([float(max(p[i])) for i in inside])
            ece += len(inside) / len(p) * abs(gap)
    means = {"error": 100 * (1 - np.mean(right)), "nll": np.mean(nll), "brier": np.mean(brier), "ece": 100 * ece}
    return {name: float(value) for name, value in means.items()}


def test_scores_of_stored_rows_are_those_of_the_probabilities(stored: Any) -> None:
    folder, known = stored
    table = accuracy_table(load_rows([folder]))
    every: list[dict[str, float]] = []
    for condition, (p, labels) in known.items():
        ends = {"before": slow(p[:, 0], labels), "after": slow(p[:, -1], labels)}
        every.append({f"{score}_{end}": value for end, found in ends.items() for score, value in found.items()})
        assert table.loc[condition, SCORES].to_dict() == pytest.approx(every[-1], rel=1e-5)
        assert table.loc[condition, "mce"] == pytest.approx(100 * every[-1]["error_after"] / every[-1]["error_before"])
    average = {name: np.mean([one[name] for one in every]) for name in SCORES}
    assert table.iloc[-1][SCORES].to_dict() == pytest.approx(average, rel=1e-5)
    errors = {end: [one[f"error_{end}"] for one in every] for end in ("before", "after")}
    ratios = [sum(errors["after"][i : i + 2]) / sum(errors["before"][i : i + 2]) for i in (0, 2)]  # fog, then snow
    assert table["mce"].iloc[-1] == pytest.approx(100 * np.mean(ratios))


def test_scores_of_every_step_are_exported(stored: Any) -> None:
    folder, known = stored
    table = accuracies(load_traces([folder]), steps=True).set_index(["step", "corruption", "severity"])
    for condition, (p, labels) in known.items():
        for step in range(3):
            want = slow(p[:, step], labels)
            line = table.loc[(step, *condition)]
            assert [line[f"{name}_after"] for name in ("error", "nll", "ece")] == pytest.approx(
                [want[name] for name in ("error", "nll", "ece")], rel=1e-5
            )
            assert math.isnan(line["brier_after"])  # stored for the first and the last prediction only


def test_calibration_error_by_hand() -> None:
    """Ten images that are 0.8 sure and right six times; the same with ten that are 0.3 sure and right nine times."""
    sure, right = np.full(10, 0.8), np.arange(10) < 6
    assert calibration_error(sure, right) == pytest.approx(20)
    both, correct = np.concatenate([sure, np.full(10, 0.3)]), np.concatenate([right, np.arange(10) < 9])
    assert calibration_error(both, correct) == pytest.approx(40)
    assert calibration_error(both, correct, np.repeat([0, 1], 10)) == pytest.approx(40)
    opposite = np.concatenate([right, np.arange(10) < 10])  # too sure in one part, not sure enough in the other
    assert calibration_error(np.full(20, 0.8), opposite) == pytest.approx(0)
    assert calibration_error(np.full(20, 0.8), opposite, np.repeat([0, 1], 10)) == pytest.approx(20)


def test_mean_corruption_error_by_hand() -> None:
    """Fog: 0.2 + 0.4 errors become 0.1 + 0.2. Snow: 0.5 become 0.6. The mean of 50 % and 120 %."""
    found = corruption_error(["fog", "fog", "snow"], [0.2, 0.4, 0.5], [0.1, 0.2, 0.6])
    assert found == pytest.approx(85)
    assert math.isnan(corruption_error(["fog", "snow"], [0.0, 0.5], [0.1, 0.5]))


def test_brier_score_by_hand() -> None:
    p = np.array([[0.5, 0.3, 0.2], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], dtype=np.float32)
    row = make_row(Item("fog", 5, 0), 1, p, 0.0)
    assert row.brier == pytest.approx((0.25 + 0.49 + 0.04, 2.0))
    broken = np.array([[0.5, 0.3, 0.2], [np.nan] * 3], dtype=np.float32)
    assert make_row(Item("fog", 5, 0), 1, broken, 0.0).brier[1] == 1


def test_rows_without_probabilities_have_no_scores() -> None:
    rows = pd.DataFrame({"corruption": "fog", "severity": 5, "image": [0, 1], "correct_before": [True, False]})
    found = measure(rows.assign(correct_after=True))
    assert found["mce"] == 0
    assert not set(SCORES) & set(found)
