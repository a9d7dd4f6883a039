"""MEMO against a step by hand, and its loss against sums written out."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from helpers.other_nets import made, some_images
from ttaps.adaptation import Memo
from ttaps.losses import marginal_entropy
from ttaps.model.network import Normalize


def literal(method: Memo, net: nn.Module, image: Tensor, key: int) -> Tensor:
    """Adapt as the authors do: SGD over all weights of the net itself, views at every step, then the plain image."""
    net = copy.deepcopy(net).eval()
    optimizer = torch.optim.SGD(net.parameters(), lr=method.lr)
    trace = [net(image).softmax(-1)[0].detach()]
    for step in range(method.steps):
        mean = net(method.draw_views(image, key, step)).softmax(-1).mean(0)
        optimizer.zero_grad()
        (-(mean * mean.log()).sum()).backward()
        optimizer.step()
        trace.append(net(image).softmax(-1)[0].detach())
    return torch.stack(trace)


@pytest.mark.parametrize("kind", ["preact", "batchnorm", "two layers"])
def test_equals_the_literal_way_after_every_step(kind: str) -> None:
    net, image, method = made(kind), some_images(1) / 255, Memo(steps=3, lr=0.2, num_views=5)
    got, want = method.adapt(net, image, [7])[0], literal(method, net, image, 7)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-5)
    assert (want[-1] - want[0]).abs().max() > 1e-3


def test_one_step_on_two_layers_by_hand() -> None:
    """The chain rule written out in float64, without autograd."""
    image, method = some_images(1).double() / 255, Memo(lr=0.3, num_views=6)
    net = made("two layers").double()
    first, second = (layer for layer in net.children() if isinstance(layer, nn.Linear))
    w1, b1, w2, b2 = (t.detach() for t in (first.weight, first.bias, second.weight, second.bias))
    x = method.draw_views(image, 3, 0).double().flatten(1)
    hidden = (x @ w1.T + b1).tanh()
    p = (hidden @ w2.T + b2).softmax(1)
    mean = p.mean(0)
    to_mean = -(mean.log() + 1) / len(p)  # dH / dp of each view
    to_logits = p * (to_mean - (p * to_mean).sum(1, keepdim=True))
    to_hidden = (to_logits @ w2) * (1 - hidden.square())
    w2, b2 = w2 - 0.3 * to_logits.T @ hidden, b2 - 0.3 * to_logits.sum(0)
    w1, b1 = w1 - 0.3 * to_hidden.T @ x, b1 - 0.3 * to_hidden.sum(0)
    want = ((image.flatten(1) @ w1.T + b1).tanh() @ w2.T + b2).softmax(1)[0]
    front = Normalize((0.0,) * 3, (1.0,) * 3).double()  # views come as float32
    torch.testing.assert_close(method.adapt(nn.Sequential(front, net), image, [3])[0, 1], want, rtol=0, atol=1e-12)


def test_marginal_entropy_of_known_predictions() -> None:
    """Sure of two different classes: the mean is even between them. Sure of one: zero."""
    sure = 1000 * torch.eye(4)
    assert marginal_entropy(sure[:2]).item() == pytest.approx(math.log(2))
    assert marginal_entropy(sure).item() == pytest.approx(math.log(4))
    assert marginal_entropy(sure[:1].repeat(7, 1)).item() == pytest.approx(0, abs=2e-7)  # the last bit of ln 7
    p = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]], dtype=torch.float64)
    mean = [(a + b) / 2 for a, b in zip(*p.tolist(), strict=True)]
    want = -sum(share * math.log(share) for share in mean)
    assert marginal_entropy(p.log()).item() == pytest.approx(want, rel=1e-14)


def test_views_depend_on_key_and_step_alone() -> None:
    image, method = some_images(1), Memo(num_views=4)
    assert torch.equal(method.draw_views(image, 1, 0), method.draw_views(image, 1, 0))
    assert not torch.equal(method.draw_views(image, 1, 0), method.draw_views(image, 1, 1))
    assert not torch.equal(method.draw_views(image, 1, 0), method.draw_views(image, 2, 0))
