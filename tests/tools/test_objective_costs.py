"""What a training step of each objective costs."""

from __future__ import annotations

import pytest

import objective_costs
from objective_costs import measure
from ttaps.training.objectives import OBJECTIVES


def test_costs_are_measured_against_jt_ent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objective_costs, "BATCH", 8)
    costs = measure(filters=16, rounds=1, depth=8)
    assert set(costs) == set(OBJECTIVES)
    assert costs["jt+ent"][1] == 1
    assert all(milliseconds > 0 for milliseconds, _ in costs.values())
