"""TENT against the authors' way of doing it: edit the net, step the optimizer, restore."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from helpers.other_nets import made, some_images
from ttaps.adaptation import Bn, Tent
from ttaps.losses import prediction_entropy
from ttaps.model.functional import frozen_copy, use_batch_statistics


def literal(method: Tent, net: nn.Module, images: Tensor) -> Tensor:
    """Adapt a net to a batch as its authors do: statistics of the batch, an optimizer of torch over norm weights."""
    before = copy.deepcopy(net).eval()(images).softmax(-1).detach()
    net = copy.deepcopy(net).eval()
    moving: list[nn.Parameter] = []
    for layer in net.modules():
        if isinstance(layer, nn.GroupNorm | nn.BatchNorm1d | nn.BatchNorm2d) and layer.affine:
            moving += [layer.weight, layer.bias]
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            layer.track_running_stats, layer.running_mean, layer.running_var = False, None, None
    kind = torch.optim.Adam if method.optimizer == "adam" else torch.optim.SGD
    optimizer = kind(moving, lr=method.lr)
    trace = [before]
    for _ in range(method.steps):
        probabilities = net(images).softmax(-1)
        optimizer.zero_grad()
        (-(probabilities * probabilities.log()).sum(1).mean()).backward()
        optimizer.step()
        trace.append(net(images).softmax(-1).detach())
    return torch.stack(trace, dim=1)


METHODS = [
    Tent(steps=3, lr=0.05, batch_size=3, source_weight=0.0),
    Tent(steps=2, lr=0.5, batch_size=2, source_weight=0.0, optimizer="sgd"),
    # as many images as take the place of all that N stands for
    Tent(steps=2, lr=0.05, batch_size=5, source_weight=4.0),
]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["preact", "batchnorm"])
def test_equals_the_literal_way_batch_by_batch(kind: str, method: Tent) -> None:
    net, images = made(kind), some_images(5) / 255
    batches = [literal(method, net, part) for part in images.split(method.batch_size) if len(part) > 1]
    want = torch.cat(batches)
    got = method.adapt(net, images, range(5))[: len(want)]
    torch.testing.assert_close(got, want, rtol=0, atol=1e-5)
    assert (want[:, -1] - want[:, 1]).abs().max() > 1e-3  # steps large enough to tell right from wrong


@pytest.mark.parametrize(("size", "mixed"), [(1, 16.0), (3, 14.0), (17, 0.0), (20, 0.0)])
def test_training_statistics_stand_in_for_images_that_a_batch_does_not_have(size: int, mixed: float) -> None:
    """Without a step size TENT is BN adaptation: N = 16 beside one image, one less for every further one."""
    net, images = made("batchnorm").eval(), some_images(20)[:size] / 255
    by_hand = frozen_copy(net)
    use_batch_statistics(by_hand, mixed)
    got = Tent(lr=0.0, batch_size=20).adapt(net, images, range(size))[:, 1]
    torch.testing.assert_close(got, by_hand(images).softmax(-1), rtol=0, atol=1e-6)
    torch.testing.assert_close(Bn(batch_size=20).adapt(net, images, range(size))[:, 1], got, rtol=0, atol=1e-6)


def test_first_step_of_adam_by_hand() -> None:
    """A scale and a shift behind fixed features: Adam's first step is the sign of the gradient times the step size."""
    norm = nn.GroupNorm(1, 3)
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([1.0, 0.5, 2.0]))
        norm.bias.copy_(torch.tensor([0.3, 0.1, -0.2]))
    image = torch.rand(1, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    net = nn.Sequential(norm, nn.Flatten(2))
    net.append(Mean())
    normal = ((image - image.mean()) / (image.var(correction=0) + 1e-5).sqrt()).mean((2, 3))[0]
    logits = norm.weight.detach() * normal + norm.bias.detach()
    p = logits.softmax(0)
    entropy = -(p * p.log()).sum()
    slope = -p * (p.log() + entropy)  # dH / dlogits
    weight = norm.weight.detach() - 0.1 * (slope * normal).sign()
    bias = norm.bias.detach() - 0.1 * slope.sign()
    got = Tent(lr=0.1).adapt(net, image, [0])[0, 1]
    torch.testing.assert_close(got, (weight * normal + bias).softmax(0), rtol=0, atol=1e-4)


class Mean(nn.Module):
    """The mean over pixels."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(-1)


def test_entropy_of_known_predictions() -> None:
    sure, even = torch.tensor([[1000.0, 0.0, 0.0, 0.0]]), torch.zeros(1, 4)
    assert prediction_entropy(sure).item() == 0
    assert prediction_entropy(even).item() == pytest.approx(math.log(4))
    half = torch.tensor([[0.5, 0.25, 0.25]]).log()
    assert prediction_entropy(half).item() == pytest.approx(1.5 * math.log(2))
    assert prediction_entropy(torch.cat([sure, even])).item() == pytest.approx(math.log(4) / 2)


def test_optimizer_is_fresh_for_every_image() -> None:
    """An image seen twice gets the same answer twice; online it does not."""
    net, twice = made("preact"), some_images(1).repeat(2, 1, 1, 1) / 255
    first, second = Tent(lr=0.05).adapt(net, twice, [0, 0])
    assert torch.equal(first, second)
    first, second = Tent(lr=0.05, online=True).adapt(net, twice, [0, 0])
    assert not torch.equal(first, second)


def test_channels_last_is_no_harm() -> None:
    """Torch 2.13 crashes in GroupNorm's backward pass when its input is channels_last and wants no gradient."""
    net, images = made("preact"), some_images(2) / 255
    want = Tent(lr=0.05).adapt(net, images, [0, 1])
    for weight in net.parameters():
        weight.data = channels_last(weight.data)
    got = Tent(lr=0.05).adapt(net, channels_last(images), [0, 1])
    assert torch.equal(got, want)


def channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x


def test_protocol_says_what_results_depend_on() -> None:
    assert Tent().protocol == "episodic"
    assert Tent(batch_size=200).protocol == "batches of 200"
    assert Tent(batch_size=200, online=True).protocol == "online, batches of 200"
    assert Tent(continual=True).protocol == "continual"
    assert Tent(continual=True) == Tent(online=True, continual=True)
