"""Settings to text and back, and what is said about a setting that cannot be."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from ttaps.config import from_dict, read_toml, to_toml
from ttaps.errors import UsageError
from ttaps.model import ModelConfig
from ttaps.training.config import AugmentationConfig, LossConfig, OptimizerConfig, ScheduleConfig, TrainConfig

CHANGED = TrainConfig(
    objective="jt",
    data='C:\\my "pictures"\n\tété 🐸',
    epochs=2.5,
    stop_on_collapse=False,
    model=ModelConfig(norm="batch", mean=(0.1, 0.2, 0.3), zero_init_residual=True),
    optimizer=OptimizerConfig(name="muon", lr=1e-5, weight_decay=1e-16, nesterov=True),
    schedule=ScheduleConfig(resolutions=(16, 24, 32), resolution_milestones=(0.25, 0.5, 1.0)),
    loss=LossConfig(swap_reduction="mean"),
    augmentation=AugmentationConfig(crop_scale=(0.5, 1.0)),
)


@pytest.mark.parametrize("config", [TrainConfig(), CHANGED], ids=["default", "changed"])
def test_toml_brings_every_setting_back(config: TrainConfig) -> None:
    assert from_dict(TrainConfig, tomllib.loads(to_toml(config)), where="test") == config


def test_what_is_not_given_keeps_its_value() -> None:
    changed = from_dict(TrainConfig, {"loss": {"tau": 0.2}}, where="test", base=CHANGED)
    assert changed == replace(CHANGED, loss=replace(CHANGED.loss, tau=0.2))
    assert from_dict(TrainConfig, {"loss": {"tau": 0.2}}, where="test").loss == LossConfig(tau=0.2)


def test_whole_numbers_may_stand_for_floats() -> None:
    epochs = from_dict(TrainConfig, {"epochs": 3}, where="test").epochs
    assert (epochs, type(epochs)) == (3.0, float)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epoch": 3}, r"^my.toml: unknown key 'epoch' \(did you mean 'epochs'\?\)\.$"),
        (
            {"model": {"protoypes": 3}},
            r"^my.toml: model: unknown key 'protoypes' \(did you mean 'num_prototypes'\?\)\.$",
        ),
        ({"xyz": 3}, r"unknown key 'xyz' \(known are objective, data, epochs"),
        ({"objective": "jt+net"}, r"objective is 'jt\+net' \(did you mean 'jt\+ent'\?\)\.$"),
        ({"objective": 77}, r"objective is 77 \(known are baseline, jt, jt\+ent, ttt, mt3\)\.$"),
        ({"batch_size": "many"}, r"batch_size must be int, not 'many'"),
        ({"batch_size": 1.5}, r"batch_size must be int, not 1.5"),
        ({"batch_size": True}, r"batch_size must be int, not True"),
        ({"epochs": True}, r"epochs must be float, not True"),
        ({"compile": 1}, r"compile must be bool, not 1"),
        ({"model": 3}, r"model must be a table of settings, not 3"),
        ({"schedule": {"resolutions": 32}}, r"resolutions must be a list, not 32"),
        ({"schedule": {"resolutions": ["32"]}}, r"resolutions must be int, not '32'"),
        ({"augmentation": {"crop_scale": [0.1, 0.5, 1.0]}}, r"augmentation: crop_scale must have 2 values, not 3"),
    ],
)
def test_wrong_settings_are_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        from_dict(TrainConfig, values, where="my.toml")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epochs": 0}, r"epochs must be positive, not 0"),
        ({"epochs": float("nan")}, r"epochs must be positive, not nan"),
        ({"epochs": float("inf")}, r"epochs must be finite, not inf"),
        ({"optimizer": {"lr": float("inf")}}, r"optimizer.lr must be finite, not inf"),
        ({"batch_size": -1}, r"batch_size must be positive, not -1"),
        ({"validate_every": 0}, r"validate_every must be positive"),
        ({"checkpoint_minutes": -1}, r"checkpoint_minutes must be at least 0, not -1"),
        ({"checkpoint_minutes": float("nan")}, r"checkpoint_minutes must be at least 0, not nan"),
        ({"schedule": {"warmup_epochs": -2}}, r"schedule.warmup_epochs must be at least 0, not -2"),
        ({"loss": {"sinkhorn_iterations": -1}}, r"loss.sinkhorn_iterations must be at least 0, not -1"),
        ({"model": {"mean": [0.5, float("nan"), 0.5]}}, r"model.mean must be finite, not 0.5, nan, 0.5"),
        (
            {"objective": "ttt", "model": {"heads": ["rotation"]}, "augmentation": {"ce_view": "views"}},
            r"ttt has no SwAV views",
        ),
        ({"ema_decay": 1.0}, r"ema_decay must be at least 0 and less than 1, not 1.0"),
        ({"optimizer": {"lr": -0.1}}, r"optimizer.lr must be positive, not -0.1"),
        ({"optimizer": {"momentum": 1.5}}, r"optimizer.momentum must be at least 0 and less than 1"),
        ({"loss": {"epsilon": 0}}, r"loss.epsilon must be positive"),
        ({"loss": {"tau": 0}}, r"loss.tau must be positive"),
        ({"schedule": {"resolutions": [0]}}, r"resolutions must be positive"),
        ({"schedule": {"resolutions": [16, 32]}}, r"resolutions and .*resolution_milestones must have the same length"),
        (
            {"schedule": {"resolutions": [16, 32], "resolution_milestones": [0.5, 0.9]}},
            r"milestones must rise to 1",
        ),
        (
            {"schedule": {"resolutions": [16, 24, 32], "resolution_milestones": [0.5, 0.2, 1]}},
            r"milestones must rise to 1",
        ),
    ],
)
def test_impossible_runs_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        from_dict(TrainConfig, values, where="my.toml")


@dataclass(frozen=True)
class Optional:
    limit: int | None = 5


def test_optional_settings() -> None:
    assert from_dict(Optional, {"limit": None}, where="test").limit is None
    assert from_dict(Optional, {"limit": 3}, where="test").limit == 3
    with pytest.raises(UsageError, match="limit must be int"):
        from_dict(Optional, {"limit": "3"}, where="test")


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"epochs = ", r"is not valid TOML"), (b"\xff\xfe", r"is not valid TOML"), (None, r"There is no config")],
)
def test_files_that_are_no_toml(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "my.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        read_toml(path)


def test_a_folder_is_no_toml(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"Cannot read .*: Is a directory"):
        read_toml(tmp_path)
