"""A model's own presets: read from its folder, used wherever the model is named, and never for other weights."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

import ttaps
from helpers.small_model import write_image, write_model
from ttaps.adaptation import Ttaps
from ttaps.adaptation.spec import method_spec, parse_method
from ttaps.adaptation.ttaps import nearest_distance
from ttaps.cli import main
from ttaps.config import read_toml, to_toml
from ttaps.evaluation.run import known_experiments
from ttaps.evaluation.store import Store
from ttaps.files import write_text
from ttaps.model import as_network

OWN = Ttaps(steps=1, num_pairs=2, lr=0.3)
QUANTILES = [0.0, 0.5, 2.0]


def with_presets(folder: Path, method: Ttaps = OWN) -> Path:
    """Write a model and presets for it, as ``ttaps tune`` does."""
    write_model(folder)
    presets = {"ttaps": {"tuned": method, "mine": replace(method, lr=0.1)}, "shift": {"quantiles": QUANTILES}}
    write_text(folder / "presets.toml", to_toml({"fingerprint": ttaps.load(folder).fingerprint, **presets}))
    return folder


def test_nested_tables_read_back(tmp_path: Path) -> None:
    path = with_presets(tmp_path / "model") / "presets.toml"
    assert read_toml(path)["ttaps"]["tuned"] == json.loads(json.dumps(asdict(OWN)))
    assert read_toml(path)["shift"] == {"quantiles": QUANTILES}


def test_adapt_and_evaluate_use_the_models_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, image_file = ttaps.load(with_presets(tmp_path / "model")), write_image(tmp_path / "image.png")
    found = ttaps.adapt(model, image_file)
    assert torch.equal(found.trace, ttaps.adapt(model, image_file, OWN).trace)
    assert not torch.equal(found.trace, ttaps.adapt(model, image_file, "ttaps:mine").trace)
    changed = ttaps.adapt(model, image_file, "ttaps:tuned[lr=0.2]").trace
    assert torch.equal(changed, ttaps.adapt(model, image_file, replace(OWN, lr=0.2)).trace)
    assert main(["adapt", "--seed", "0", str(tmp_path / "model"), str(image_file), "--json"]) == 0
    assert torch.allclose(torch.tensor(json.loads(capsys.readouterr().out)[0]["trace"]), found.trace)
    evaluation = ttaps.evaluate(model, methods="ttaps:tuned", corruptions="fog", images_per_corruption=2, seeds=1)
    assert list(evaluation.rows["spec"].unique()) == ["ttaps:tuned"]
    assert evaluation.rows["steps"].max() == 1


def test_rows_are_renamed_when_a_model_is_tuned_again(tmp_path: Path) -> None:
    """In one folder no two experiments of a model have the same spec, and each reads back, with the model, as what it was."""
    folder, out = tmp_path / "model", tmp_path / "out"
    for method in (OWN, replace(OWN, lr=0.7)):
        model = ttaps.load(with_presets(folder, method))
        ttaps.evaluate(model, methods="ttaps:tuned", corruptions="fog", images_per_corruption=1, out=out)
    with Store(out, write=False) as store:
        specs = [experiment.spec for experiment in known_experiments(store).values()]
        assert specs == [experiment.spec for experiment in store.experiments().values()]
    assert specs == ["ttaps:tuned[lr=0.3]", "ttaps:tuned"]
    assert [parse_method(spec, presets=model.presets).lr for spec in specs] == [0.3, 0.7]
    assert method_spec(parse_method("ttaps:tuned"), model.presets) != "ttaps:tuned"  # that is the model's here


def test_presets_of_other_weights_are_not_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = with_presets(tmp_path / "model")
    text = (folder / "presets.toml").read_text().replace(ttaps.load(folder).fingerprint, "0" * 12)
    write_text(folder / "presets.toml", text)
    assert ttaps.load(folder).presets == {}
    assert "other weights" in capsys.readouterr().err
    image_file = write_image(tmp_path / "image.png")
    assert main(["adapt", str(folder), str(image_file), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)[0]["trace"]) == parse_method("ttaps:tuned").steps + 1


def test_shift_is_the_share_of_validation_images_that_are_nearer(tmp_path: Path) -> None:
    model = ttaps.load(with_presets(tmp_path / "model"))
    images = torch.randint(0, 256, (3, 3, 32, 32), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    found = ttaps.adapt(model, images, "source")
    network = as_network(model.network)
    distances = nearest_distance(network.scores(network.project(images))).detach()
    want = [d if d < 0.5 else 0.5 + (d - 0.5) / 3 for d in distances.tolist()]  # a line through the three quantiles
    assert found.shift is not None
    assert torch.allclose(found.shift, torch.tensor(want), atol=1e-5)
    assert found[1].to_dict()["shift"] == pytest.approx(want[1], abs=1e-5)
    assert [float(one.shift) for one in found if one.shift is not None] == pytest.approx(want, abs=1e-5)
    bare = ttaps.adapt(ttaps.load(write_model(tmp_path / "bare")), images[0], "source")
    assert bare.shift is None
    assert "shift" not in bare.to_dict()
