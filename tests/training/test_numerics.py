"""Memory format and precision by measurement: the rule of the choice, and that a resumed run keeps it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from helpers.small_training import SHORT, dying_at
from ttaps.data import ImageSet
from ttaps.model import Network
from ttaps.training import run
from ttaps.training.config import TrainConfig
from ttaps.training.data import Split
from ttaps.training.run import Run
from ttaps.training.run_dir import load_state
from ttaps.training.trainer import MIN_SPEEDUP, Numerics, Trainer, candidates, fastest

AUTO = TrainConfig(memory_format="auto", precision="auto")
PLAIN, HALF = Numerics("contiguous", "float32"), Numerics("contiguous", "bfloat16")
LAST, LAST_HALF = Numerics("channels_last", "float32"), Numerics("channels_last", "bfloat16")


def test_candidates_are_what_the_settings_allow() -> None:
    assert candidates(AUTO) == [PLAIN, HALF, LAST, LAST_HALF]
    assert candidates(replace(AUTO, precision="float32")) == [PLAIN, LAST]
    assert candidates(replace(AUTO, memory_format="channels_last")) == [LAST, LAST_HALF]
    assert candidates(TrainConfig()) == [PLAIN]


@pytest.mark.parametrize(
    ("seconds", "chosen"),
    [
        ((1.0, 1.0, 1.0, 1.0), PLAIN),
        ((1.0, 2.0, 0.95, 3.0), PLAIN),  # less than MIN_SPEEDUP is noise
        ((1.0, 2.0, 0.5, 3.0), LAST),
        ((1.0, 0.6, 0.5, 0.4), LAST_HALF),
        ((0.4, 0.6, 0.5, 0.7), PLAIN),
        ((MIN_SPEEDUP, 5.0, 0.99, 5.0), LAST),
        ((MIN_SPEEDUP, 5.0, 1.01, 5.0), PLAIN),
    ],
)
def test_another_way_must_be_clearly_faster(
    seconds: tuple[float, ...], chosen: Numerics, tiny_network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = dict(zip(candidates(AUTO), seconds, strict=True))
    monkeypatch.setattr("ttaps.training.trainer.seconds_per_step", lambda choice, network, images: times[choice])
    assert fastest(AUTO, tiny_network, torch.device("cpu")) == chosen


def test_without_a_choice_nothing_is_measured(tiny_network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ttaps.training.trainer.seconds_per_step", lambda *_: pytest.fail("measured"))
    fixed = replace(AUTO, memory_format="channels_last", precision="bfloat16")
    assert fastest(fixed, tiny_network, torch.device("cpu")) == LAST_HALF


def test_measuring_leaves_the_network_as_it_was(tiny_network: Network) -> None:
    before = {name: weight.clone() for name, weight in tiny_network.state_dict().items()}
    small = replace(AUTO, batch_size=4, model=tiny_network.config)
    assert fastest(small, tiny_network, torch.device("cpu")) in candidates(small)
    assert all(torch.equal(weight, before[name]) for name, weight in tiny_network.state_dict().items())
    assert all(weight.grad is None and weight.is_contiguous() for weight in tiny_network.parameters())


@pytest.mark.parametrize("choice", [LAST, HALF])
def test_a_resumed_run_keeps_the_stored_choice(
    choice: Numerics, textures: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever would be fastest by then, and to the last bit."""
    config = replace(SHORT, epochs=2, memory_format="auto", precision="auto", checkpoint_minutes=0.0)
    split = Split.of(textures)
    monkeypatch.setattr(run, "fastest", lambda *_: choice)
    Run(config, tmp_path / "whole", split).train()
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", dying_at(7))
        with pytest.raises(KeyboardInterrupt):
            Run(config, tmp_path / "killed", split).train()
    state = load_state(tmp_path / "killed")
    assert state is not None
    assert (state.step, state.numerics) == (7, str(choice))
    monkeypatch.setattr(run, "fastest", lambda *_: pytest.fail("measured again"))
    resumed = Run(config, tmp_path / "killed", split)
    resumed.train()
    assert resumed.trainer.numerics == choice
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "killed")]
    assert all(one == other for one, other in pairwise(weights))


def test_channels_last_is_the_same_training_but_for_rounding(textures: ImageSet) -> None:
    runs = [
        Trainer(replace(SHORT, memory_format=layout), Split.of(textures)) for layout in ("contiguous", "channels_last")
    ]
    for trainer in runs:
        trainer.numerics.place(trainer.network)
    assert not all(weight.is_contiguous() for weight in runs[1].network.parameters())
    for step in range(3):
        plain, last = (trainer.step(step)["loss"] for trainer in runs)
        torch.testing.assert_close(plain, last, rtol=1e-4, atol=1e-5)
