"""The results folder over HTTP, the gallery, and what there is to choose from."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import ttaps
from serve.conftest import Served, wait_until
from ttaps.adaptation.spec import parse_method
from ttaps.data import CORRUPTIONS, EXTRA_CORRUPTIONS
from ttaps.data.sample import SAMPLE_CORRUPTIONS, read_sample
from ttaps.evaluation.benchmark import open_benchmark
from ttaps.evaluation.frame import load_rows
from ttaps.evaluation.run import evaluate
from ttaps.serve.layout import affinities, layout
from ttaps.serve.methods import settings_schema
from ttaps.serve.results import ResultsFolder

SPEC = "ttaps[steps=1,lr=30,num_pairs=2]"


@pytest.fixture(scope="module")
def with_results(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service with the results of ten embedded images under two corruptions."""
    folder = tmp_path_factory.mktemp("results")
    data = open_benchmark("sample", corruptions=("fog", "snow"))
    evaluate(ttaps.load(model_folder), data, [parse_method(SPEC)], folder=folder, plan=data.plan(10))
    with Served(model_folder, results=ResultsFolder(folder)) as made:
        yield made


def folder_of(served: Served) -> Path:
    return Path(served.client.get("/api/results").json()["folder"])


def test_the_summary_counts_what_is_stored(with_results: Served) -> None:
    found = with_results.client.get("/api/results").json()
    rows = load_rows([folder_of(with_results)])
    (experiment,) = found["experiments"]
    assert (experiment["spec"], experiment["n"], experiment["data"]) == (SPEC, 20, "sample")
    assert experiment["accuracy_after"] == pytest.approx(100 * rows["correct_after"].mean())
    assert [(line["corruption"], line["n"]) for line in found["table"]] == [("fog", 10), ("snow", 10)]
    assert sum(line["fixed"] for line in found["table"]) == (rows["correct_after"] > rows["correct_before"]).sum()


def test_rows_have_names_and_can_be_filtered(with_results: Served) -> None:
    def rows(**wanted: Any) -> dict[str, Any]:
        return dict(with_results.client.get("/api/results/rows", params=wanted).json())

    every = rows(limit=500)
    assert every["total"] == len(every["rows"]) == 20
    assert {row["label"] for row in every["rows"]} <= set(read_sample().classes)
    counts = {name: rows(outcome=name)["total"] for name in ("fixed", "broken", "changed", "unchanged")}
    assert sum(counts.values()) == 20
    fog = rows(corruption="fog", severity=5, offset=8)
    assert (fog["total"], len(fog["rows"])) == (10, 2)
    assert all(row["has_image"] for row in fog["rows"])
    assert with_results.client.get("/api/results/rows?limit=501").status_code == 422


def test_an_image_adapted_to_live_is_what_is_stored(with_results: Served, capsys: pytest.CaptureFixture[str]) -> None:
    stored = load_rows([folder_of(with_results)])
    for row in with_results.client.get("/api/results/rows?limit=3").json()["rows"]:
        wanted = {name: row[name] for name in ("experiment", "corruption", "severity", "image")}
        shown = with_results.client.get("/api/results/image", params=wanted).json()
        pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(shown["image"])))).transpose(2, 0, 1)
        assert np.array_equal(pixels, read_sample(row["corruption"]).images[row["image"]])
        answer = with_results.adapt(result=wanted, method=SPEC)
        own = stored[(stored["corruption"] == row["corruption"]) & (stored["image"] == row["image"])].iloc[0]
        assert answer["probability"] == own["confidence_after"]
        assert answer["probability_before"] == own["confidence_before"]
        assert (answer["label"], answer["outcome"]) == (row["after"], row["outcome"])
        assert answer["command"].startswith(f"ttaps evaluate {with_results.model} --data sample --corruptions")
        assert len(answer["python"].splitlines()) <= 6
        exec(answer["python"])
        assert capsys.readouterr().out == f"{torch.tensor([answer['trace']])}\n"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"experiment": 99}, "There is no experiment 99"),
        ({"image": 200}, "sample has 200 images, there is none with number 200."),
        ({"corruption": "../fog"}, "sample has no corruption '../fog'"),
        ({"severity": 3}, "sample has no severity 3"),
    ],
)
def test_images_that_do_not_exist_are_refused(with_results: Served, changed: dict[str, Any], words: str) -> None:
    wanted = {"experiment": 1, "corruption": "fog", "severity": 5, "image": 0, **changed}
    answer = with_results.client.get("/api/results/image", params=wanted)
    assert (answer.status_code, answer.json()["detail"].startswith(words)) == (422, True)


def test_the_gallery_is_the_demo_and_is_kept(served: Served) -> None:
    events = served.events("/api/gallery?method=source&corruption=fog")
    tiles = [data for name, data in events if name == "tile"]
    assert [events[0], events[-1][0]] == [("start", {"total": 200, "corruptions": ["fog"], "columns": 200}), "done"]
    assert [tile["id"] for tile in tiles] == list(range(200))
    single = served.adapt(sample=199, corruption="fog", method="source")
    assert (tiles[199]["label_after"], tiles[199]["probability_after"]) == (single["label"], single["probability"])
    assert served.events("/api/gallery?method=source&corruption=fog") == events
    assert served.events("/api/gallery?method=source")[0][1]["corruptions"] == list(SAMPLE_CORRUPTIONS)
    wait_until(lambda: served.service.galleries == 0)


def test_what_there_is_to_choose_from(served: Served) -> None:
    get = served.client.get
    assert {one["name"] for one in get("/api/corruptions").json()} == {*CORRUPTIONS, *EXTRA_CORRUPTIONS}
    assert [one["id"] for one in get("/api/samples").json()] == list(range(200))
    image = np.asarray(Image.open(io.BytesIO(get("/api/samples/17.png").content)))
    assert np.array_equal(image.transpose(2, 0, 1), read_sample().images[17])
    model = get("/api/model").json()
    assert (model["name"], model["default_method"], model["num_prototypes"]) == ("small", "ttaps:tuned", 12)
    assert get("/health").json()["status"] == "ok"


def test_the_panel_says_what_the_help_says(served: Served) -> None:
    (own,) = [one for one in served.client.get("/api/methods").json() if one["name"] == "ttaps"]
    steps = own["schema"]["properties"]["steps"]
    assert steps == {
        "title": "steps",
        "description": "P, gradient steps per image.",
        "type": "integer",
        "default": 10,
        "minimum": 0,
        "maximum": 100,
    }
    scale = own["schema"]["properties"]["views"]["properties"]["scale"]
    assert (scale["items"], scale["maxItems"], scale["default"]) == ({"type": "number"}, 2, [0.14, 1.0])
    assert own["preset_settings"]["tuned"]["views.scale"] == [0.7, 1.0]
    assert settings_schema(parse_method("ttaps:tuned"))["properties"]["steps"]["default"] == 2
    assert all(part["description"] for part in own["schema"]["properties"].values())


def test_the_map_is_always_the_same_and_keeps_neighbours() -> None:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(3, 8)).repeat(10, axis=0) + 0.1 * rng.normal(size=(30, 8))
    vectors = centres / np.linalg.norm(centres, axis=1, keepdims=True)
    points = layout(vectors)
    assert np.array_equal(points, layout(vectors))
    assert (points.min(), points.max()) == (0, 1)
    apart = np.linalg.norm(points[:, None] - points, axis=-1) + np.diag(np.full(30, np.inf))
    assert np.array_equal(apart.argmin(1) // 10, np.arange(30) // 10)
    joint = affinities(np.maximum(1 - vectors @ vectors.T, 0))
    assert joint.sum() == pytest.approx(1)
    assert np.allclose(joint, joint.T)
