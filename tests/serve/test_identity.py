"""The service gives the numbers of ttaps.adapt, bit for bit, whatever else runs."""

from __future__ import annotations

import base64
import contextlib
import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import ttaps
from serve.conftest import Served
from ttaps.adaptation import METHODS, supported_methods
from ttaps.adaptation.spec import parse_method
from ttaps.data.sample import SAMPLE_CORRUPTIONS, read_sample
from ttaps.model import as_network
from ttaps.serve.session import Session

QUICK = "ttaps[steps=2,num_pairs=2]"
TENTS = ("tent[steps=2]", "eata", "sar[steps=2]", "cotta[steps=2,num_views=3]")
SPECS = ("source", "augment[num_views=3]", "t3a", "lame", *TENTS, "memo[steps=2,num_views=3]", QUICK, "ttaps:tuned")


def trace_of(answer: dict[str, Any]) -> torch.Tensor:
    return torch.tensor(answer["trace"], dtype=torch.float32)


def as_png(pixels: Any) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def test_every_supported_method_is_tried(served: Served) -> None:
    model = ttaps.load(served.model)
    assert {spec.split("[")[0].split(":")[0] for spec in SPECS} == set(
        supported_methods(model.network, model.objective)
    )
    assert {entry["name"] for entry in served.client.get("/api/methods").json()} == set(METHODS)


@pytest.mark.parametrize("spec", SPECS)
def test_a_sample_equals_the_library(served: Served, spec: str) -> None:
    answer = served.adapt(sample=7, corruption="fog", severity=5, method=spec, seed=3)
    assert answer["true_label"] == "horse"
    shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(answer["image"]))))
    result = ttaps.adapt(ttaps.load(served.model), shown, spec, seed=3)
    assert torch.equal(trace_of(answer), result.trace)
    assert (answer["label"], answer["adapted"]) == (result.label, result.adapted)
    steps = len(result.trace)
    assert len(answer["losses"]) == len(answer["path"]) == len(answer["nearest"]) == steps


@pytest.mark.parametrize("corruption", SAMPLE_CORRUPTIONS)
def test_a_damaged_sample_is_the_embedded_one(served: Served, corruption: str) -> None:
    answer = served.client.post("/api/corrupt", json={"sample": 11, "corruption": corruption}).json()
    shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(answer["image"]))))
    assert np.array_equal(shown.transpose(2, 0, 1), read_sample(corruption).images[11])
    assert answer["label"] == "automobile"


def test_an_upload_equals_the_library_as_json_and_as_form(served: Served) -> None:
    file = as_png(np.random.default_rng(0).integers(0, 256, (50, 40, 3), dtype=np.uint8))
    wanted = {"method": QUICK, "seed": 1, "label": "cat"}
    as_json = served.adapt(image=base64.b64encode(file).decode(), **wanted)
    as_url = served.adapt(image="data:image/png;base64," + base64.b64encode(file).decode(), **wanted)
    as_form = served.client.post("/api/adapt", data=wanted, files={"image": ("any.png", file)}).json()
    result = ttaps.adapt(ttaps.load(served.model), Image.open(io.BytesIO(file)), QUICK, seed=1)
    for answer in (as_json, as_url, as_form):
        assert torch.equal(trace_of(answer), result.trace)
        assert answer["true_label"] == "cat"


def test_a_batch_equals_single_images_and_keeps_failures_in_place(served: Served) -> None:
    subjects: list[dict[str, Any]] = [
        {"sample": 1},
        {"sample": 2, "corruption": "snow", "seed": 5},
        {"sample": 999},
        {"image": "no"},
    ]
    answer = served.client.post("/api/batch", json={"subjects": subjects, "method": QUICK, "seed": 2}).json()["results"]
    single = [served.adapt(method=QUICK, **{"seed": 2, **subject}) for subject in subjects[:2]]
    assert [one["trace"] for one in answer[:2]] == [one["trace"] for one in single]
    assert [one["problem"]["status"] for one in answer[2:]] == [422, 422]
    assert answer[2]["problem"]["detail"] == "There is no embedded image 999: they are 0 to 199."


@pytest.mark.parametrize("spec", SPECS)
def test_events_tell_every_step_of_the_answer(served: Served, spec: str) -> None:
    wanted = {"sample": 3, "corruption": "glass_blur", "method": spec}
    events = served.events("/api/adapt/stream", "POST", json=wanted)
    names = [name for name, _ in events]
    steps = [data for name, data in events if name == "step"]
    answer = served.adapt(**wanted)
    done = events[-1][1]
    assert (names[0], names[-1]) == ("start", "done")
    assert {**done, "seconds": 0} == {**answer, "seconds": 0}
    assert [step["step"] for step in steps] == list(range(len(answer["trace"])))
    assert [step["probabilities"] for step in steps] == answer["trace"]
    assert [step["loss"] for step in steps] == answer["losses"]
    assert [step["point"] for step in steps] == answer["path"]
    assert events[0][1]["steps"] == parse_method(spec).steps
    if spec == QUICK:
        assert len(dict(events)["views"]["views"]) == 8
        assert answer["losses"][0] is None
        assert None not in answer["losses"][1:]


def test_z_is_where_the_adapted_network_puts_the_image(served: Served) -> None:
    """No step: z is the source network's, and the point is the mean of the prototypes' places weighted by softmax(scores / 0.05)."""
    network = as_network(ttaps.load(served.model).network)
    answer = served.adapt(sample=0, method="source")
    with torch.no_grad():
        scores = network.scores(network.project(torch.from_numpy(read_sample().images[:1]))).double()
    places = [(one["x"], one["y"]) for one in served.client.get("/api/map").json()["prototypes"]]
    x, y = ((scores / 0.05).softmax(-1) @ torch.tensor(places, dtype=torch.float64))[0].tolist()
    assert answer["path"] == [{"x": pytest.approx(x, abs=1e-6), "y": pytest.approx(y, abs=1e-6)}]
    assert answer["nearest"] == [scores[0].argsort(descending=True)[:8].tolist()]


def test_many_at_once_are_each_what_they_are_alone(served: Served) -> None:
    subjects = [{"sample": number, "method": spec, "seed": number} for number in range(4) for spec in SPECS]
    alone = [served.adapt(**wanted)["trace"] for wanted in subjects]

    def patiently(wanted: dict[str, Any]) -> Any:
        while (answer := served.client.post("/api/adapt", json=wanted)).status_code == 429:
            pass
        return answer.json()["trace"]

    with ThreadPoolExecutor(8) as clients:
        together = list(clients.map(patiently, subjects))
    assert together == alone


def test_the_python_shown_gives_the_same(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    upload = base64.b64encode(as_png(read_sample().images[5].transpose(1, 2, 0))).decode()
    for subject in ({"sample": 5}, {"sample": 5, "corruption": "snow", "severity": 3}, {"image": upload}):
        answer = served.adapt(**subject, method=QUICK, seed=4)
        (tmp_path / "image.png").write_bytes(base64.b64decode(answer["image"]))
        lines = answer["python"].splitlines()
        assert len(lines) <= 6
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(answer["python"])
        result = ttaps.adapt(ttaps.load(served.model), tmp_path / "image.png", QUICK, seed=4)
        assert printed.getvalue().strip() == repr(result)
        assert torch.equal(trace_of(answer), result.trace)
        assert answer["command"].split()[:4] == ["ttaps", "adapt", str(served.model), "image.png"]


def test_the_page_starts_with_an_image_that_adaptation_fixes() -> None:
    session = Session("cifar10")
    start = session.start
    model, damaged = ttaps.load("cifar10"), read_sample(start["corruption"])
    method = parse_method(session.default_method, session.page_settings, model.presets)
    found = ttaps.adapt(model, damaged.images[start["sample"]], method)
    truth = damaged.classes[damaged.labels[start["sample"]]]
    assert found.label == truth != model.classes[int(found.before.argmax())]
