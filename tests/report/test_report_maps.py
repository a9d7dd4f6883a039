"""Figures that compare methods and settings: what they draw, against numbers counted by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.small_results import FOG_SNOW, Traces, before, fill
from ttaps.evaluate.summary import Accuracy
from ttaps.report.columns import Column
from ttaps.report.cost import Point, costs_figure, frontier, spread_out, table_costs
from ttaps.report.figures import MANY, draw_all
from ttaps.report.grouping import by_model, names_apart, on_same_images
from ttaps.report.outcomes import read_runs
from ttaps.report.settings_grid import grid_figure, grids_of
from ttaps.report.settings_map import colored, map_figure, table_settings
from ttaps.report.style import PLAIN, new_figure
from ttaps.report.tables import Table, make_tables

BETTER: Traces = {"fog": ["wwr", "wrr", "rrw", "rrr"], "snow": ["wrr", "wwr", "rrr", "www"]}
"""Four of eight fixed and one broken after two steps; two fixed and none broken after one."""
SWEEP: tuple[dict[str, Any], ...] = (
    *({"lr": lr, "tau": tau} for lr in (0.1, 0.3, 1.0) for tau in (0.1, 0.5)),
    *({"momentum": 0.9}, {"adapt_params": "norm"}),
)


def only_table(folder: Path) -> Table:
    (table,) = make_tables(read_runs([folder]))
    return table


def columns_of(folder: Path) -> list[Column]:
    return [shown.column for shown in only_table(folder).ours if shown.column]


def words_of(figure: Any) -> list[str]:
    """Return all that is written in a figure."""
    return [text.get_text().strip() for axes in figure.axes for text in axes.texts]


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
    found = on_same_images(columns_of(tmp_path), 5, 3)
    assert sorted(column.method for column in found) == ["memo", "source", "ttaps"]  # tent has only begun
    for column in found:
        (run,) = column.runs
        images = [(str(row["corruption"]), int(row["image"])) for row in run.rows]
        assert images == [("fog", image) for image in range(8)] + [("snow", image) for image in range(6)]
    assert len(on_same_images(columns_of(tmp_path), 5, 4)) == 4
    assert on_same_images(columns_of(tmp_path), 5, 5) == []


def test_models_are_not_mixed(tmp_path: Path) -> None:
    for seed in (0, 1):
        fill(tmp_path, FOG_SNOW, training_seed=seed)
        fill(tmp_path, before(FOG_SNOW), "source", training_seed=seed)
    fill(tmp_path, before(FOG_SNOW), "source", objective="jt")
    groups = by_model(columns_of(tmp_path))
    assert sorted(sorted(column.label for column in group) for group in groups) == [["JT"], ["JT+ENT", "TTAPS"]]


def test_short_settings_have_their_whole_name_and_long_ones_say_what_differs(tmp_path: Path) -> None:
    fill(tmp_path / "short", BETTER, "ttaps:fast")
    fill(tmp_path / "short", BETTER, "ttaps:fast", lr=0.3)
    fill(tmp_path / "short", BETTER)
    names, base = names_apart(columns_of(tmp_path / "short"))
    assert (sorted(names), base) == (["fast", "fast, lr 0.3", "paper"], "")

    changes: tuple[dict[str, Any], ...] = (
        {},
        {"lr": 0.3},
        {"momentum": 0.9, "adapt_params": "norm"},
        {"tau": 0.1, "views": {"flip_p": 0.0}},
    )
    for changed in changes:
        fill(tmp_path / "long", BETTER, "ttaps:fast", **changed)
    fill(tmp_path / "long", BETTER, "ttaps:fast", protocol="online")
    names, base = names_apart(columns_of(tmp_path / "long"))
    assert (sorted(names), base) == (
        ["fast", "lr 0.3", "momentum 0.9, scope norm", "online", "τ 0.1, views.flip 0.0"],
        "fast",
    )


def test_of_values_that_are_as_usual_the_plainer_is_the_base(tmp_path: Path) -> None:
    for lr in (0.3, 1.0):
        for tau in (0.75, 0.1):
            fill(tmp_path, BETTER, "ttaps:fast", lr=lr, tau=tau, momentum=0.9)
    names, base = names_apart(columns_of(tmp_path))
    assert (sorted(names), base) == (["fast, momentum 0.9", "lr 0.3", "lr 0.3, τ 0.1", "τ 0.1"], "fast, momentum 0.9")


def test_costs_are_medians_beside_accuracies(sweep: Path) -> None:
    (costs,) = table_costs(only_table(sweep))
    assert (costs.model, costs.n, costs.unit) == ("net", 8, 0.25)
    accuracy = {point.label: point.accuracy.percent for point in costs.points}
    assert accuracy.pop("source") == pytest.approx(100 * 3 / 8)
    assert len(accuracy) == len(SWEEP)
    assert set(accuracy.values()) == {75.0}
    assert {point.seconds for point in costs.points} == {0.25}
    assert set(words_of(costs_figure(costs))) == {"", *(point.label for point in costs.points)}


def test_two_methods_are_no_curve(tmp_path: Path) -> None:
    fill(tmp_path, FOG_SNOW)
    fill(tmp_path, before(FOG_SNOW), "source")
    assert table_costs(only_table(tmp_path)) == []


def test_costs_without_a_source_are_in_seconds(tmp_path: Path) -> None:
    for method in ("ttaps", "memo", "tent"):
        fill(tmp_path, FOG_SNOW, method)
    (costs,) = table_costs(only_table(tmp_path))
    assert costs.unit is None
    assert costs_figure(costs).axes[0].get_xlabel() == "seconds per image"


def test_nothing_on_the_frontier_is_dearer_and_worse() -> None:
    pairs = [(3, 70), (1, 60), (2, 65), (4, 69), (2, 64), (9, 71)]
    points = [Point(str(pair), PLAIN, pair[0], Accuracy(pair[1], 0, 100)) for pair in pairs]
    assert [point.label for point in frontier(points)] == ["(1, 60)", "(2, 65)", "(3, 70)", "(9, 71)"]


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


def test_settings_are_counted_by_hand(sweep: Path) -> None:
    (settings,) = table_settings(only_table(sweep))
    assert (settings.method, settings.n, len(settings.tried)) == ("ttaps", 8, len(SWEEP))
    for one in settings.tried:
        assert [line.difference.points for line in one.lines] == [0, 25, 37.5]
        assert [(line.difference.fixed, line.difference.broken) for line in one.lines] == [(0, 0), (2, 0), (4, 1)]
        assert one.per_hundred() == (50, 12.5)
        assert one.significant == (one.last.difference.low > 0)
    assert {one.label for one in settings.tried} <= set(words_of(map_figure(settings)))


def test_the_best_settings_are_on_top(tmp_path: Path) -> None:
    for lr, word in ((0.1, "wr"), (0.2, "rw"), (0.3, "rr"), (0.4, "ww")):
        fill(tmp_path, {"fog": ["rr", word, "wr"]}, lr=lr)
    (settings,) = table_settings(only_table(tmp_path))
    assert [one.last.difference.points for one in settings.tried] == pytest.approx([200 / 3, 100 / 3, 100 / 3, 0])
    assert settings.tried[0].label == "paper"


def test_three_settings_are_no_map(tmp_path: Path) -> None:
    for lr in (0.1, 0.2, 0.3):
        fill(tmp_path, FOG_SNOW, lr=lr)
    assert list(table_settings(only_table(tmp_path))) == []


def test_combinations_of_step_size_and_temperature_are_a_grid(sweep: Path) -> None:
    (settings,) = table_settings(only_table(sweep))
    (grid,) = grids_of(settings)
    assert (grid.columns, grid.rows) == ((0.1, 0.3, 1.0), ((0.1, 1.0), (0.5, 1.0)))
    assert (len(grid.cells), grid.base) == (6, "steps 2")
    figure = grid_figure(grid)
    assert words_of(figure) == ["+37.5", "50.0 / 12.5"] * 6
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["τ 0.1, ε 1", "τ 0.5, ε 1"]


def test_one_setting_at_a_time_is_no_grid(tmp_path: Path) -> None:
    one_by_one: tuple[dict[str, Any], ...] = ({}, {"lr": 0.3}, {"lr": 1.0}, {"tau": 0.1}, {"tau": 0.3})
    for changed in one_by_one:  # five of nine
        fill(tmp_path, FOG_SNOW, **changed)
    (settings,) = table_settings(only_table(tmp_path))
    assert list(grids_of(settings)) == []
    fill(tmp_path, FOG_SNOW, lr=0.3, tau=0.1)  # six of nine: a grid, and what is missing stays white
    (settings,) = table_settings(only_table(tmp_path))
    (grid,) = grids_of(settings)
    assert len(words_of(grid_figure(grid))) == 2 * 6


def test_a_report_has_the_maps(sweep: Path) -> None:
    drawings, _ = draw_all([only_table(sweep)], [sweep])
    names = [drawing.name for drawing in drawings]
    assert names[:3] == [
        f"cifar10-c-5-{kind}" for kind in ("cost-net", "settings-ttaps-net", "settings-ttaps-net-grid-1")
    ]
    assert len(set(names)) == len(names)  # though labels are cut short
    for drawing in drawings[:3]:
        assert "on the same 8 images" in drawing.caption


def test_a_report_of_very_many_settings_has_the_maps_alone(sweep: Path) -> None:
    for lr in range(MANY):
        fill(sweep, BETTER, steps=2, lr=2.0 + lr)
    drawings, notes = draw_all([only_table(sweep)], [sweep])
    assert [drawing.name.split("-")[3] for drawing in drawings] == ["cost", "settings"]
    assert f"{len(SWEEP) + MANY} columns" in notes[0]


def test_one_setting_far_off_leaves_the_others_their_colors() -> None:
    axes = new_figure(1, 1).add_axes((0, 0, 1, 1))
    points = np.full((11, 2), 1.0)
    points[:5, 0] = 1.8
    assert colored(axes, points, (0, 2)).get_clim() == (-1.8, 1.8)
    points[0] = -45.0
    assert colored(axes, points, (0, 2)).get_clim() == (-1.8, 1.8)
