"""An observer is called at every step of every method, changes no bit, and can stop the work."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from torch import Tensor

from helpers.small_training import TINY
from ttaps.adaptation import METHODS, Method
from ttaps.adaptation.engine import CarriedState
from ttaps.model import Network

SHORT = {"steps": 3, "num_views": 4, "num_pairs": 2, "entropy_margin": 0.0, "redundancy_margin": 0.0}


def short(name: str) -> Method:
    kind = METHODS[name]
    return kind(**{field.name: SHORT[field.name] for field in fields(kind) if field.name in SHORT})


def network_for(method: Method) -> Network:
    norm = "batch" if method.name == "bn" else TINY.norm
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Network(replace(TINY, heads=("rotation", "predictor"), norm=norm)).eval()


@pytest.fixture
def image() -> Tensor:
    pixels = np.random.default_rng(0).integers(0, 256, (1, 3, TINY.image_size, TINY.image_size), dtype=np.uint8)
    return torch.from_numpy(pixels)


@pytest.mark.parametrize("name", METHODS)
def test_it_is_called_at_every_step_and_changes_no_bit(name: str, image: Tensor) -> None:
    method = short(name)
    network = network_for(method)
    told: list[tuple[float | None, Tensor]] = []
    state = CarriedState(observer=lambda loss, probabilities: told.append((loss, probabilities)))
    trace = method.adapt(network, image, [7], state)
    assert torch.equal(trace, method.adapt(network, image, [7]))
    assert torch.equal(trace, torch.stack([probabilities for _, probabilities in told], dim=1))
    losses = [loss for loss, _ in told]
    assert losses[0] is None
    assert [loss is not None for loss in losses[1:]] == [bool(method.steps)] * (len(trace[0]) - 1)


@pytest.mark.parametrize("name", [name for name in METHODS if short(name).steps])
def test_what_it_raises_stops_the_work_at_that_step(name: str, image: Tensor) -> None:
    method, told = short(name), []

    def observe(loss: float | None, probabilities: Tensor) -> None:
        told.append(loss)
        if len(told) == 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        method.adapt(network_for(method), image, [7], CarriedState(observer=observe))
    assert len(told) == 2
