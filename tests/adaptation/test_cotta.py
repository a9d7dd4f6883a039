"""CoTTA: its step written out, and what is left of it at either end of its settings."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from helpers.other_nets import made, some_images
from ttaps.adaptation import Cotta, Source, Tent
from ttaps.adaptation.engine import CarriedState, Weights
from ttaps.errors import UsageError
from ttaps.model.functional import Functional, use_batch_statistics
from ttaps.views import SwavViews

VIEWS: dict[str, Any] = {"lr": 5.0, "optimizer": "sgd", "augment_threshold": 1.0, "num_views": 2, "batch_size": 3}
SAME = SwavViews(scale=(1.0, 1.0), ratio=(1.0, 1.0), flip_p=0, jitter_strength=0, gray_p=0, blur_p=0)
seen: list[Tensor] = []


class Watched(Cotta):
    """CoTTA whose views can be looked at."""

    def draw_copy(self, images: Tensor, draws: torch.Generator) -> Tensor:
        seen.append(super().draw_copy(images, draws))
        return seen[-1]


def run(method: Cotta, images: Tensor, kind: str = "preact") -> tuple[Tensor, Weights, Weights]:
    """Return the trace, the weights and the teacher's."""
    state = CarriedState()
    seen.clear()
    trace = method.adapt(made(kind), images, range(len(images)), state)
    assert state.weights is not None
    return trace, state.weights, state.memory


def equal(one: Weights, other: Weights) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def test_steps_are_the_literal_ones() -> None:
    """Two batches, a step each, by torch.optim and in-place updates, with the same views."""
    images, student, teacher = some_images(6) / 255, made("preact").eval(), made("preact").eval()
    trace, weights, mean = run(Watched(momentum=0.9, ema_decay=0.7, restore_p=0.0, **VIEWS), images)
    assert len(seen) == 4
    assert not torch.equal(seen[0], seen[1])
    optimizer, targets = torch.optim.SGD(student.parameters(), lr=5.0, momentum=0.9), []
    for batch, views in zip(images.split(3), (seen[:2], seen[2:]), strict=True):
        targets.append(((teacher(views[0]) + teacher(views[1])) / 2).softmax(-1).detach())
        optimizer.zero_grad()
        (-targets[-1] * student(batch).log_softmax(-1)).sum(1).mean().backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
                slow.mul_(0.7).add_(fast, alpha=0.3)
    torch.testing.assert_close(trace[:, 1], torch.cat(targets), rtol=0, atol=1e-5)
    for found, net in ((weights, student), (mean, teacher)):
        torch.testing.assert_close(found, {n: w.detach() for n, w in net.named_parameters()}, rtol=0, atol=1e-5)
    source = Functional(made("preact")).weights()
    assert max(float((weight - source[name]).abs().max()) for name, weight in mean.items()) > 0.01
    before = Source().adapt(made("preact"), images, range(6))[:, 0]
    torch.testing.assert_close(trace[:, 0], before, rtol=0, atol=1e-6)


def test_a_teacher_without_memory_is_the_student_and_one_that_never_moves_is_the_source() -> None:
    images, source = some_images(6) / 255, Functional(made("preact")).weights()
    _, weights, teacher = run(Cotta(ema_decay=0.0, restore_p=0.0, **VIEWS), images)
    torch.testing.assert_close(teacher, weights)
    assert not equal(teacher, source)
    _, weights, teacher = run(Cotta(ema_decay=1.0, restore_p=0.0, **VIEWS), images)
    assert equal(teacher, source)
    assert not equal(weights, source)


def test_restoring_with_probability_one_is_a_fresh_student_for_every_batch() -> None:
    images, source = some_images(6) / 255, Functional(made("preact")).weights()
    _, weights, teacher = run(Cotta(ema_decay=0.5, restore_p=1.0, **VIEWS), images)
    assert equal(weights, source)
    assert not equal(teacher, source)  # it has seen the student before


def test_restored_weights_are_some_and_those_of_training() -> None:
    images, source = some_images(3) / 255, Functional(made("preact")).weights()
    _, moved, _ = run(Cotta(ema_decay=0.5, restore_p=0.0, **VIEWS), images)
    _, some, _ = run(Cotta(ema_decay=0.5, restore_p=0.3, **VIEWS), images)
    restored = total = 0
    for name, weight in some.items():
        differs = moved[name] != source[name]
        assert ((weight == source[name]) | (weight == moved[name])).all()
        restored, total = restored + int((weight == source[name])[differs].sum()), total + int(differs.sum())
    deviation = (0.3 * 0.7 / total) ** 0.5
    assert restored / total == pytest.approx(0.3, abs=4 * deviation)


@pytest.mark.parametrize("above", [True, False])
def test_views_are_asked_below_the_threshold_of_the_trained_models_confidence(above: bool) -> None:
    images = some_images(3) / 255
    confidence = made("preact").eval()(images).softmax(-1).amax(-1).mean().item()
    threshold = confidence + (1e-4 if above else -1e-4)
    trace, _, _ = run(Cotta(augment_threshold=threshold, batch_size=3, num_views=4), images)
    plain = torch.allclose(trace[:, 1], trace[:, 0], rtol=0, atol=1e-6)
    assert plain is not above


def test_views_that_change_nothing_leave_the_prediction() -> None:
    images = some_images(3) / 255
    trace, _, _ = run(Cotta(augment_threshold=1.0, batch_size=3, num_views=4, views=SAME), images)
    torch.testing.assert_close(trace[:, 1], trace[:, 0], rtol=0, atol=1e-5)


def test_batch_norm_has_the_statistics_of_the_batch_in_teacher_and_student() -> None:
    images, net = some_images(6) / 255, made("batchnorm")
    classifier = Functional(net)
    use_batch_statistics(classifier.copy)
    want = classifier(images, {}).softmax(-1)
    method = Cotta(augment_threshold=0.0, batch_size=6, source_weight=0.0)
    torch.testing.assert_close(run(method, images, "batchnorm")[0][:, 1], want, rtol=0, atol=1e-6)
    _, weights, _ = run(
        Cotta(**VIEWS | {"augment_threshold": 0.0, "batch_size": 6, "restore_p": 0.0}), images, "batchnorm"
    )
    # the student is the teacher: a step towards its own prediction is none
    torch.testing.assert_close(weights, classifier.weights(), rtol=0, atol=1e-4)


def test_no_step_is_the_source_and_wrong_settings_are_refused() -> None:
    images = some_images(3) / 255
    trace = Cotta(steps=0).adapt(made("preact"), images, range(3))
    assert torch.equal(trace, Source().adapt(made("preact"), images, range(3)))
    for wrong in ({"ema_decay": 1.1}, {"restore_p": -0.1}, {"augment_threshold": 2.0}, {"num_views": 0}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            Cotta(**wrong)


def test_it_is_online_unless_told_otherwise() -> None:
    assert Cotta().protocol == "online"
    assert Cotta(online=False).protocol == Tent().protocol == "episodic"
