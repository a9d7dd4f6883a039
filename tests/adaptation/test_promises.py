"""What the methods with a head of their own promise: TTT and MT3, on one network that has both heads."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch

from helpers.small_training import TINY
from ttaps.adaptation import Mt3, Ttt
from ttaps.adaptation.engine import CarriedState
from ttaps.errors import UsageError
from ttaps.model import Network

IMAGES = torch.randint(0, 256, (5, 3, 8, 8), generator=torch.Generator().manual_seed(2), dtype=torch.uint8)
METHODS = (Ttt(steps=3, num_views=4, lr=0.5), Mt3(steps=2, num_pairs=4, lr=0.5))

each_method = pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)


@pytest.fixture
def network() -> Network:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Network(replace(TINY, heads=("rotation", "predictor"), classifier_scale=10.0)).eval()


@pytest.mark.parametrize("setting", [{"steps": 0}, {"lr": 0.0}])
@each_method
def test_no_steps_or_no_step_size_is_the_source_model(
    network: Network, method: Ttt | Mt3, setting: dict[str, Any]
) -> None:
    method = replace(method, **setting)
    trace = method.adapt(network, IMAGES, range(5))
    assert trace.shape == (5, method.steps + 1, 4)
    assert (trace - network(IMAGES).softmax(-1)[:, None]).abs().max() < 1e-6


@each_method
def test_the_network_is_bitwise_unchanged(network: Network, method: Ttt | Mt3) -> None:
    before = deepcopy(network.train().state_dict())
    method.adapt(network, IMAGES, range(5))
    assert network.training
    assert all(torch.equal(weight, before[name]) for name, weight in network.state_dict().items())
    assert all(weight.requires_grad and weight.grad is None for weight in network.parameters())


@each_method
def test_order_and_batching_change_nothing(network: Network, method: Ttt | Mt3) -> None:
    keys = [11, 12, 13, 14, 15]
    together = method.adapt(network, IMAGES, keys)
    turned = method.adapt(network, IMAGES.flip(0), keys[::-1]).flip(0)
    alone = torch.cat([method.adapt(network, IMAGES[i : i + 1], keys[i : i + 1]) for i in range(5)])
    assert torch.equal(together, turned)
    assert torch.equal(together, alone)
    assert not torch.equal(together[:, -1], together[:, 0])
    assert torch.equal(replace(method, steps=1).adapt(network, IMAGES, keys), together[:, :2])


@each_method
def test_online_keeps_the_weights(network: Network, method: Ttt | Mt3) -> None:
    online, memory = replace(method, online=True), CarriedState()
    whole = online.adapt(network, IMAGES, range(5))
    parts = [online.adapt(network, IMAGES[i : i + 1], [i], memory) for i in range(5)]
    assert torch.equal(whole, torch.cat(parts))
    episodic = method.adapt(network, IMAGES, range(5))
    assert torch.equal(whole[0], episodic[0])
    assert torch.equal(whole[:, 0], episodic[:, 0])
    assert not torch.equal(whole[1:, -1], episodic[1:, -1])
    assert (online.protocol, method.protocol) == ("online", "episodic")


@pytest.mark.parametrize("setting", [{"steps": -1}, {"lr": float("nan")}])
@each_method
def test_wrong_settings_are_refused(method: Ttt | Mt3, setting: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(setting))} must be at least"):
        replace(method, **setting)
