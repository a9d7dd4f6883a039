"""Figures that compare methods and settings: what they draw, against numbers counted by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from helpers.small_results import FOG_SNOW, Traces, before, fill, only_table
from sweep_figures import (
    by_model,
    colored,
    cost_figure,
    cost_table,
    draw_sweeps,
    frontier,
    main,
    on_same_images,
    settings_figure,
    settings_table,
    spread_out,
)
from ttaps.report.columns import load_results
from ttaps.report.figures.style import new_figure
from ttaps.report.tables import make_tables

BETTER: Traces = {"fog": ["wwr", "wrr", "rrw", "rrr"], "snow": ["wrr", "wwr", "rrr", "www"]}
"""Four of eight fixed and one broken after two steps; two fixed and none broken after one."""
SWEEP: tuple[dict[str, Any], ...] = (
    *({"lr": lr, "tau": tau} for lr in (0.1, 0.3, 1.0) for tau in (0.1, 0.5)),
    *({"momentum": 0.9}, {"adapt_params": "norm"}),
)


def names_of(folder: Path) -> list[str]:
    results = load_results([folder])
    (table,) = make_tables(results)
    return [name for name, _ in draw_sweeps(table, results.traces)]


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Settings of one method, and the source model."""
    fill(tmp_path, before(BETTER), "source")
    for changed in SWEEP:
        fill(tmp_path, BETTER, steps=2, **changed)
    return tmp_path


def test_columns_are_compared_on_the_images_that_they_share(tmp_path: Path) -> None:
    fill(tmp_path, before(FOG_SNOW), "source")
    fill(tmp_path, {"fog": FOG_SNOW["fog"], "snow": FOG_SNOW["snow"][:6]})
    fill(tmp_path, {"fog": FOG_SNOW["fog"][2:], "snow": FOG_SNOW["snow"][:6]}, "memo")  # images 0 to 7 under fog
    fill(tmp_path, {"fog": ["rr"]}, "tent")
    columns = only_table(tmp_path).columns
    found = on_same_images(columns, 5, 3)
    assert sorted(found) == ["memo", "source", "ttaps"]  # tent has only begun
    for rows in found.values():
        images = sorted(zip(rows["corruption"], rows["image"], strict=True))
        assert images == [("fog", image) for image in range(8)] + [("snow", image) for image in range(6)]
    assert len(on_same_images(columns, 5, 4)) == 4
    assert on_same_images(columns, 5, 5) == {}


def test_models_are_not_mixed(tmp_path: Path) -> None:
    for seed in (0, 1):
        fill(tmp_path, FOG_SNOW, training_seed=seed)
        fill(tmp_path, before(FOG_SNOW), "source", training_seed=seed)
    fill(tmp_path, before(FOG_SNOW), "source", objective="jt")
    groups = by_model(only_table(tmp_path).columns)
    assert sorted(sorted(column.spec for column in group) for group in groups) == [["source"], ["source", "ttaps"]]


def test_costs_are_medians_beside_accuracies(sweep: Path) -> None:
    columns = only_table(sweep).columns
    costs = cost_table(on_same_images(columns, 5, 3))
    assert set(costs["cost"]) == {1.0}
    assert costs["after"]["source"] == pytest.approx(100 * 3 / 8)
    assert set(costs["after"].drop("source")) == {75.0}
    figure = cost_figure(costs, {column.spec: column.style for column in columns})
    assert {text.get_text() for text in figure.axes[0].texts} == {"", *costs.index}


def test_costs_without_a_source_are_in_seconds(tmp_path: Path) -> None:
    for method in ("ttaps", "memo", "tent"):
        fill(tmp_path, FOG_SNOW, method)
    columns = only_table(tmp_path).columns
    costs = cost_table(on_same_images(columns, 5, 3))
    assert set(costs["cost"]) == {0.25}
    figure = cost_figure(costs, {column.spec: column.style for column in columns})
    assert figure.axes[0].get_xlabel() == "seconds per image"


def test_nothing_on_the_frontier_is_dearer_and_worse() -> None:
    points = [(3, 70), (1, 60), (2, 65), (4, 69), (2, 64), (9, 71)]
    numbers = pd.DataFrame(points, columns=["cost", "after"])
    assert frontier(numbers).to_numpy().tolist() == [[1, 60], [2, 65], [3, 70], [9, 71]]


@pytest.mark.parametrize(
    ("wanted", "placed"),
    [
        ([0.2, 0.5, 0.9], [0.2, 0.5, 0.9]),
        ([0.5, 0.5, 0.5], [0.5, 0.6, 0.7]),
        ([0.95, 0.95, 1.0], [0.8, 0.9, 1.0]),
        ([], []),
    ],
)
def test_labels_make_room_for_each_other(wanted: list[float], placed: list[float]) -> None:
    assert spread_out(wanted, 0.1) == pytest.approx(placed)


def test_settings_are_counted_by_hand_and_the_best_is_on_top(sweep: Path) -> None:
    fill(sweep, {"fog": ["www", "wrr", "rrw", "rrr"], "snow": ["wrr", "www", "rrr", "www"]}, steps=2, lr=9.0)
    results = load_results([sweep])
    (table,) = make_tables(results)
    numbers = settings_table(on_same_images(table.adapting, 5, 4), results.traces)
    for spec, lines in numbers.groupby("spec", sort=False):
        if "lr=9" not in str(spec):
            assert lines["change"].tolist() == [0, 25, 37.5]
            assert lines[["fixed", "broken"]].to_numpy().tolist() == [[0, 0], [2, 0], [4, 1]]
    assert "lr=9" in numbers.index[-1][0]
    change, *_ = settings_figure(numbers).axes
    assert [label.get_text() for label in change.get_yticklabels()] == list(numbers.index.unique("spec"))


def test_few_methods_or_settings_are_not_drawn(sweep: Path, tmp_path: Path) -> None:
    assert names_of(sweep) == ["cifar10-c-5-cost-net", "cifar10-c-5-settings-ttaps-net"]
    fill(tmp_path / "two", FOG_SNOW)
    fill(tmp_path / "two", before(FOG_SNOW), "source")
    assert names_of(tmp_path / "two") == []
    for lr in (0.1, 0.2, 0.3):
        fill(tmp_path / "three", FOG_SNOW, lr=lr)
    assert names_of(tmp_path / "three") == ["cifar10-c-5-cost-net"]


def test_one_setting_far_off_leaves_the_others_their_colors() -> None:
    axes = new_figure(1, 1).add_axes((0, 0, 1, 1))
    points = np.full((11, 2), 1.0)
    points[:5, 0] = 1.8
    assert colored(axes, points, (0, 2)).get_clim() == (-1.8, 1.8)
    points[0] = -45.0
    assert colored(axes, points, (0, 2)).get_clim() == (-1.8, 1.8)


def test_the_program_writes_files(sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(str(tmp_path / "out"), str(sweep))
    written = capsys.readouterr().out.split()
    assert [Path(name).name for name in written] == ["cifar10-c-5-cost-net.png", "cifar10-c-5-settings-ttaps-net.png"]
    assert all(Path(name).read_bytes().startswith(b"\x89PNG") for name in written)
