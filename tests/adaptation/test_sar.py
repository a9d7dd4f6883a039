"""SAR: TENT where nothing of its own is on, and its two gradients written out."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import nn

from helpers.other_nets import made, some_images
from ttaps.adaptation import Sar, Tent
from ttaps.adaptation.engine import CarriedState
from ttaps.adaptation.sar import AVERAGE
from ttaps.losses import prediction_entropies
from ttaps.model.functional import norm_weights

OFF: dict[str, Any] = {"rho": 0.0, "entropy_margin": 0.0, "recovery_entropy": 0.0, "frozen_share": 0.0}


@pytest.mark.parametrize("online", [False, True])
@pytest.mark.parametrize("kind", ["preact", "batchnorm"])
def test_with_everything_off_it_is_tent_with_sgd(kind: str, online: bool) -> None:
    net, images = made(kind), some_images(6) / 255
    shared: dict[str, Any] = {"lr": 0.5, "batch_size": 3, "steps": 2, "momentum": 0.9, "online": online}
    got = Sar(**shared, **OFF).adapt(net, images, range(6))
    want = Tent(optimizer="sgd", **shared).adapt(net, images, range(6))
    torch.testing.assert_close(got, want, rtol=0, atol=1e-6)
    assert (want[:, -1] - want[:, 0]).abs().max() > 0.01


def literal(method: Sar, net: nn.Module, images: torch.Tensor) -> torch.Tensor:
    """Take the authors' step: climb by ρ along the unit gradient, take the gradient there, come back, descend."""
    net = copy.deepcopy(net).eval()
    named = dict(net.named_parameters())
    moving = [named[name] for name in method.adapted_weights(net)]
    limit = method.entropy_margin * math.log(4)
    entropies = prediction_entropies(net(images))
    reliable = entropies < limit
    slopes = torch.autograd.grad(entropies[reliable].mean(), moving)
    length = math.sqrt(sum(float(slope.square().sum()) for slope in slopes))
    with torch.no_grad():
        for weight, slope in zip(moving, slopes, strict=True):
            weight.add_(method.rho / length * slope)
    entropies = prediction_entropies(net(images))[reliable]
    second = torch.autograd.grad(entropies[entropies < limit].mean(), moving)
    with torch.no_grad():
        for weight, slope, step in zip(moving, slopes, second, strict=True):
            weight.sub_(method.rho / length * slope + method.lr * step)
        return net(images).softmax(-1)


def test_a_step_is_the_literal_one() -> None:
    net, images = made("preact"), some_images(6) / 255
    own = prediction_entropies(net.eval()(images)) / math.log(4)
    margin = own.sort().values[2:4].mean().item()  # three images are reliable
    method = Sar(lr=20.0, batch_size=6, rho=2.0, entropy_margin=margin)
    got = method.adapt(net, images, range(6))[:, 1]
    torch.testing.assert_close(got, literal(method, net, images), rtol=0, atol=1e-5)
    every = Sar(lr=20.0, batch_size=6, rho=2.0, entropy_margin=0.0).adapt(net, images, range(6))[:, 1]
    flat = Sar(lr=20.0, batch_size=6, rho=0.0, entropy_margin=margin).adapt(net, images, range(6))[:, 1]
    assert min((got - every).abs().max(), (got - flat).abs().max()) > 1e-3


def test_no_reliable_image_is_no_step_even_with_momentum() -> None:
    net, images, state = made("preact"), some_images(2) / 255, CarriedState()
    method = Sar(lr=0.5, online=True, entropy_margin=0.0)
    method.adapt(net, images, [0, 1], state)
    moved = state.weights
    assert moved is not None
    trace = Sar(lr=0.5, online=True, entropy_margin=1e-9).adapt(net, images, [0, 1], state)
    assert state.weights is moved
    assert trace.shape == (2, 2, 4)


def test_recovery_returns_to_the_trained_weights() -> None:
    net, images = made("preact"), some_images(4) / 255
    online = Sar(lr=0.5, online=True, entropy_margin=0.0, recovery_entropy=0.0)
    always = Sar(lr=0.5, online=True, entropy_margin=0.0, recovery_entropy=10.0)
    alone = Sar(lr=0.5, entropy_margin=0.0).adapt(net, images, range(4))
    assert torch.equal(always.adapt(net, images, range(4)), alone)
    assert not torch.equal(online.adapt(net, images, range(4)), alone)


def test_recovery_watches_a_running_mean() -> None:
    net, images, state = made("preact"), some_images(2) / 255, CarriedState()
    entropies = prediction_entropies(net.eval()(images)).tolist()
    Sar(lr=0.0, rho=0.0, online=True, entropy_margin=0.0).adapt(net, images, [0, 1], state)
    assert state.memory[AVERAGE].item() == pytest.approx(0.9 * entropies[0] + 0.1 * entropies[1], rel=1e-5)


def test_the_last_norm_layers_are_frozen() -> None:
    net = made("preact")
    names = norm_weights(net)
    assert len(names) == 10
    assert Sar().adapted_weights(net) == names[:8]
    assert Sar(frozen_share=0.0).adapted_weights(net) == names
    assert Sar(frozen_share=1.0).adapted_weights(net) == names[:1]
