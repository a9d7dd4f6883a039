"""Adding a method is one file and one line in ttaps/methods.py: every command then knows it."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import ttaps
from helpers.small_model import write_image, write_model
from ttaps.adaptation import METHODS, load_class
from ttaps.adaptation.engine import CarriedState
from ttaps.adaptation.method import Method
from ttaps.adaptation.spec import method_spec, parse_method
from ttaps.cli import main
from ttaps.methods import METHOD_TABLE, MethodEntry


@dataclass(frozen=True)
class Mirror(Method):
    """The mean prediction over the image and its mirror image, sharpened."""

    name = "mirror"
    paper = "Nobody 2000"

    temperature: float = 1.0
    """Divides the logits."""

    @torch.no_grad()
    def adapt_one(self, network: nn.Module, image: Tensor, key: int, state: CarriedState) -> Tensor:
        before = network(image).softmax(-1)
        after = (network(self.draw_views(image, key)).mean(0, keepdim=True) / self.temperature).softmax(-1)
        return torch.stack([before, after], dim=1)

    def draw_views(self, image: Tensor, key: int) -> Tensor:
        return torch.cat([image, image.flip(-1)]) / 255


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    line = MethodEntry("mirror:Mirror")
    monkeypatch.setitem(sys.modules, "ttaps.adaptation.mirror", sys.modules[__name__])  # as if this was that file
    monkeypatch.setitem(METHOD_TABLE, "mirror", line)
    monkeypatch.setitem(METHODS, "mirror", load_class(line))


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(write_model(tmp_path / "small"))


def test_it_has_a_spec() -> None:
    assert parse_method("mirror[temperature=0.5]") == Mirror(0.5)
    assert method_spec(Mirror(0.5)) == "mirror[temperature=0.5]"


def test_adapt_has_its_settings_as_options_and_draws_its_views(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image_file, figure = str(write_image(tmp_path / "noise.png")), tmp_path / "out.svg"
    command = ["adapt", model, image_file, "--method", "mirror", "--temperature", "0.1", "--json"]
    assert main([*command, "--figure", str(figure)]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["trace"] == ttaps.adapt(ttaps.load(model), image_file, "mirror", temperature=0.1).trace.tolist()
    assert row["adapted"]
    assert figure.read_text().count("<image") == 2


def test_evaluate_stores_and_prints_it(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    methods = ["--methods", "source,mirror[temperature=0.1]", "--corruptions", "fog", "--limit", "4"]
    assert main(["evaluate", model, *methods, "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert "mirror" in shown
    assert "temperature" in shown


def test_methods_and_info_list_it(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)[-1]
    assert (row["name"], row["trained_by"], row["paper"], row["steps"]) == ("mirror", ["any"], "Nobody 2000", None)
    assert main(["info", model, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["methods"][-1] == "mirror"
