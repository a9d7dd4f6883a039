"""Model folders: what is saved comes back bit for bit, and what is wrong with a folder is said in plain words."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import ttaps
from helpers.small_training import TINY
from ttaps.errors import CheckpointError
from ttaps.model import ModelConfig, Network
from ttaps.model.checkpoint import Model, fingerprint, load_model, save_model
from ttaps.model.folder import describe_intact

CLASSES = ("cat", "dog", "ship", "frog")


@pytest.fixture
def folder(tmp_path: Path, tiny_network: Network) -> Path:
    folder = tmp_path / "small"
    save_model(folder, tiny_network, CLASSES, {"objective": "jt", "step": 7}, "# A small model\n")
    return folder


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))


def test_a_model_comes_back_bit_for_bit(folder: Path, tiny_network: Network) -> None:
    model = load_model(folder)
    loaded, saved = model.network.state_dict(), tiny_network.state_dict()
    assert list(loaded) == list(saved)
    assert all(torch.equal(loaded[name], saved[name]) for name in saved)
    assert model.network.config == TINY
    assert not model.network.training
    assert (model.classes, model.name, model.card) == (CLASSES, "small", "# A small model\n")
    assert (model.info["objective"], model.info["step"]) == ("jt", 7)
    assert model.fingerprint == fingerprint(tiny_network)
    assert sorted(file.name for file in folder.iterdir()) == ["README.md", "config.json", "model.safetensors"]


def test_batch_norm_statistics_come_back(tmp_path: Path) -> None:
    network = Network(ModelConfig(norm="batch", depth=8, width=4)).train()
    network(torch.rand(4, 3, 8, 8))
    save_model(tmp_path, network, (), {}, "")
    loaded = load_model(tmp_path).network.state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in network.state_dict().items())
    assert loaded["backbone.stem.1.num_batches_tracked"] == 1


def test_a_users_own_backbone_comes_back(tmp_path: Path) -> None:
    save_model(tmp_path, Network(TINY, nn.Flatten(), features=192), CLASSES, {}, "")
    for read in (load_model, ttaps.load):
        assert read(tmp_path, backbone=nn.Flatten(), features=192).network(torch.rand(2, 3, 8, 8)).shape == (2, 4)
    with pytest.raises(CheckpointError, match=r"your own backbone must be passed"):
        load_model(tmp_path)


def test_a_flipped_bit_or_an_edited_config_is_noticed(tiny_network: Network, tmp_path: Path) -> None:
    save_model(tmp_path, tiny_network, CLASSES, {}, "")
    config, weights = tmp_path / "config.json", tmp_path / "model.safetensors"
    edited = json.loads(config.read_text())
    edited["model"]["mean"] = [0.5, 0.5, 0.5]
    whole_config, whole = config.read_text(), weights.read_bytes()
    config.write_text(json.dumps(edited))
    with pytest.raises(CheckpointError, match="fingerprint"):
        load_model(tmp_path)
    config.write_text(whole_config)
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(CheckpointError, match="damaged"):
        load_model(tmp_path)


def test_an_intact_folder_is_described_without_torch_as_the_loaded_model_is(tmp_path: Path) -> None:
    for norm, depth in (("group", 14), ("batch", 8)):
        network = Network(ModelConfig(norm=norm, depth=depth, width=16, mean=(0.5, 0.4, 0.3)))  # type: ignore[arg-type]
        save_model(tmp_path, network, ("a",) * 10, {"objective": "jt", "step": 7}, "# Card\n")
        assert describe_intact(tmp_path) == ("# Card\n", load_model(tmp_path).to_dict())


def test_what_is_not_intact_is_left_to_the_loader(folder: Path) -> None:
    whole = (folder / "model.safetensors").read_bytes()
    for damaged in (whole[:-1] + bytes([whole[-1] ^ 1]), whole[:-100], b"", b"no weights"):
        (folder / "model.safetensors").write_bytes(damaged)
        assert describe_intact(folder) is None
    (folder / "model.safetensors").write_bytes(whole)
    assert describe_intact(folder)
    edit(folder, lambda config: config["model"].update(image_size=16))
    assert describe_intact(folder) is None


def test_the_fingerprint_sees_every_weight(tiny_network: Network) -> None:
    seen = {fingerprint(tiny_network)}
    for weight in tiny_network.parameters():
        with torch.no_grad():
            weight.view(-1)[-1] += 1e-3
        seen.add(fingerprint(tiny_network))
    assert len(seen) == 1 + len(list(tiny_network.parameters()))
    assert fingerprint(tiny_network.bfloat16()) not in seen


def test_fingerprints_of_published_models_stay_valid() -> None:
    """Fingerprints stand in stored results: renaming a setting, or adding one, must not change them."""
    published = {name: ttaps.load(name).fingerprint for name in ("cifar10", "cifar100", "baseline-cifar10")}
    assert published == {"cifar10": "f902bcde5da1", "cifar100": "923d59627883", "baseline-cifar10": "00f1e9724dab"}


def test_the_fingerprint_sees_settings_that_leave_no_weight(tiny_network: Network) -> None:
    seen = {fingerprint(tiny_network)}
    changes: tuple[dict[str, Any], ...] = (
        {"mean": (0.5, 0.5, 0.5)},
        {"stem_padding": 2},
        {"num_groups": 2},
        {"image_size": 9},
    )
    for change in changes:
        tiny_network.config = dataclasses.replace(TINY, **change)
        seen.add(fingerprint(tiny_network))
    assert len(seen) == 5


def test_a_model_is_printed_in_a_line(tiny_network: Network) -> None:
    model = Model(tiny_network, tuple("abcd"), "tiny", "0123456789ab", info={"objective": "jt"})
    assert repr(model) == "Model(tiny, trained by jt, 4 classes, fingerprint 0123456789ab)"


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no model folder .*nowhere.\nUse a run folder"):
        load_model(tmp_path / "nowhere")


def test_a_folder_that_holds_no_model(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"is not a model folder: it has no config.json"):
        load_model(tmp_path)


@pytest.mark.parametrize("content", ["{", "not json", '"text"', "[]", "\udce9"])
def test_a_config_that_is_no_config(folder: Path, content: str) -> None:
    (folder / "config.json").write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(CheckpointError, match=r"config.json"):
        load_model(folder)


def test_another_format_version(folder: Path) -> None:
    edit(folder, lambda config: config.update(format=99))
    with pytest.raises(CheckpointError, match=r"has format 99; this version of ttaps \(.*\) reads format 1.\nInstall"):
        load_model(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda config: config["model"].update(widht=4), r"unknown key 'widht' \(did you mean 'width'\?"),
        (lambda config: config["model"].update(width="four"), r"width must be int, not 'four'"),
        (lambda config: config["model"].update(depth=9), r"depth must be 6n \+ 2"),
        (lambda config: config.update(model=3), r"does not describe a network"),
        (lambda config: config.pop("model"), r"does not describe a network"),
        (lambda config: config.update(classes=["cat"]), r"must name 4 classes, not \['cat'\]"),
        (lambda config: config.update(classes=4), r"must name 4 classes, not 4"),
    ],
)
def test_a_config_that_was_edited(folder: Path, change: Callable[[dict[str, Any]], object], message: str) -> None:
    edit(folder, change)
    with pytest.raises(CheckpointError, match=message):
        load_model(folder)


def test_weights_of_another_shape(folder: Path) -> None:
    edit(folder, lambda config: config["model"].update(num_prototypes=31))
    with pytest.raises(
        CheckpointError, match=r"'prototypes' has shape \(30, 16\), the network expects \(31, 16\) \(1 such"
    ):
        load_model(folder)


@pytest.mark.parametrize("size", [2**31, 2**62, 2**63, 10**30])
@pytest.mark.parametrize("name", ["hidden_dim", "num_prototypes", "projection_dim", "num_classes", "width", "depth"])
def test_an_absurd_network_is_refused_before_it_takes_memory(folder: Path, name: str, size: int) -> None:
    edit(folder, lambda config: config["model"].update({name: size}))
    with pytest.raises(CheckpointError, match=rf"config.json does not describe a network \(model.{name} "):
        load_model(folder)


def test_a_weight_too_few_or_too_many(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file({name: tensor for name, tensor in weights.items() if name != "prototypes"}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"'prototypes' has shape nothing, the network expects \(30, 16\)"):
        load_model(folder)
    save_file(weights | {"extra": torch.zeros(2)}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"'extra' has shape \(2,\), the network expects nothing"):
        load_model(folder)


def test_missing_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model.safetensors is missing: the folder holds no finished checkpoint"):
        load_model(folder)


@pytest.mark.parametrize("damage", ["truncated", "empty", "text", "folder"])
def test_damaged_weights(folder: Path, damage: str) -> None:
    path = folder / "model.safetensors"
    content = {
        "truncated": path.read_bytes()[:-100],
        "empty": b"",
        "text": b"These are no weights.\n" * 9,
        "folder": b"",
    }
    path.unlink()
    path.mkdir() if damage == "folder" else path.write_bytes(content[damage])
    with pytest.raises(CheckpointError, match=r"damaged or not a safetensors file .*\n?.*Get or train the model again"):
        load_model(folder)


def test_what_is_no_name_of_a_model_is_refused() -> None:
    with pytest.raises(ttaps.TtapsError, match="Give the name or folder of a model, not NoneType"):
        ttaps.load(None)  # type: ignore[arg-type]
