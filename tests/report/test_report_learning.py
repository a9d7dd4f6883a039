"""Learning curves: the points drawn are those that the run wrote down."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from helpers.small_training import SHORT, TINY
from ttaps.cli import main
from ttaps.cli.info import find_model
from ttaps.config import to_toml
from ttaps.errors import TtapsError
from ttaps.model import Network
from ttaps.model.checkpoint import load_model, save_model
from ttaps.report.figures.learning import METRICS, LearningCurve, learning_figure, read_curve, since_parting, smoothed
from ttaps.training.config import TrainConfig

WHOLE = replace(SHORT.schedule, resolutions=(8,), resolution_milestones=(1.0,))


def recorded(folder: Path, *rows: dict[str, float | int], config: TrainConfig = SHORT) -> Path:
    """Return a run folder with these rows of metrics."""
    folder.mkdir()
    (folder / "train.toml").write_text(to_toml(config))
    (folder / METRICS).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


def points(curve: LearningCurve, what: str) -> list[tuple[float, float]]:
    return list(curve.get(what).itertuples(index=False, name=None))


def test_points_are_the_rows(tmp_path: Path) -> None:
    rows: list[dict[str, float | int]] = [
        {"step": 4, "epoch": 0.5, "ce": 2.0, "loss": 2.0},
        {"step": 8, "validation_accuracy": 0.25},
        {"step": 8, "epoch": 1.0, "ce": 1.0, "loss": 6.0, "swav": 5.0},
        {"step": 12, "validation_accuracy": 0.75},
    ]
    curve = read_curve("mine", recorded(tmp_path / "run", *rows))
    assert points(curve, "validation") == [(1.0, 25.0), (1.5, 75.0)]
    assert points(curve, "cross_entropy") == [(0.5, 2.0), (1.0, 1.0)]
    assert curve.resolutions() == [(0.0, 6), (2.0, 8)], "0.4 of five epochs at six pixels"

    above, below = learning_figure([curve, replace(curve, name="again")]).axes
    for axes, what in ((above, "validation"), (below, "cross_entropy")):
        lines = [line for line in axes.lines if line.get_linestyle() != ":"]
        assert [list(zip(*line.get_data(), strict=True)) for line in lines] == [points(curve, what)] * 2
        assert lines[0].get_linestyle() != lines[1].get_linestyle(), "two runs of one kind are told apart"
        assert len(axes.lines) == 4, "with the two resolutions that all runs have"
    other = replace(curve, points=curve.points.replace({"pixels": {8: 7}}))
    assert len(learning_figure([curve, other]).axes[0].lines) == 2


def test_logs_whose_lr_was_the_factor_of_the_schedule_make_the_same_curve(tmp_path: Path) -> None:
    row: dict[str, float | int] = {"step": 4, "epoch": 0.5, "ce": 2.0, "loss": 2.0}
    old, new = ({**row, "lr": 1.0}, {**row, "lr": 0.1, "muon_lr": 0.05})
    curves = [read_curve("mine", recorded(tmp_path / name, one)) for name, one in (("old", old), ("new", new))]
    pd.testing.assert_frame_equal(curves[0].points, curves[1].points)


def test_a_common_beginning_is_cut_to_the_length_of_the_rest() -> None:
    epochs = [1.0 * epoch for epoch in range(1, 11)]
    seen = pd.DataFrame({"epoch": epochs, "validation": [50 + epoch for epoch in epochs]})
    pixels = pd.DataFrame({"epoch": [0.0, 2.5, 9.0], "pixels": [16, 24, 32]})

    def curve(changed: dict[float, float]) -> LearningCurve:
        own = seen.assign(validation=[changed.get(epoch, 50 + epoch) for epoch in epochs])
        return LearningCurve("one", "jt", pd.concat([pixels, own]), 10.0)

    one, other = curve({}), curve({9.0: 0.0, 10.0: 0.0})  # they part after the eighth
    for cut in since_parting([one, other]):
        assert [epoch for epoch, _ in points(cut, "validation")] == epochs[5:]
        assert cut.resolutions() == [(6.0, 24), (9.0, 32)]
    for curves in ([one], [one, curve({1.0: 0.0})], [one, curve(dict.fromkeys(epochs[2:], 0.0))]):
        assert since_parting(curves) == curves


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
    resumed = replace(SHORT, init_from=str(first), schedule=WHOLE)
    rows = [{"step": 8, "epoch": 1.0, "ce": 1.0}, {"step": 4, "validation_accuracy": 0.75}]
    second = model_of(recorded(tmp_path / "second", *rows, config=resumed), first)
    curve = read_curve("mine", second, find_model)
    assert points(curve, "validation") == [(5.0, 50.0), (5.5, 75.0)]
    assert points(curve, "cross_entropy") == [(5.0, 2.0), (6.0, 1.0)]
    assert (curve.resolutions(), curve.epochs) == ([(0.0, 6), (2.0, 8)], 6.0)
    smaller = replace(resumed, schedule=replace(WHOLE, resolutions=(6,)), init_from=str(second))
    third = model_of(recorded(tmp_path / "third", {"step": 8, "epoch": 1.0}, config=smaller), second)
    assert read_curve("mine", third, find_model).resolutions() == [(0.0, 6), (2.0, 8), (6.0, 6)]
    model_of(first)
    alone = read_curve("mine", second, find_model)
    assert points(alone, "validation") == [(0.5, 75.0)], "another model of that name is not its beginning"


def test_a_run_that_was_stopped_had_no_resolutions_after_that(tmp_path: Path) -> None:
    first = model_of(recorded(tmp_path / "first", {"step": 8, "epoch": 1.0}))
    config = replace(SHORT, init_from=str(first), schedule=WHOLE)
    second = model_of(recorded(tmp_path / "second", {"step": 8, "epoch": 1.0}, config=config), first)
    assert read_curve("mine", second, find_model).resolutions() == [(0.0, 6), (1.0, 8)]


def test_smoothing_is_the_mean_of_neighbors() -> None:
    frame = pd.DataFrame({"epoch": [float(x) for x in range(41)], "value": [float(x % 2) for x in range(41)]})
    means = list(smoothed(frame).itertuples(index=False, name=None))
    assert means == [*((x + 0.5, 0.5) for x in range(0, 40, 2)), (40.0, 0.0)]
    assert len(smoothed(pd.concat([frame] * 40))) == 41 * 40 / 8
    assert smoothed(frame[:7]).equals(frame[:7]), "a short run has few points, and all are shown"


def test_a_record_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TtapsError, match="has no step with its epoch"):
        read_curve("mine", recorded(tmp_path / "new", {"step": 1, "validation_accuracy": 0.1}))
    (tmp_path / "new" / METRICS).unlink()
    with pytest.raises(TtapsError, match=r"metrics\.jsonl cannot be read"):
        read_curve("mine", tmp_path / "new")


def test_info_draws_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "cifar10", "cifar10", "--figure", str(tmp_path / "both.svg"), "--json"]) == 0
    assert [facts["name"] for facts in json.loads(capsys.readouterr().out)] == ["cifar10", "cifar10"]
    assert (tmp_path / "both.svg").read_text().startswith("<?xml")
    assert main(["info", "--figure", str(tmp_path / "none.svg")]) == 2
    assert main(["info", "cifar10", "--figure", str(tmp_path / "curve.txt")]) == 2
