"""A backbone that is not ours, at 64 pixels: trained by JT+ENT, remembered by its run folder, adapted at one of its parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ttaps
from helpers.small_training import dying_at
from ttaps.adaptation import Ttaps
from ttaps.cli import main
from ttaps.errors import CheckpointError, TtapsError, UsageError
from ttaps.model import SplitNetwork, as_network
from ttaps.training.trainer import Trainer

NETS = """
from torch import nn

class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = nn.Sequential(nn.Conv2d(3, 8, 5, 4), nn.BatchNorm2d(8), nn.ReLU())
        self.layer4 = nn.Sequential(nn.Conv2d(8, 12, 3, 2), nn.BatchNorm2d(12), nn.ReLU())
        self.fc = nn.Identity()

    def forward(self, x):
        return self.fc(self.layer4(self.layer1(x)))

def resnet18():
    return Convolutions()

def fixed_size():
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, 6))
"""
SETTINGS: dict[str, Any] = {
    "epochs": 2,
    "batch_size": 8,
    "model": {"image_size": 64, "num_prototypes": 10, "projection_dim": 8, "hidden_dim": 16},
    "optimizer": {"lr": 0.05},
    "schedule": {"warmup_epochs": 0},
}
OPTIONS = [
    *("--config", "paper/jt+ent", "--epochs", "2", "--batch-size", "8", "--model.image-size", "64"),
    *("--model.num-prototypes", "10", "--model.projection-dim", "8", "--model.hidden-dim", "16"),
    *("--optimizer.lr", "0.05", "--schedule.warmup-epochs", "0"),
]
LAYER4 = "ttaps[adapt_params=layer4,steps=2,num_pairs=2,lr=1]"


@pytest.fixture
def nets(tmp_path: Path) -> Path:
    (tmp_path / "my_nets.py").write_text(NETS)
    return tmp_path / "my_nets.py"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (30, 3, 64, 64), dtype=np.uint8)
    np.savez(tmp_path / "images.npz", images=images, labels=np.arange(30) % 3, classes=["cat", "dog", "owl"])
    return tmp_path / "images.npz"


def weights(folder: Path, **options: Any) -> dict[str, Tensor]:
    return ttaps.load(folder, **options).network.state_dict()


def test_a_run_with_an_own_backbone_is_a_model_for_every_command(
    nets: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    assert main(["train", *OPTIONS, "--data", str(data), "--backbone", "my_nets.py:resnet18", "--out", str(run)]) == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")  # the reference was relative, what is remembered is not
    capsys.readouterr()
    assert main(["info", str(run), "--json"]) == 0
    shown = capsys.readouterr()
    noted = json.loads(shown.out)["backbone"]
    assert (noted["factory"], noted["features"]) == (f"{nets}:resnet18", 12)
    assert f"was made by {nets}:resnet18" in shown.err.replace("\n", "")
    assert "12 features" in (run / "README.md").read_text()
    rows = ["evaluate", str(run), "--data", str(data), "--limit", "4", "--methods", f"source,{LAYER4}", "--json"]
    assert main([*rows, "--out", str(tmp_path / "rows")]) == 0
    assert json.loads(capsys.readouterr().out)["stored"] == 8
    assert main(["train", "--resume", "--out", str(run)]) == 0  # nothing is left to do
    network = as_network(ttaps.load(run).network)
    split = SplitNetwork(network, "layer4")
    assert {name.split(".")[1] for name in split.weights()} == {"layer4"}


def test_adaptation_at_a_part_changes_that_part_only(nets: Path, data: Path, tmp_path: Path) -> None:
    made = ttaps.train("paper/jt+ent", data, out=tmp_path / "run", backbone=f"{nets}:resnet18", **SETTINGS)
    with np.load(data) as arrays:
        images = torch.from_numpy(arrays["images"][:2])
    before = {name: weight.clone() for name, weight in made.model.network.state_dict().items()}
    found = ttaps.adapt(made.model, images, LAYER4)
    assert found[0].adapted
    assert all(torch.equal(weight, before[name]) for name, weight in made.model.network.state_dict().items())
    untouched = ttaps.adapt(made.model, images, LAYER4, lr=0.0)
    torch.testing.assert_close(untouched.trace[:, -1], untouched.before, rtol=0, atol=0)
    with pytest.raises(UsageError, match="names of its parts: layer1, layer4, projector"):
        ttaps.adapt(made.model, images, Ttaps(adapt_params="layer9"))


def test_python_and_the_command_train_the_same_and_resume(
    nets: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reference = f"{nets}:resnet18"
    assert main(["train", *OPTIONS, "--data", str(data), "--backbone", reference, "--out", str(tmp_path / "cli")]) == 0
    whole = weights(tmp_path / "cli")
    stopped: dict[str, Any] = {"out": tmp_path / "killed", "backbone": reference, "checkpoint_minutes": 0.0, **SETTINGS}
    with patch.object(Trainer, "step", dying_at(4)), pytest.raises(KeyboardInterrupt):
        ttaps.train("paper/jt+ent", data, **stopped)
    ttaps.train("paper/jt+ent", data, **stopped)
    resumed = weights(tmp_path / "killed")
    assert all(torch.equal(weight, resumed[name]) for name, weight in whole.items())


def test_a_training_is_a_model_a_curve_and_a_figure(data: Path, tmp_path: Path) -> None:
    with np.load(data) as arrays:
        pair = arrays["images"], np.array(["cat", "dog", "owl"])[arrays["labels"]]
    module = nn.Sequential(nn.Conv2d(3, 6, 8, 8), nn.ReLU())
    weight = module.get_parameter("0.weight")
    start = weight.detach().clone()
    made = ttaps.train("paper/jt+ent", pair, out=tmp_path / "run", backbone=module, validate_every=1, **SETTINGS)
    assert torch.equal(weight, start)  # a copy was trained
    assert not torch.equal(made.model.network.get_parameter("backbone.0.weight"), start)
    assert made.model.classes == ("cat", "dog", "owl")
    assert repr(made).startswith(f"Training({tmp_path / 'run'}: jt+ent on images, ")
    assert "# jt+ent on images" in str(made)
    curve = made.to_pandas()
    assert {"step", "epoch", "loss", "swav", "ce"} <= set(curve)
    assert list(made.table["epoch"]) == [1.0, 2.0]
    assert made.table["validation_accuracy"].iat[-1] == 100 * made.model.info["validation_accuracy"]
    made.report(tmp_path / "curve.png")
    assert (tmp_path / "curve.png").stat().st_size > 1000
    assert made.to_dict()["backbone"]["features"] == 6
    with pytest.raises(CheckpointError, match=r"was given in Python, as <Sequential>\.\n.*backbone="):
        ttaps.load(tmp_path / "run")
    loaded = weights(tmp_path / "run", backbone=lambda: nn.Sequential(nn.Conv2d(3, 6, 8, 8), nn.ReLU()))
    assert all(torch.equal(weight, loaded[name]) for name, weight in made.model.network.state_dict().items())
    assert main(["train", "--resume", "--out", str(tmp_path / "run")]) != 0


def test_code_is_run_only_from_the_file_that_was_trained_with(nets: Path, data: Path, tmp_path: Path) -> None:
    """A run folder may come from elsewhere: it must not choose what is run here."""
    run, told = tmp_path / "run", tmp_path / "told"
    ttaps.train("paper/jt+ent", data, out=run, backbone=f"{nets}:resnet18", **SETTINGS)
    nets.write_text(f"open({str(told)!r}, 'w').close()\n{NETS}")
    with pytest.raises(CheckpointError, match="which has changed since"):
        ttaps.load(run)
    assert not told.exists()
    assert len(weights(run, backbone=f"{nets}:resnet18"))  # because the user says so
    assert told.exists()
    nets.unlink()
    with pytest.raises(CheckpointError, match="no such file here"):
        ttaps.load(run)
    (run / "my_nets.py").write_text(NETS)
    config = json.loads((run / "config.json").read_text())
    config["backbone"]["factory"] = f"{run / 'my_nets.py'}:resnet18"
    (run / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="a file in the same folder"):
        ttaps.load(run)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"backbone": "resnet18"}, "A backbone is written my_nets.py:make_net"),
        ({"backbone": "NETS:resnet19"}, "did you mean 'resnet18'"),
        ({"backbone": "NETS:fixed_size", "schedule": {"resolutions": (16,)}}, "cannot take images of 3 x 16 x 16"),
        ({"backbone": "NETS:resnet18", "objective": "ttt", "model": {"heads": ("rotation",)}}, "our own ResNet"),
        ({"backbone": "NETS:resnet18", "optimizer": {"muon_exclude": ("stem",)}}, "no part 'stem'"),
        ({"backbone": "NETS:resnet18", "batch": 4}, "'batch' is called 'batch_size' now"),
        ({"data": "nowhere"}, "There is no data set"),
    ],
)
def test_what_cannot_be_trained_gets_a_sentence(
    nets: Path, data: Path, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    if "backbone" in changes:
        changes = {**changes, "backbone": changes["backbone"].replace("NETS", str(nets))}
    nested = {name: {**SETTINGS.get(name, {}), **value} for name, value in changes.items() if isinstance(value, dict)}
    with pytest.raises(TtapsError, match=words):
        ttaps.train("paper/jt+ent", **{"data": data, "out": tmp_path / "run", **SETTINGS, **changes, **nested})
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_a_function_that_makes_no_network_is_told_so(data: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"must be a torch\.nn\.Module, not int"):
        ttaps.train("paper/jt+ent", data, out=tmp_path / "run", backbone=lambda: 3, **SETTINGS)  # type: ignore[arg-type]
