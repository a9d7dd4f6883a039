"""``ttaps.evaluate`` and ``ttaps.train``: what they take and return, and that the commands do the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ttaps
from helpers.other_nets import made, some_images
from helpers.small_model import write_image, write_model
from ttaps.cli import main
from ttaps.data.images import ImageSet
from ttaps.errors import TtapsError, UsageError
from ttaps.model import as_network
from ttaps.model.checkpoint import save_model

METHODS = ["source", "memo[num_views=4]"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "small")


def outcome(rows: Any) -> Any:
    """What rows say, but for the time it took."""
    return rows.drop(columns="seconds").sort_values(["spec", "corruption", "image"], ignore_index=True)


def test_python_and_the_command_store_the_same(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"corruptions": ["fog", "snow"], "images_per_corruption": 3}
    found = ttaps.evaluate(model, "sample", METHODS, **settings)
    arguments = ["--corruptions", "fog,snow", "--limit", "3", "--methods", ",".join(METHODS), "--out", str(tmp_path)]
    assert main(["evaluate", str(model), *arguments]) == 0
    assert str(found) == capsys.readouterr().out.rstrip("\n")
    assert main(["evaluate", str(model), *arguments, "--json"]) == 0
    printed, own = json.loads(capsys.readouterr().out), json.loads(json.dumps(found.to_dict()))
    assert (printed["tables"], printed["stored"]) == (own["tables"], 12)
    monkeypatch.setattr("ttaps.evaluation.run.ExperimentRun.adapt", None)  # nothing is computed again
    again = ttaps.evaluate(model, "sample", METHODS, out=tmp_path, **settings)
    assert outcome(again.to_pandas()).equals(outcome(found.to_pandas()))


def test_an_evaluation_is_a_table_rows_and_a_report(model: Path, tmp_path: Path) -> None:
    found = ttaps.evaluate(model, "sample", "source,augment[num_views=2]", corruptions="fog", images_per_corruption=2)
    assert repr(found).startswith("Evaluation(small on sample: source, augment[num_views=2]; 4 results in ")
    assert list(found.table["corruption"]) == ["fog", "Avg."] * 2
    rows = found.to_pandas()
    assert len(rows) == 4
    assert set(rows["label_name"]) <= set(ttaps.load(model).classes)
    assert list(found.table["after"])[::2] == [
        100 * part["correct_after"].mean() for _, part in rows.groupby("spec", sort=False)
    ]
    found.report(html=tmp_path / "report.html", figures=tmp_path / "figures")
    assert "augment[num_views=2]" in (tmp_path / "report.html").read_text()
    assert list((tmp_path / "figures").glob("*.png"))


def test_without_out_the_results_go_with_the_object(model: Path) -> None:
    found = ttaps.evaluate(model, "sample", "source", corruptions="fog", images_per_corruption=1)
    folder = found.folder
    assert folder.is_dir()
    del found
    assert not folder.exists()


def test_an_own_module_on_arrays_is_what_adapt_says_of_it() -> None:
    module, images = made("preact"), some_images(6)
    labels = np.array([0, 1, 2, 3, 0, 1])
    ways: dict[str, Any] = {
        "tensors": (images, torch.from_numpy(labels)),
        "lists": ([image.numpy() for image in images], labels.tolist()),
        "floats": (images / 255, labels),
        "a set": ImageSet("images", images.numpy(), labels, ("0", "1", "2", "3")),
    }
    before = ttaps.adapt(module, images, "source").probabilities
    for data in ways.values():
        rows = ttaps.evaluate(module, data, METHODS, size=8).to_pandas()
        source = rows[rows["spec"] == "source"].sort_values("image")
        assert source["before"].tolist() == before.argmax(1).tolist()
        assert source["label"].tolist() == labels.tolist()
    named = ttaps.evaluate(module, (images, ["a", "b", "c", "d", "a", "b"]), "source", classes=("d", "c", "b", "a"))
    assert named.to_pandas().sort_values("image")["label"].tolist() == (3 - labels).tolist()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"data": (some_images(2), [0, 1, 2])}, r"labels are int64 \(3,\), expected int64 \(2,\)"),
        ({"data": (some_images(2), [0, 9])}, "labels run from 0 to 9, expected 0 to 3"),
        ({"data": (some_images(2), [0.5, 1.0])}, "Labels are class numbers or names"),
        ({"data": (some_images(2), ["0", "cat"])}, "has 2 classes"),
        ({"data": some_images(2), "size": 8}, "not Tensor"),
        ({"data": "sample"}, "input size, such as"),
        ({"data": (some_images(2), [0, 1]), "corruptions": "fogg"}, "did you mean 'fog'"),
        ({"data": (some_images(2), [0, 1]), "severities": 3}, "severities need corruptions"),
        ({"data": (some_images(2), [0, 1]), "methods": []}, "names no method"),
        ({"data": (some_images(2), [0, 1]), "methods": "ttaps"}, "needs"),
        ({"data": (some_images(2), [0, 1]), "shard": "3/2"}, "no shard 3 of 2"),
    ],
)
def test_wrong_arguments_get_a_sentence(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(TtapsError, match=words):
        ttaps.evaluate(made("preact"), **{"methods": "source", **arguments})
    with pytest.raises(UsageError, match="not int"):
        ttaps.evaluate(3, "sample")  # type: ignore[arg-type]


def test_weights_that_are_not_numbers_are_not_blamed_on_the_steps(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = ttaps.load(model)
    with torch.no_grad():
        broken.network.get_parameter("backbone.stem.0.weight")[0] = float("nan")
    save_model(tmp_path / "broken", as_network(broken.network), broken.classes, {"objective": "jt"}, "")
    image_file = write_image(tmp_path / "a.png")
    for command in (
        ["adapt", str(tmp_path / "broken"), str(image_file)],
        ["evaluate", str(tmp_path / "broken"), "--limit", "1"],
    ):
        assert main([*command, *(["--out", str(tmp_path / "rows")] if command[0] == "evaluate" else [])]) == 1
        shown = capsys.readouterr().err
        assert "Model 'broken' predicts NaN before any adaptation" in shown
        assert "--lr" not in shown
