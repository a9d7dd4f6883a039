"""EATA: TENT where nothing of its own is on, and its filters, weights and penalty written out."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from helpers.other_nets import made, some_images
from ttaps.adaptation import Eata, Tent
from ttaps.adaptation import eata as module
from ttaps.adaptation.eata import FISHER, MEAN, SOURCE, fisher_information
from ttaps.adaptation.engine import CarriedState
from ttaps.errors import UsageError
from ttaps.losses import prediction_entropies
from ttaps.model.functional import Functional, norm_weights

OFF: dict[str, Any] = {"entropy_margin": 0.0, "redundancy_margin": 0.0}


@pytest.mark.parametrize("online", [False, True])
@pytest.mark.parametrize("kind", ["preact", "batchnorm"])
def test_with_both_margins_off_it_is_tent_with_sgd(kind: str, online: bool) -> None:
    net, images = made(kind), some_images(6) / 255
    shared: dict[str, Any] = {"lr": 0.5, "batch_size": 3, "steps": 2, "momentum": 0.9, "online": online}
    want = Tent(optimizer="sgd", **shared).adapt(net, images, range(6))
    torch.testing.assert_close(Eata(**shared, **OFF).adapt(net, images, range(6)), want, rtol=0, atol=1e-6)
    assert (want[:, -1] - want[:, 0]).abs().max() > 0.01


def test_loss_of_known_predictions() -> None:
    """Of three images one is too uncertain; the others count exp(E₀ - H)."""
    p = torch.tensor([[0.9, 0.1], [0.5, 0.5], [0.8, 0.2]])
    entropies = [-sum(x * math.log(x) for x in row) for row in p.tolist()]
    limit = 0.8 * math.log(2)
    want = sum(math.exp(limit - entropies[i]) * entropies[i] for i in (0, 2)) / 2
    state = CarriedState()
    found = Eata(entropy_margin=0.8).loss(lambda weights: p.log(), {}, state)
    assert isinstance(found, Tensor)
    assert found.item() == pytest.approx(want, rel=1e-5)
    torch.testing.assert_close(state.memory[MEAN], torch.tensor([0.85, 0.15]))


def test_redundant_predictions_are_left_out_and_the_mean_follows_the_others() -> None:
    p, state = torch.tensor([[0.9, 0.1], [0.1, 0.9]]), CarriedState(memory={MEAN: torch.tensor([1.0, 0.0])})
    found = Eata(entropy_margin=0.0, redundancy_margin=0.4).loss(lambda weights: p.log(), {}, state)
    assert isinstance(found, Tensor)
    assert found.item() == pytest.approx(prediction_entropies(p[1:].log()).item(), rel=1e-5)
    torch.testing.assert_close(state.memory[MEAN], torch.tensor([0.91, 0.09]))
    again = {MEAN: torch.tensor([1.0, 0.0])}
    assert Eata(redundancy_margin=0.05).loss(lambda weights: p.log(), {}, CarriedState(memory=again)) is None


def test_fisher_information_is_the_mean_square_of_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FISHER_BATCH", 2)
    net, images = made("preact").eval(), some_images(4) / 255
    found = fisher_information(Functional(net, norm_weights(net)), images)
    squares = {name: torch.zeros_like(value) for name, value in found.items()}
    for batch in images.split(2):
        net.zero_grad()
        logits = net(batch)
        F.cross_entropy(logits, logits.argmax(1)).backward()
        for name, weight in net.named_parameters():
            if name in squares and weight.grad is not None:
                squares[name] += weight.grad**2 / 2
    assert len(found) == 10
    assert max(value.max() for value in found.values()) > 0
    for name, value in found.items():
        torch.testing.assert_close(value, squares[name], rtol=1e-4, atol=1e-10)


def test_penalty_pulls_back_to_the_source_by_its_fisher_information() -> None:
    weights = {"a": torch.tensor([2.0, 3.0], requires_grad=True)}
    memory = {f"{FISHER}a": torch.tensor([0.5, 0.0]), f"{SOURCE}a": torch.tensor([1.0, 1.0])}
    penalty = Eata(fisher_weight=4.0).penalty(weights, memory)
    assert isinstance(penalty, Tensor)
    assert penalty.item() == pytest.approx(4 * 0.5 * 1.0)
    penalty.backward()
    assert weights["a"].grad is not None
    assert weights["a"].grad.tolist() == [4.0, 0.0]


def test_a_heavy_penalty_keeps_a_stream_near_the_source() -> None:
    net, images = made("preact"), some_images(6) / 255
    shared: dict[str, Any] = {"lr": 0.01, "online": True, "momentum": 0.0, "fisher_data": "sample", "fisher_images": 64}
    moved = []
    for weight in (0.0, 1.0, 100.0):
        state = CarriedState()
        Eata(**shared, **OFF, fisher_weight=weight).adapt(net, images, range(6), state)
        assert state.weights is not None
        fisher = {name: state.memory[f"{FISHER}{name}"] for name in state.weights}
        away = {name: value - state.memory[f"{SOURCE}{name}"] for name, value in state.weights.items()}
        moved.append(sum(float((fisher[name] * away[name] ** 2).sum()) for name in away))
    assert all(more > less for more, less in pairwise(moved))


def test_images_of_another_size_are_refused() -> None:
    net = made("preact")
    net.image_size = 64  # type: ignore[assignment]
    with pytest.raises(UsageError, match="fisher_data=cifar10 has images of 32 pixels, the model takes 64"):
        Eata(fisher_data="cifar10").check_settings(net)
    Eata().check_settings(net)
