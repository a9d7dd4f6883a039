"""Own images and own networks of docs/quickstart.md, run as they stand there, on few images and for one epoch."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import ttaps
from helpers.small_model import SIZES, write_model
from ttaps.cli import main

TEXT = (Path(__file__).parents[1] / "docs" / "quickstart.md").read_text("utf-8")
IMAGES, SECTION = TEXT.split("## Your own images")[1].split("## Your own network")
PYTHON = re.findall(r"^```python\n(.*?)^```$", SECTION.split("With timm or torchvision")[0], re.DOTALL | re.MULTILINE)
COMMANDS = re.findall(r"^ttaps (.*)$", SECTION, re.MULTILINE)
SMALL = {"epochs": 1, "batch_size": 8, "schedule": {"warmup_epochs": 0}}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the file of the document and a few photos, to be in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_nets", raising=False)
    (tmp_path / "my_nets.py").write_text(PYTHON[0])
    rng = np.random.default_rng(0)
    for folder in ("photos", "more-photos"):
        for number in range(12):
            file = tmp_path / folder / ("cat", "dog", "owl")[number % 3] / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (70, 80, 3), dtype=np.uint8)).save(file)
    (tmp_path / "photos" / "cat" / "0.png").rename(tmp_path / "photos" / "cat" / "cat.png")
    Image.open(tmp_path / "photos" / "cat" / "cat.png").save(tmp_path / "cat.png")
    return tmp_path


def test_own_images_from_a_folder_to_a_report(place: Path) -> None:
    for folder in ("photos", "more-photos"):
        (place / folder / "owl").rename(place / folder / "frog")  # classes that cifar10 knows
    commands = re.findall(r"^ttaps (.*)$", IMAGES.split("```")[1], re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["evaluate", "train", "info", "evaluate", "report"]
    sizes = "".join(f" --model.{name.replace('_', '-')} {size}" for name, size in SIZES.items())
    small = f" --epochs 2 --batch-size 8 --init-from {write_model(place / 'small')} {sizes}"
    for command in commands:
        assert main(shlex.split(command + small * command.startswith("train"))) == 0, command
    assert ttaps.load("runs/photos").classes == ("cat", "dog", "frog")
    assert (place / "learning.png").exists()
    assert "photos" in (place / "report.html").read_text("utf-8")


def test_the_classifier_and_the_backbone(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {}
    exec(PYTHON[1], names)
    assert len(names["result"]) == 12
    assert len(names["rows"]) == 3 * 12
    assert names["logits"].shape == (1, 3)
    assert (place / "report.html").exists()
    train = ttaps.train
    monkeypatch.setattr(ttaps, "train", lambda *args, **options: train(*args, **{**options, **SMALL}), raising=False)
    exec(PYTHON[2], names)
    assert (place / "learning.png").exists()
    names.pop("trained")
    model = ttaps.load("runs/convnet")  # the folder knows the class by its file
    assert ttaps.adapt(model, "cat.png", "ttaps:tuned[adapt_params=layer2]", confidence_threshold=1).adapted


def test_the_commands(place: Path) -> None:
    (saving,) = re.findall(r'^python -c "(.*)"', SECTION, re.MULTILINE)
    exec(saving, {})
    evaluate, adapt, train, evaluate_run = COMMANDS
    short = "--epochs 1 --batch-size 8 --schedule.warmup-epochs 0"
    for command in (evaluate, adapt, f"{train} {short}", evaluate_run.replace('"', "")):
        assert main(command.split()) == 0, command


def test_fused_attention_takes_the_same_steps(place: Path) -> None:
    """torch runs its own transformer layers in another way where it believes that no gradient is wanted."""
    names: dict[str, Any] = {}
    exec(PYTHON[0], names)
    torch.manual_seed(0)
    net = names["ViT"](classes=3)
    fast = ttaps.adapt(net, "cat.png", "memo", size=64, lr=0.01, num_views=4).trace
    try:
        torch.backends.mha.set_fastpath_enabled(False)
        plain = ttaps.adapt(net, "cat.png", "memo", size=64, lr=0.01, num_views=4).trace
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    assert not torch.equal(plain[0], plain[-1])
    torch.testing.assert_close(fast, plain, rtol=1e-4, atol=1e-5)
