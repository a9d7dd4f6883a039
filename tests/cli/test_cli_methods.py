"""``ttaps methods`` and what ``ttaps info`` says of a model's methods."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.other_nets import some_images
from helpers.small_model import write_model
from helpers.small_training import TINY
from ttaps.adaptation import METHODS, Memo
from ttaps.adaptation.spec import parse_method
from ttaps.cli import main
from ttaps.cli.bench import COSTS, SOURCES, cost, fitting

ANYWHERE = ["source", "augment", "t3a", "lame", "tent", "eata", "sar", "cotta", "memo"]


@pytest.mark.parametrize("name", METHODS)
def test_costs_are_measured_on_a_network_with_what_the_method_needs(name: str) -> None:
    method = METHODS[name]()
    network = fitting(method, TINY)
    assert method.missing_requirement(network) is None
    assert network.config.width == TINY.width


def test_cost_grows_with_the_steps() -> None:
    """Twenty steps of thirty views are more than ten predictions, however busy the machine is."""
    network, images = fitting(Memo(), TINY), some_images(SOURCES)
    assert cost(network, Memo(steps=20, num_views=30), images, 1) > 10


def test_table_names_every_method_and_nothing_is_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("ttaps.cli.bench.measure_costs")
    assert main(["methods"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:-4]] == list(METHODS)
    assert len({len(line) for line in lines[:-4]}) == 1
    assert lines[-3] == "presets: augment:tuned, ttaps:paper, ttaps:reference, ttaps:fast, ttaps:tuned"
    assert "--measure" in lines[-1]
    assert main(["methods", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["ttaps"]["trained_by"] == ["jt", "jt+ent"]
    assert (rows["memo"]["steps"], rows["memo"]["lr"], rows["memo"]["cost"]) == (1, 0.005, COSTS["memo"])
    assert rows["source"]["trained_by"] == ["any"]
    assert all(row["cost"] >= 1 for row in rows.values())
    assert all(parse_method(f"{name}:{named}") for name, row in rows.items() for named in row["presets"])


def test_costs_are_measured_if_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = str(write_model(tmp_path / "small"))
    few = {name: METHODS[name] for name in ("source", "bn", "tent")}
    monkeypatch.setattr("ttaps.cli.bench.METHODS", few)
    assert main(["methods", "--measure", "--model", model, "--rounds", "1", "--json"]) == 0
    costs = [row["cost"] for row in json.loads(capsys.readouterr().out)]
    assert costs[0] == 1
    assert min(costs[1:]) > 0  # one round on a busy machine: only that it was measured
    assert main(["methods", "--rounds", "0"]) == 2
    assert "--rounds must be at least 1" in capsys.readouterr().err


def test_info_lists_what_a_model_can_serve(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(write_model(tmp_path / "small"))
    assert main(["info", model, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["methods"] == [*ANYWHERE, "ttaps"]
    assert main(["evaluate", model, "--methods", "bn", "--out", str(tmp_path / "out")]) == 2
    complaint = capsys.readouterr().err
    assert "'bn' needs BatchNorm layers" in complaint
    assert complaint.strip().endswith(f"this model supports {', '.join(ANYWHERE)}, ttaps.")
