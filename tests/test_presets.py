"""The presets say what the paper says, and the model in the package works as the README shows."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path, PureWindowsPath
from typing import Any

import pytest
import torch

import ttaps
from ttaps.cli.options import find_preset
from ttaps.config import flat, from_dict, read_toml
from ttaps.data.sample import read_sample
from ttaps.training.config import TrainConfig

ROOT = Path(__file__).parents[1]


def settings(name: str) -> dict[str, Any]:
    path = find_preset(name)
    return flat(asdict(from_dict(TrainConfig, read_toml(path), where=str(path))))


class WindowsFolder(PureWindowsPath):
    def rglob(self, pattern: str) -> list[PureWindowsPath]:
        return [self / "paper" / "jt.toml"]


def test_presets_have_the_same_names_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ttaps.cli.options.PRESETS", (WindowsFolder("configs"),))
    assert str(find_preset("paper/jt")) == r"configs\paper\jt.toml"


PAPER = {
    "epochs": 300, "batch_size": 256, "optimizer.lr": 0.5, "optimizer.momentum": 0.9, "optimizer.weight_decay": 1e-5,
    "optimizer.warmup_epochs": 10, "optimizer.lr_schedule": "cosine", "optimizer.name": "sgd", "loss.gamma_ce": 0.3,
    "loss.gamma_ent": 0.1, "loss.epsilon": 0.05, "loss.tau": 0.1, "loss.sinkhorn_iterations": 3,
    "loss.swap_reduction": "sum", "model.depth": 26, "model.width": 32, "model.num_groups": 16, "model.norm": "group",
    "model.num_prototypes": 300, "model.projection_dim": 128, "model.hidden_dim": 256, "model.projector_norm": False,
}  # fmt: skip


@pytest.mark.parametrize("data", ["cifar10", "cifar100"])
@pytest.mark.parametrize("objective", ["baseline", "jt", "jt+ent"])
def test_paper_presets_are_the_paper(objective: str, data: str) -> None:
    found = settings(f"paper/{objective}-{data}")
    changed = {"optimizer.lr": 0.1} if objective == "baseline" else {}
    named = {"objective": objective, "data": data, "model.num_classes": 10 if data == "cifar10" else 100}
    expected = PAPER | changed | named
    assert {name: found[name] for name in expected} == expected


def test_reference_presets_differ_as_the_authors_code_does() -> None:
    for name, frozen in (("reference/jt-cifar10", 12), ("reference/jt+ent-cifar10", 0)):
        found = settings(name)
        assert (found["loss.swap_reduction"], found["model.projector_norm"]) == ("mean", True)
        assert found["loss.freeze_prototypes_epochs"] == frozen
    assert settings("reference/jt-cifar100")["epochs"] == 500


def test_the_model_in_the_package_adapts_as_the_readme_shows() -> None:
    model = ttaps.load("cifar10")
    images = read_sample("fog")
    result = ttaps.adapt(model, images.images[0], steps=1, num_pairs=4)
    assert result.label in images.classes == model.classes
    assert result.trace.shape == (2, 10)
    assert torch.allclose(result.trace.sum(-1), torch.ones(2))


def test_the_readmes_python_is_what_is_tested_here() -> None:
    readme = (ROOT / "README.md").read_text()
    for line in ('model = ttaps.load("cifar10")', "result = ttaps.adapt(model,", "result.label", "result.trace"):
        assert line in readme
