"""The frontier of gain against cost, from rows whose numbers are known."""

from __future__ import annotations

import pandas as pd
import pytest

from frontier import frontier_figure, frontier_table

METHODS = {"source": (0, 0.1), "augment": (3, 0.2), "tent": (2, 0.4), "ttaps:tuned[steps=2]": (5, 0.8)}


def stored() -> pd.DataFrame:
    """Ten images of two models; each method puts so many of them right and takes so long."""
    rows = [
        {"model": model, "spec": spec, "protocol": "episodic", "corruption": "fog", "severity": 5, "image": image,
         "correct_before": image >= 6, "correct_after": image >= 6 - fixed, "seconds": factor * seconds}
        for model, factor in (("a", 1), ("b", 10)) for spec, (fixed, seconds) in METHODS.items() for image in range(10)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_cost_is_a_multiple_of_the_same_models_prediction_and_the_frontier_has_no_worse_line() -> None:
    table = frontier_table(stored())
    for _, own in table.groupby("model"):
        assert own["spec"].tolist() == list(METHODS)
        assert own["cost"].tolist() == pytest.approx([1, 2, 4, 8])
        assert own["change"].tolist() == pytest.approx([0, 30, 20, 50])
        assert own["best"].tolist() == [True, True, False, True]
    assert len(frontier_figure(table).axes[0].get_legend().get_texts()) == 2


def test_a_model_without_plain_predictions_has_no_cost() -> None:
    rows = stored()
    kept = frontier_table(rows[(rows["model"] == "a") | (rows["spec"] != "source")])
    assert set(kept["model"]) == {"a"}
