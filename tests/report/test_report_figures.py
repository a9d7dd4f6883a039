"""The report's figures: what is drawn is what the rows say, and what cannot be drawn is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from helpers.small_evaluation import CLASSES, small_benchmark, small_model
from helpers.small_model import write_picture
from helpers.small_results import FOG_SNOW, fill, only_table
from ttaps.data.sample import read_sample
from ttaps.errors import DataError
from ttaps.evaluate import Plan, open_benchmark
from ttaps.evaluate.projections import projections_file, stored_files, write_projections
from ttaps.evaluate.summary import AVERAGE
from ttaps.report.curves import by_prototypes, step_lines
from ttaps.report.figures import draw_all
from ttaps.report.flips import find_flips, opener, spread
from ttaps.report.outcomes import read_runs
from ttaps.report.projection import class_colors, principal, read_projections
from ttaps.report.reliability import calibrate, calibration_of
from ttaps.report.style import shade
from ttaps.report.tables import make_tables


def test_shades_are_mixed_with_white_and_black() -> None:
    assert [shade("#0080ff", amount) for amount in (0, 1, -1, 0.5, -0.5)] == [
        *("#0080ff", "#ffffff", "#000000", "#80c0ff", "#004080")
    ]


def test_steps_begin_at_the_source_and_end_at_the_table(tmp_path: Path) -> None:
    fill(tmp_path, {"fog": ["wwr", "wrr", "rrr", "rww"], "snow": ["rrr", "www", "wrw", "rrr"]})
    table = only_table(tmp_path)
    column = table.ours[0].column
    assert column is not None
    lines = step_lines(column, 5)
    assert [line.after.percent for line in lines] == [50.0, 62.5, 62.5]
    last = table.ours[0].cells[AVERAGE].line
    assert last is not None
    assert (lines[-1].after, lines[-1].difference) == (last.after, last.difference)
    assert lines[0].difference.points == 0


def test_what_takes_no_step_has_no_place_over_steps(tmp_path: Path) -> None:
    fill(tmp_path, {"fog": ["wr", "rr"]}, "augment")
    drawings, _ = draw_all([only_table(tmp_path)], [])
    assert drawings
    assert not any("steps" in drawing.name for drawing in drawings)


def test_models_are_grouped_by_k_where_nothing_else_differs(tmp_path: Path) -> None:
    for prototypes in (300, 30):
        for seed in (0, 1):
            fill(tmp_path, FOG_SNOW, prototypes=prototypes, training_seed=seed)
    fill(tmp_path, FOG_SNOW, objective="jt")
    columns = [shown.column for shown in only_table(tmp_path).ours if shown.column]
    (group,) = by_prototypes(columns)
    assert [column.prototypes for column in group] == [30, 300]
    assert by_prototypes(columns[:1]) == []


def test_what_keeps_weights_is_not_drawn_over_k_with_what_forgets_them(tmp_path: Path) -> None:
    fill(tmp_path, FOG_SNOW, prototypes=30)
    fill(tmp_path, FOG_SNOW, prototypes=300)
    fill(tmp_path, FOG_SNOW, prototypes=300, protocol="online")
    (group,) = by_prototypes([shown.column for shown in only_table(tmp_path).ours if shown.column])
    assert [column.runs[0].experiment.protocol for column in group] == ["episodic", "episodic"]


def test_calibration_is_counted_in_bins() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.random(500).astype(np.float32)
    right = rng.random(500) < confidence**2
    found = calibrate(confidence, right, bins=10)
    gap = 0.0
    for k in range(10):
        inside = (confidence > np.float32(k) / 10) & (confidence <= (k + 1) / 10)
        gap += abs(float(right[inside].sum()) - float(confidence[inside].sum(dtype=np.float64)))
        assert found.count[k] == inside.sum()
    assert found.ece == pytest.approx(100 * gap / 500)
    assert calibrate(np.ones(4, np.float32), np.ones(4, bool)).ece == 0
    assert calibrate(np.zeros(4, np.float32), np.zeros(4, bool)).count[0] == 4


def test_calibration_of_a_column_takes_both_ends(tmp_path: Path) -> None:
    fill(tmp_path, {"fog": ["wr", "wr", "wr", "rr"]}, confidence=0.75)
    column = only_table(tmp_path).ours[0].column
    assert column is not None
    assert [calibration_of(column, 5, end).ece for end in (0, -1)] == [50.0, 25.0]


def test_a_prediction_that_is_none_has_no_confidence(tmp_path: Path) -> None:
    fill(tmp_path, {"fog": ["ww"]}, confidence=float("nan"))
    (run,) = read_runs([tmp_path])
    assert run.rows["confidence"].tolist() == [[0.0, 0.0]]


def test_flips_are_found_with_their_pictures(tmp_path: Path) -> None:
    data = open_benchmark("sample")
    traces = {"fog": ["wr", "rr", "rw"], "snow": ["ww", "wr"]}
    fill(tmp_path, traces, data="sample", digest=data.digest)
    (run,) = read_runs([tmp_path])
    assert [int(label) for label in data.labels[:3]] == [0, 1, 2]  # as the rows made by hand have them
    flips, problem = find_flips(run, 5, opener(None))
    assert problem == ""
    assert [(flip.corruption, flip.after, flip.fixed) for flip in flips] == [
        *(("fog", "airplane", True), ("snow", "automobile", True), ("fog", "cat", False))
    ]
    assert np.array_equal(flips[1].picture, read_sample("snow").images[1])


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"data": "sample", "digest": "other"}, "another data set"),
        ({"data": "my-folder"}, "cannot be read here"),
    ],
)
def test_pictures_that_are_not_there_are_said_to_be_missing(tmp_path: Path, options: dict[str, Any], word: str) -> None:
    fill(tmp_path, FOG_SNOW, **options)
    flips, problem = find_flips(read_runs([tmp_path])[0], 5, opener(tmp_path))
    assert flips == []
    assert word in problem


def test_pictures_of_a_model_with_other_classes_are_not_misnamed(tmp_path: Path) -> None:
    fill(tmp_path, {"fog": ["rr"] * 15 + ["wr"]}, data="sample", digest=open_benchmark("sample").digest)
    (run,) = read_runs([tmp_path])
    run.rows["label"] += 1
    assert "another order" in find_flips(run, 5, opener(None))[1]
    run.rows["label"] -= 1
    run.rows["predictions"][-1, 0] = 10  # sample has classes 0 to 9
    assert "only some of the model's classes" in find_flips(run, 5, opener(None))[1]


def test_a_folder_is_opened_once_for_all_columns_at_the_size_of_its_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("cat", "dog"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        write_picture(tmp_path / "pets" / name / "a.png")
    monkeypatch.chdir(tmp_path)
    for method in ("tent", "ttaps"):
        fill(
            tmp_path,
            {"clean": ["wr", "rr"]},
            method,
            data="pets",
            digest=open_benchmark("pets", size=8).digest,
            severity=0,
        )
    runs = read_runs([tmp_path])
    for run in runs:
        run.facts["model"]["image_size"] = 8
    opened = Mock(side_effect=open_benchmark)
    monkeypatch.setattr("ttaps.report.flips.open_benchmark", opened)
    drawings, notes = draw_all(make_tables(runs), [])
    assert notes == []
    assert sum("-flips-" in drawing.name for drawing in drawings) == 2
    assert opened.call_count == 1


def test_pictures_come_from_all_corruptions_in_turn(tmp_path: Path) -> None:
    fill(tmp_path, {"fog": ["wr"] * 5, "snow": ["wr"] * 2})
    chosen = spread(read_runs([tmp_path])[0].rows, 5)
    assert [(str(row["corruption"]), int(row["image"])) for row in chosen] == [
        *(("fog", 0), ("snow", 0), ("fog", 1), ("snow", 1), ("fog", 2))
    ]


def test_principal_components_keep_what_lies_in_a_plane() -> None:
    rng = np.random.default_rng(0)
    plane = rng.normal(size=(30, 2))
    turned = plane @ np.linalg.qr(rng.normal(size=(8, 2)))[0].T + 3
    flat = principal(turned)
    near, far = (np.linalg.norm(points[:, None] - points, axis=-1) for points in (plane, flat))
    assert np.allclose(near, far, atol=1e-9)


def test_projections_are_those_of_the_network(tmp_path: Path) -> None:
    model, data = small_model(), small_benchmark()
    write_projections(model, data, tmp_path, 4)
    assert stored_files(tmp_path) == [projections_file(tmp_path, model, data)]
    arrays = read_projections(stored_files(tmp_path)[0])
    items = list(Plan(data.labels, data.corruptions, data.severities))[:4]
    with torch.no_grad():
        expected = model.network.project(data.read(items)).numpy()
    assert np.allclose(arrays["z"], expected, atol=1e-6)
    assert arrays["labels"].tolist() == [int(data.labels[item.image]) for item in items]
    logits = model.network.classifier(model.network.prototypes)
    assert arrays["prototype_labels"].tolist() == logits.argmax(1).tolist()
    assert tuple(arrays["classes"]) == CLASSES


def test_every_models_projections_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ttaps.report.projection.umap_is_there", lambda: False)
    fill(tmp_path, {"fog": ["r"]}, "source")
    model, data = small_model(), small_benchmark()
    for fingerprint in ("a1", "b2"):
        write_projections(replace(model, fingerprint=fingerprint), data, tmp_path, 20)
    drawings, notes = draw_all([only_table(tmp_path)], [tmp_path, tmp_path])
    assert [drawing.name for drawing in drawings] == ["projections-small-small-a1", "projections-small-small-b2"]
    assert all("of 18 images" in drawing.caption and "(PCA)" in drawing.caption for drawing in drawings)
    assert ["nothing was adapted" in note for note in notes] == [True]


def test_damaged_projections_are_told_and_the_rest_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SplitNetwork off anywhere, overwritten, or with labels missing."""
    monkeypatch.setattr("ttaps.report.projection.umap_is_there", lambda: False)
    fill(tmp_path, FOG_SNOW)
    write_projections(small_model(), small_benchmark(), tmp_path, 4)
    (path,) = stored_files(tmp_path)
    whole, arrays = path.read_bytes(), read_projections(path)
    for content in (b"", b"no archive", whole[:10], whole[: len(whole) // 2], whole[:100] + b"?" * 100 + whole[200:]):
        path.write_bytes(content)
        with pytest.raises(DataError, match="is damaged or holds no projections"):
            read_projections(path)
    shorter: dict[str, Any] = arrays | {"labels": arrays["labels"][:-1]}
    np.savez(path, **shorter)
    drawings, notes = draw_all([only_table(tmp_path)], [tmp_path], tmp_path)
    assert len(drawings) == 3
    assert f"No map of projections: {path} is damaged" in notes[-1]


@pytest.mark.parametrize("classes", [2, 10, 100])
def test_every_class_has_its_own_color(classes: int) -> None:
    assert len(set(class_colors(classes))) == classes
