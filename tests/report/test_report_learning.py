"""Learning curves: the points drawn are those that the run wrote down."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from ttaps.report.learning import Learning, learning_figure, read_learning, since_parting, sizes, smoothed

from helpers.small_training import SHORT, TINY
from ttaps.cli import main
from ttaps.config import to_toml
from ttaps.errors import TtapsError
from ttaps.model import Network
from ttaps.model.checkpoint import load_model, save_model
from ttaps.training.config import TrainConfig
from ttaps.training.run_dir import METRICS, log_metrics


def recorded(folder: Path, *rows: dict[str, float | int], config: TrainConfig = SHORT) -> Path:
    """Return a run folder with these rows of metrics."""
    folder.mkdir()
    (folder / "train.toml").write_text(to_toml(config))
    for row in rows:
        log_metrics(folder, row)
    return folder


def test_points_are_the_rows(tmp_path: Path) -> None:
    rows: list[dict[str, float | int]] = [
        {"step": 4, "epoch": 0.5, "ce": 2.0, "loss": 2.0},
        {"step": 8, "validation_accuracy": 0.25},
        {"step": 8, "epoch": 1.0, "ce": 1.0, "loss": 6.0, "swav": 5.0},
        {"step": 12, "validation_accuracy": 0.75},
    ]
    run = read_learning("mine", recorded(tmp_path / "run", *rows))
    assert run.validation == [(1.0, 25.0), (1.5, 75.0)]
    assert run.cross_entropy == [(0.5, 2.0), (1.0, 1.0)]
    assert sizes([run]) == [(0.0, 6), (2.0, 8)], "0.4 of five epochs at six pixels"
    assert sizes([run, replace(run, sizes=[(0.0, 6), (2.5, 8)])]) == []

    above, below = learning_figure([run, replace(run, name="again")]).axes
    for axes, points in ((above, run.validation), (below, smoothed(run.cross_entropy))):
        drawn = [line for line in axes.lines if line.get_linestyle() != ":"]
        assert [list(zip(*line.get_data(), strict=True)) for line in drawn] == [points, points]
        assert drawn[0].get_linestyle() != drawn[1].get_linestyle(), "two runs of one kind are told apart"


def test_a_common_beginning_is_cut_to_the_length_of_the_rest() -> None:
    epochs = [1.0 * epoch for epoch in range(1, 11)]
    points = [(epoch, 50 + epoch) for epoch in epochs]
    one = Learning("one", SHORT, points, points, [(0.0, 16), (2.5, 24), (9.0, 32)], 10.0)
    other = replace(one, validation=[*points[:8], (9.0, 0.0), (10.0, 0.0)])  # they part after the eighth
    for run in since_parting([one, other]):
        assert [epoch for epoch, _ in run.validation] == epochs[5:]
        assert run.sizes == [(6.0, 24), (9.0, 32)]
    early = replace(one, validation=[(1.0, 0.0), *points[1:]])
    for runs in ([one], [one, early], [one, replace(other, validation=[*points[:2], (3.0, 0.0)])]):
        assert since_parting(runs) == runs


def model_of(folder: Path, start: Path | None = None) -> Path:
    """Make the folder of a run a model's, too, which started from another."""
    info = {"init_from": {"fingerprint": load_model(start).fingerprint}} if start else {}
    save_model(folder, Network(TINY), ("a", "b", "c", "d"), info, "")
    return folder


def test_a_run_stands_behind_the_one_it_started_from(tmp_path: Path) -> None:
    rows: list[dict[str, float | int]] = [
        {"step": 40, "epoch": 5.0, "ce": 2.0},
        {"step": 40, "validation_accuracy": 0.5},
    ]
    first = model_of(recorded(tmp_path / "first", *rows))
    goes_on = replace(SHORT, init_from=str(first), resolutions=(8,), resolution_milestones=(1.0,))
    rows = [{"step": 8, "epoch": 1.0, "ce": 1.0}, {"step": 4, "validation_accuracy": 0.75}]
    second = model_of(recorded(tmp_path / "second", *rows, config=goes_on), first)
    run = read_learning("mine", second)
    assert run.validation == [(5.0, 50.0), (5.5, 75.0)]
    assert run.cross_entropy == [(5.0, 2.0), (6.0, 1.0)]
    assert (run.sizes, run.epochs, run.config) == ([(0.0, 6), (2.0, 8)], 6.0, goes_on)
    smaller = replace(goes_on, resolutions=(6,), init_from=str(second))
    third = model_of(recorded(tmp_path / "third", {"step": 8, "epoch": 1.0}, config=smaller), second)
    assert read_learning("mine", third).sizes == [(0.0, 6), (2.0, 8), (6.0, 6)]
    model_of(first)
    assert read_learning("mine", second).validation == [(0.5, 75.0)], "another model of that name is not its beginning"


def test_a_run_that_was_stopped_had_no_sizes_after_that(tmp_path: Path) -> None:
    first = model_of(recorded(tmp_path / "first", {"step": 8, "epoch": 1.0}))
    config = replace(SHORT, init_from=str(first), resolutions=(8,), resolution_milestones=(1.0,))
    second = model_of(recorded(tmp_path / "second", {"step": 8, "epoch": 1.0}, config=config), first)
    assert read_learning("mine", second).sizes == [(0.0, 6), (1.0, 8)]


def test_smoothing_is_the_mean_of_neighbours() -> None:
    points = [(float(x), float(x % 2)) for x in range(41)]
    assert smoothed(points) == [*((x + 0.5, 0.5) for x in range(0, 40, 2)), (40.0, 0.0)]
    assert len(smoothed(points * 40)) == 41 * 40 / 8
    assert smoothed(points[:7]) == points[:7], "a short run has few points, and all are shown"


def test_a_record_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(TtapsError, match="has no step in it"):
        read_learning("mine", recorded(tmp_path / "new", {"step": 1, "validation_accuracy": 0.1}))
    (tmp_path / "new" / METRICS).unlink()
    with pytest.raises(TtapsError, match=r"metrics\.jsonl cannot be read"):
        read_learning("mine", tmp_path / "new")


def test_info_draws_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "cifar10", "cifar10", "--figure", str(tmp_path / "both.svg"), "--json"]) == 0
    assert [facts["name"] for facts in json.loads(capsys.readouterr().out)] == ["cifar10", "cifar10"]
    assert "validation accuracy" in (tmp_path / "both.svg").read_text()
    assert main(["info", "--figure", str(tmp_path / "none.svg")]) == 2
    assert main(["info", "cifar10", "--figure", str(tmp_path / "curve.txt")]) == 2
