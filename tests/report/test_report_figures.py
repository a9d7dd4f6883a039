"""The report's figures: what is drawn is what the rows say, and what cannot be drawn is noted."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import torch

from helpers.small_evaluation import CLASSES, small_benchmark, small_model
from helpers.small_model import write_image
from helpers.small_results import FOG_SNOW, fill, only_table
from ttaps.data.sample import read_sample
from ttaps.errors import DataError
from ttaps.evaluation.benchmark import open_benchmark
from ttaps.evaluation.run import projections_file, write_projections
from ttaps.evaluation.statistics import AVERAGE, STATISTICS, calibration_error
from ttaps.model import as_network
from ttaps.report.columns import load_results
from ttaps.report.figures.charts import (
    by_prototypes,
    calibration,
    read_projections,
    step_changes,
    to_plane,
)
from ttaps.report.figures.images import find_flips, spread
from ttaps.report.figures.style import class_colors, legend_label, shade
from ttaps.report.page import ReportFigure, draw_all
from ttaps.report.tables import make_tables


def draw_folder(folder: Path, *others: Path) -> tuple[list[ReportFigure], list[str]]:
    results = load_results([folder, *others])
    return draw_all(results, make_tables(results), folder)


def test_shades_are_mixed_with_white_and_black() -> None:
    assert [shade("#0080ff", amount) for amount in (0, 1, -1, 0.5, -0.5)] == [
        *("#0080ff", "#ffffff", "#000000", "#80c0ff", "#004080")
    ]


def test_long_labels_are_broken_after_commas() -> None:
    spec = "ttaps:tuned[steps=6,lr=1,confidence_threshold=1,views.scale=[0.5,1],views.blur_p=0.5]"
    lines = legend_label(spec).split("\n")
    assert "".join(lines) == spec
    assert [line[-1] for line in lines] == [",", "]"]
    assert max(map(len, lines)) <= 62
    assert legend_label(f"{spec}\n(jt-cifar10)").split("\n") == [*lines, "(jt-cifar10)"]


def test_steps_begin_at_the_source_and_end_at_the_table(tmp_path: Path) -> None:
    fill(tmp_path, {"fog": ["wwr", "wrr", "rrr", "rww"], "snow": ["rrr", "www", "wrw", "rrr"]})
    fill(tmp_path, {"fog": ["www"] * 4}, "memo")
    results = load_results([tmp_path])
    table: Any = make_tables(results)[0]
    (column,) = (column for column in table.columns if column.method == "ttaps")
    changes: Any = step_changes(column.at(5), results.traces)
    assert changes["after"].tolist() == [50.0, 62.5, 62.5]
    assert changes.loc[2, STATISTICS].tolist() == table.numbers.loc[("ttaps", AVERAGE), STATISTICS].tolist()
    assert changes.loc[0, ["change", "change_low", "change_high"]].tolist() == [0, 0, 0]


def test_bands_are_the_deviation_over_seeds_where_there_are_several(tmp_path: Path) -> None:
    fill(tmp_path, {"fog": ["wwr", "wrr", "rrr", "rww"]}, training_seed=0)  # 2, 2 and 3 of 4 are right
    fill(tmp_path, {"fog": ["www", "wwr", "rrr", "wwr"]}, training_seed=1)  # 1, 1 and 3
    results = load_results([tmp_path])
    (column,) = make_tables(results)[0].columns
    changes: Any = step_changes(column.at(5), results.traces)
    deviation = 25 / np.sqrt(2)  # of 50 and 25
    assert changes["after"].tolist() == [37.5, 37.5, 75]
    assert changes["after_high"].tolist() == pytest.approx([37.5 + deviation, 37.5 + deviation, 75])
    assert changes["change_low"].tolist() == pytest.approx([0, 0, 37.5 - deviation])


def test_steps_of_another_data_set_are_not_mixed_in(tmp_path: Path) -> None:
    fill(tmp_path, {"fog": ["wwr", "wrr", "rrr", "rrr"]})
    fill(tmp_path, {"fog": ["www", "rww", "rww", "rww"]}, data="sample", digest="d2")
    results = load_results([tmp_path])
    found = [step_changes(table.columns[0].at(5), results.traces) for table in make_tables(results)]
    assert [changes["after"].tolist() for changes in found] == [[50, 75, 100], [75, 0, 0]]
    assert {n for changes in found for n in changes["n"]} == {4}


def test_one_step_has_no_place_over_steps(tmp_path: Path) -> None:
    """Before and after are what bars show; the mean over views of ``augment`` is no gradient step at all."""
    fill(tmp_path, {"fog": ["wr", "rr"]}, "augment")
    figures, _ = draw_folder(tmp_path)
    assert figures
    assert not any("steps" in figure.name for figure in figures)
    fill(tmp_path, {"fog": ["wwr", "rrr"]})
    assert any(figure.name == "cifar10-c-5-steps" for figure in draw_folder(tmp_path)[0])


def test_more_columns_than_can_be_told_apart_are_not_drawn(tmp_path: Path) -> None:
    for number in range(13):
        fill(tmp_path, {"fog": ["wr"]}, lr=1.0 + number)
    figures, notes = draw_folder(tmp_path)
    assert figures == []
    assert notes == ["No figures of each of 13 columns on cifar10-c, severity 5: more than 12 are too many."]
    fill(tmp_path, {"fog": ["wwr"]})  # the only one over several steps
    assert [figure.name for figure in draw_folder(tmp_path)[0]] == ["cifar10-c-5-steps"]


def test_models_are_grouped_by_k_where_nothing_else_differs(tmp_path: Path) -> None:
    for prototypes in (300, 30):
        for seed in (0, 1):
            fill(tmp_path, FOG_SNOW, prototypes=prototypes, training_seed=seed)
    fill(tmp_path, FOG_SNOW, objective="jt")
    columns = only_table(tmp_path).columns
    (group,) = by_prototypes(columns)
    assert [column.num_prototypes for column in group] == [30, 300]
    assert by_prototypes(columns[:1]) == []


def test_what_keeps_weights_is_not_drawn_over_k_with_what_forgets_them(tmp_path: Path) -> None:
    fill(tmp_path, FOG_SNOW, "tent", prototypes=30)
    fill(tmp_path, FOG_SNOW, "tent", prototypes=300)
    fill(tmp_path, FOG_SNOW, "tent", prototypes=300, online=True)
    (group,) = by_prototypes(only_table(tmp_path).columns)
    assert [column.protocol for column in group] == ["episodic", "episodic"]


def test_calibration_is_counted_in_bins() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.random(500).astype(np.float32)
    right = rng.random(500) < confidence**2
    found = calibration(pd.Series(confidence), pd.Series(right))
    gap = 0.0
    for k in range(15):
        inside = (confidence > k / 15) & (confidence <= (k + 1) / 15)
        gap += abs(float(right[inside].sum()) - float(confidence[inside].sum(dtype=np.float64)))
        assert found["count"][k] == inside.sum()
    assert calibration_error(confidence, right) == pytest.approx(100 * gap / 500)
    ones, zeros = (pd.Series(np.full(4, value, np.float32)) for value in (1, 0))
    assert calibration_error(ones, ones > 0) == 0
    assert calibration(zeros, zeros > 0)["count"][0] == 4


def test_calibration_is_of_both_ends(tmp_path: Path) -> None:
    fill(tmp_path, {"fog": ["wr", "wr", "wr", "rr"]}, confidence=0.75)
    rows = load_results([tmp_path]).rows
    errors = [calibration_error(rows[f"confidence_{end}"], rows[f"correct_{end}"]) for end in ("before", "after")]
    assert errors == [50.0, 25.0]


def test_a_prediction_that_is_none_has_no_confidence(tmp_path: Path) -> None:
    fill(tmp_path, {"fog": ["ww"]}, confidence=float("nan"))
    rows = load_results([tmp_path]).rows
    assert rows[["confidence_before", "confidence_after"]].to_numpy().tolist() == [[0.0, 0.0]]


def test_flips_are_found_with_their_images(tmp_path: Path) -> None:
    data = open_benchmark("sample")
    traces = {"fog": ["wr", "rr", "rw"], "snow": ["ww", "wr"]}
    fill(tmp_path, traces, data="sample", digest=data.digest)
    assert [int(label) for label in data.labels[:3]] == [0, 1, 2]  # as the rows made by hand have them
    tiles, problem = find_flips((found := load_results([tmp_path])).rows, found, None, {})
    assert problem == ""
    assert [(tile.corruption, tile.after, tile.after == tile.truth) for tile in tiles] == [
        *(("fog", "airplane", True), ("snow", "automobile", True), ("fog", "cat", False))
    ]
    assert np.array_equal(tiles[1].image, read_sample("snow").images[1])


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"data": "sample", "digest": "other"}, "not the data set"),
        ({"data": "my-folder"}, "cannot be read here"),
    ],
)
def test_images_that_are_not_there_are_said_to_be_missing(tmp_path: Path, options: dict[str, Any], word: str) -> None:
    fill(tmp_path, FOG_SNOW, **options)
    tiles, problem = find_flips((found := load_results([tmp_path])).rows, found, tmp_path, {})
    assert tiles == []
    assert word in problem


def test_why_images_are_missing_is_said_once(tmp_path: Path) -> None:
    fill(tmp_path, FOG_SNOW, data="my-folder")
    fill(tmp_path, FOG_SNOW, "memo", data="my-folder")
    (note,) = draw_folder(tmp_path)[1]
    assert note.startswith("No images of ttaps, memo on my-folder, severity 5: the images cannot be read here (")
    assert ".)" not in note


def test_images_of_a_model_with_other_classes_are_not_misnamed(tmp_path: Path) -> None:
    fill(tmp_path, {"fog": ["rr"] * 15 + ["wr"]}, data="sample", digest=open_benchmark("sample").digest)
    rows = (found := load_results([tmp_path])).rows
    assert "another order" in find_flips(rows.assign(label=rows["label"] + 1), found, None, {})[1]
    rows.loc[rows.index[-1], "before"] = 10  # sample has classes 0 to 9
    assert "only some of the model's classes" in find_flips(rows, found, None, {})[1]


def test_a_folder_is_opened_once_for_all_columns_at_the_size_of_its_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("cat", "dog"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        write_image(tmp_path / "pets" / name / "a.png")
    monkeypatch.chdir(tmp_path)
    own: dict[str, Any] = {"data": "pets", "digest": open_benchmark("pets", size=8).digest, "image_size": 8}
    for method in ("tent", "ttaps"):
        fill(tmp_path, {"clean": ["wr", "rr"]}, method, severity=0, **own)
    opened = Mock(side_effect=open_benchmark)
    monkeypatch.setattr("ttaps.evaluation.benchmark.open_benchmark", opened)
    figures, notes = draw_folder(tmp_path)
    assert notes == []
    assert sum("-flips-" in figure.name for figure in figures) == 2
    assert opened.call_count == 1


def test_images_come_from_all_corruptions_in_turn(tmp_path: Path) -> None:
    fill(tmp_path, {"fog": ["wr"] * 5, "snow": ["wr"] * 2})
    chosen = spread(load_results([tmp_path]).rows, 5)
    assert list(zip(chosen["corruption"], chosen["image"], strict=True)) == [
        *(("fog", 0), ("snow", 0), ("fog", 1), ("snow", 1), ("fog", 2))
    ]


def test_principal_components_keep_what_lies_in_a_plane(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "umap", None)
    rng = np.random.default_rng(0)
    plane = rng.normal(size=(30, 2))
    turned = plane @ np.linalg.qr(rng.normal(size=(8, 2)))[0].T + 3
    flat, way = to_plane(turned)
    assert way == "PCA"
    near, far = (np.linalg.norm(points[:, None] - points, axis=-1) for points in (plane, flat))
    assert np.allclose(near, far, atol=1e-9)


def test_projections_are_those_of_the_network(tmp_path: Path) -> None:
    model, data = small_model(), small_benchmark()
    write_projections(model, data, tmp_path, 4)
    assert list(tmp_path.rglob("*.npz")) == [projections_file(tmp_path, model, data)]
    arrays = read_projections(projections_file(tmp_path, model, data))
    items = list(data.plan())[:4]
    with torch.no_grad():
        expected = as_network(model.network).project(data.read(items)).numpy()
    assert np.allclose(arrays["z"], expected, atol=1e-6)
    assert arrays["labels"].tolist() == [int(data.labels[item.image]) for item in items]
    logits = as_network(model.network).classifier(as_network(model.network).prototypes)
    assert arrays["prototype_labels"].tolist() == logits.argmax(1).tolist()
    assert tuple(arrays["classes"]) == CLASSES


def test_every_models_projections_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "umap", None)
    fill(tmp_path, {"fog": ["r"]}, "source")
    model, data = small_model(), small_benchmark()
    for fingerprint in ("a1", "b2"):
        write_projections(replace(model, fingerprint=fingerprint), data, tmp_path, 20)
    figures, notes = draw_folder(tmp_path, tmp_path)
    assert [figure.name for figure in figures] == ["projections-small-small-a1", "projections-small-small-b2"]
    assert all("of 18 images" in figure.caption and "(PCA)" in figure.caption for figure in figures)
    assert ["nothing was adapted" in note for note in notes] == [True]


def test_damaged_projections_are_noted_and_the_rest_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut off anywhere, overwritten, or with labels missing."""
    monkeypatch.setitem(sys.modules, "umap", None)
    fill(tmp_path, FOG_SNOW)
    write_projections(small_model(), small_benchmark(), tmp_path, 4)
    (path,) = tmp_path.rglob("*.npz")
    whole, arrays = path.read_bytes(), read_projections(path)
    for content in (b"", b"no archive", whole[:10], whole[: len(whole) // 2], whole[:100] + b"?" * 100 + whole[200:]):
        path.write_bytes(content)
        with pytest.raises(DataError, match="is damaged or holds no projections"):
            read_projections(path)
    shorter: dict[str, Any] = arrays | {"labels": arrays["labels"][:-1]}
    np.savez(path, **shorter)
    figures, notes = draw_folder(tmp_path)
    assert [figure.name for figure in figures] == ["cifar10-c-5-bars-ttaps", "cifar10-c-5-reliability-ttaps"]
    assert f"No projection map: {path} is damaged" in notes[-1]


@pytest.mark.parametrize("classes", [2, 10, 100])
def test_every_class_has_its_own_color(classes: int) -> None:
    assert len(set(class_colors(classes))) == classes
