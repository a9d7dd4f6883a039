"""The presets say what the paper says, inherit from one another, and the model in the package works as the README shows."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path, PureWindowsPath
from typing import Any

import pytest
import torch

import ttaps
from ttaps.cli import main
from ttaps.config import flat
from ttaps.data.sample import read_sample
from ttaps.errors import UsageError
from ttaps.model import ModelConfig
from ttaps.training.config import (
    AugmentationConfig,
    LossConfig,
    OptimizerConfig,
    ScheduleConfig,
    find_preset,
    load_preset,
    merge,
    preset_names,
    read_preset,
    train_config,
)

ROOT = Path(__file__).parents[1]
TRAINING = sorted(preset_names())


def settings(name: str, **changes: Any) -> dict[str, Any]:
    return flat(asdict(train_config(merge(read_preset(find_preset(name)), changes), where=name)))


class WindowsFolder(PureWindowsPath):
    def rglob(self, pattern: str) -> list[PureWindowsPath]:
        return [self / "paper" / "jt.toml"]


def test_presets_have_the_same_names_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ttaps.training.config.FOLDER", WindowsFolder("presets"))
    assert str(find_preset("paper/jt")) == r"presets\paper\jt.toml"


PAPER = {
    "epochs": 300, "batch_size": 256, "optimizer.lr": 0.5, "optimizer.momentum": 0.9, "optimizer.weight_decay": 1e-5,
    "schedule.warmup_epochs": 10, "schedule.lr_schedule": "cosine", "optimizer.name": "sgd", "loss.gamma_ce": 0.3,
    "loss.gamma_ent": 0.1, "loss.epsilon": 0.05, "loss.tau": 0.1, "loss.sinkhorn_iterations": 3,
    "loss.swap_reduction": "sum", "model.depth": 26, "model.width": 32, "model.num_groups": 16, "model.norm": "group",
    "model.num_prototypes": 300, "model.projection_dim": 128, "model.hidden_dim": 256, "model.projector_norm": False,
    "model.stem_padding": 1,
}  # fmt: skip


@pytest.mark.parametrize("data", ["cifar10", "cifar100"])
@pytest.mark.parametrize("objective", ["baseline", "jt", "jt+ent"])
def test_paper_presets_are_the_paper(objective: str, data: str) -> None:
    found = settings(f"paper/{objective}", data=data)
    changed = {"optimizer.lr": 0.1} if objective == "baseline" else {}
    named = {"objective": objective, "data": data, "model.num_classes": 10 if data == "cifar10" else 100}
    expected = PAPER | changed | named
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize("objective", ["baseline", "jt", "jt+ent"])
def test_paper_presets_are_the_defaults_otherwise(objective: str) -> None:
    config = load_preset(f"paper/{objective}")
    assert config.optimizer == OptimizerConfig(lr=0.1 if objective == "baseline" else 0.5)
    assert (config.schedule, config.loss, config.augmentation) == (ScheduleConfig(), LossConfig(), AugmentationConfig())
    assert config.model == ModelConfig()


def test_reference_presets_differ_as_the_authors_code_does() -> None:
    for name, frozen in (("reference/jt", 12), ("reference/jt+ent", 0), ("reference/jt+ent-cifar100", 0)):
        found = settings(name)
        assert (found["loss.swap_reduction"], found["model.projector_norm"]) == ("mean", True)
        assert found["model.stem_padding"] == 2
        assert found["schedule.freeze_prototypes_epochs"] == frozen


def test_only_jt_ent_on_cifar100_has_500_epochs_in_the_authors_scripts() -> None:
    assert settings("reference/jt")["epochs"] == settings("reference/jt", data="cifar100")["epochs"] == 300
    found = settings("reference/jt+ent-cifar100")
    assert (found["epochs"], found["data"], found["model.num_classes"]) == (500, "cifar100", 100)


@pytest.mark.parametrize("name", TRAINING)
def test_every_preset_is_the_run_its_name_says(name: str) -> None:
    config = load_preset(name)
    file = name.rpartition("/")[2]
    if file not in ("smoke", "small", "own-data") and not file.startswith(("trunk", "batchnorm")):
        assert config.objective == file.removesuffix("-cifar10").removesuffix("-cifar100").removesuffix("-batchnorm")
    assert config.data == (
        "sample" if name in ("smoke", "own-data") else "cifar100" if file.endswith("-cifar100") else "cifar10"
    )
    assert config.model.num_classes == (100 if config.data == "cifar100" else 10)


@pytest.mark.parametrize("name", TRAINING)
def test_every_preset_says_what_it_costs_and_how_to_run_it(name: str) -> None:
    comment = find_preset(name).read_text().split("\n\n")[0]
    assert comment.startswith("# ")
    assert "Cost: " in comment
    assert f"train --config {name} --out runs/" in comment


def test_models_of_one_trunk_have_the_same_cross_entropy() -> None:
    """Baseline, JT and JT+ENT: the same images for the cross-entropy; JT and JT+ENT go on from the Baseline and differ in L_ent alone."""
    trunk = load_preset("cpu/trunk-cifar10")
    baseline, jt, jt_ent = (load_preset(f"cpu/{name}-cifar10") for name in ("baseline", "jt", "jt+ent"))
    assert (baseline.init_from, jt.init_from) == ("trunk-cifar10", "baseline-cifar10")
    assert replace(jt, objective="jt+ent") == jt_ent
    assert baseline.augmentation == trunk.augmentation
    # the second SwAV view belongs to the joint loss
    assert replace(jt.augmentation, prime_swav_share=0.0) == trunk.augmentation


def test_a_preset_inherits_from_a_preset_or_a_file_beside_it(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('base = "paper/baseline"\nepochs = 3\n[optimizer]\nnesterov = true\n')
    (tmp_path / "next.toml").write_text('base = "mine.toml"\n[optimizer]\nlr = 0.7\n')
    config = load_preset(str(tmp_path / "next.toml"))
    assert (config.objective, config.epochs) == ("baseline", 3)
    assert config.optimizer == OptimizerConfig(lr=0.7, nesterov=True)


def test_a_base_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text('base = "two.toml"')
    (tmp_path / "two.toml").write_text('base = "one.toml"')
    with pytest.raises(UsageError, match=r"one.toml: base = ... leads back to itself"):
        load_preset(str(tmp_path / "one.toml"))
    (tmp_path / "one.toml").write_text("base = 3")
    with pytest.raises(UsageError, match=r"base must be the name of a preset or a file, not 3"):
        load_preset(str(tmp_path / "one.toml"))
    (tmp_path / "one.toml").write_text('base = "paper/jt+net"')
    with pytest.raises(UsageError, match=r"no preset 'paper/jt\+net' \(did you mean 'paper/jt\+ent'\?\)"):
        load_preset(str(tmp_path / "one.toml"))


def test_classes_follow_the_data_unless_given(tmp_path: Path) -> None:
    for text, classes in (
        ("", 10),
        ('data = "cifar100"', 100),
        ('data = "cifar100"\nmodel.num_classes = 7', 7),
        ('data = "mine"', 10),
    ):
        (tmp_path / "mine.toml").write_text(text)
        assert load_preset(str(tmp_path / "mine.toml")).model.num_classes == classes


def test_train_suggests_training_presets_and_reproduce_grids(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--config", "nope", "--out", "x"]) == 2
    said = capsys.readouterr().err
    assert "There is no preset 'nope'" in said
    assert "paper/jt+ent" in said
    assert "paper-cifar10" not in said
    assert main(["reproduce", "nope"]) == 2
    said = capsys.readouterr().err
    assert "There is no grid 'nope' (known are paper-cifar10, paper-cifar100, small, smoke)" in said


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
