"""Batches, their views and the losses on them against the paper's equations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from helpers.small_training import TINY
from ttaps.config import from_dict
from ttaps.data import ImageSet
from ttaps.losses import prototype_entropy, sinkhorn_codes, swapped_prediction
from ttaps.model import Network
from ttaps.training.config import AugmentationConfig, LossConfig, ScheduleConfig, TrainConfig
from ttaps.training.data import Split, TrainBatch, batch_indices
from ttaps.training.objectives import OBJECTIVES
from ttaps.training.trainer import Trainer, measure_accuracy
from ttaps.views import CropViews, SwavViews


def test_an_epoch_sees_every_image_once() -> None:
    for epoch in range(3):
        seen = torch.cat([batch_indices(48, 8, seed=0, step=6 * epoch + place) for place in range(6)])
        assert torch.equal(seen.sort().values, torch.arange(48))
        assert not torch.equal(seen, torch.arange(48))
    first = [batch_indices(48, 8, seed, step) for seed, step in ((0, 0), (0, 6), (1, 0))]
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[0], first[2])
    assert len(batch_indices(50, 8, 0, 5).unique()) == 8  # two images are left over
    assert len(batch_indices(5, 8, 0, 3).unique()) == 5  # fewer images than a batch


def make_batch(textures: ImageSet, seed: int = 0, step: int = 3, size: int = 8) -> TrainBatch:
    images, labels = torch.from_numpy(textures.images[:6]), torch.from_numpy(textures.labels[:6])
    return TrainBatch(images, labels, seed, step, size, rows=slice(6), total=6)


@pytest.mark.parametrize("kind", [SwavViews(), CropViews()])
def test_views_are_a_function_of_seed_step_and_name(kind: SwavViews | CropViews, textures: ImageSet) -> None:
    views = make_batch(textures).views(kind, "s")
    torch.manual_seed(1234)  # the global generator must not matter
    assert torch.equal(make_batch(textures).views(kind, "s"), views)
    for other in (make_batch(textures, step=4), make_batch(textures, seed=1)):
        assert not torch.equal(other.views(kind, "s"), views)
    assert not torch.equal(make_batch(textures).views(kind, "t"), views)
    assert make_batch(textures, size=6).views(kind, "s").shape == (6, 3, 6, 6)


def test_sharing_a_batch_out_changes_no_view(textures: ImageSet) -> None:
    whole = make_batch(textures)
    parts = [
        replace(whole, images=whole.images[rows], rows=rows, total=6).views(SwavViews(), "s")
        for rows in (slice(0, 4), slice(4, 6))
    ]
    torch.testing.assert_close(torch.cat(parts), whole.views(SwavViews(), "s"))


def with_loss(**settings: Any) -> TrainConfig:
    return TrainConfig(loss=LossConfig(**settings))


def with_views(**settings: Any) -> TrainConfig:
    return TrainConfig(augmentation=AugmentationConfig(**settings))


def test_joint_loss_is_equation_8(textures: ImageSet, tiny_network: Network) -> None:
    batch, config = make_batch(textures), with_loss(gamma_ce=0.3, gamma_ent=0.1)
    s, t = (tiny_network.scores(tiny_network.project(batch.views(SwavViews(), name))) for name in "st")
    swav = swapped_prediction(s, t, sinkhorn_codes(s), sinkhorn_codes(t), 0.1)
    crop = batch.views(CropViews(scale=(0.08, 1.0)), "crop")
    ce = nn.functional.cross_entropy(tiny_network(crop), batch.labels)
    ent = prototype_entropy(tiny_network.classifier(tiny_network.prototypes))
    expected = {
        ("baseline", 0.0): ce,
        ("jt", 1.0): swav + 0.3 * ce,
        ("jt+ent", 1.0): swav + 0.3 * ce + 0.1 * ent,
        ("jt+ent", 0.25): 0.25 * (swav + 0.3 * ce + 0.1 * ent) + 0.75 * ce,
    }
    for (objective, joint), value in expected.items():
        parts = OBJECTIVES[objective](tiny_network, batch, config, joint)
        torch.testing.assert_close(parts["loss"], value)
    torch.testing.assert_close(parts["swav"], swav.detach() / 2)
    mean = OBJECTIVES["jt"](tiny_network, batch, with_loss(swap_reduction="mean"), 1.0)
    torch.testing.assert_close(mean["loss"], swav / 2 + 0.3 * ce)


def test_cross_entropy_can_see_the_swav_views(textures: ImageSet, tiny_network: Network) -> None:
    batch = make_batch(textures)
    parts = OBJECTIVES["jt"](tiny_network, batch, with_views(ce_view="views"), 1.0)
    logits = [tiny_network(batch.views(SwavViews(), name)) for name in "st"]
    ce = sum(nn.functional.cross_entropy(each, batch.labels) for each in logits) / 2
    torch.testing.assert_close(parts["ce"], ce)
    alone = OBJECTIVES["baseline"](tiny_network, batch, with_views(ce_only_view="views"), 0.0)
    torch.testing.assert_close(alone["loss"], nn.functional.cross_entropy(logits[0], batch.labels))
    colored = with_views(ce_only_view="color", ce_view="color", crop_scale=(0.5, 1.0))
    alone = OBJECTIVES["baseline"](tiny_network, batch, colored, 0.0)
    logit = tiny_network(batch.views(SwavViews(scale=(0.5, 1.0)), "crop"))
    torch.testing.assert_close(alone["loss"], nn.functional.cross_entropy(logit, batch.labels))
    joint = OBJECTIVES["jt"](tiny_network, batch, colored, 1.0)
    torch.testing.assert_close(joint["ce"], alone["ce"])


@pytest.mark.parametrize("objective", list(OBJECTIVES))
def test_every_objective_is_the_cross_entropy_alone_before_its_own_loss_begins(
    objective: str, textures: ImageSet
) -> None:
    """And views, steps and weights are the same whatever the objective."""
    model = replace(TINY, heads=("rotation", "predictor"))
    late = ScheduleConfig(joint_start_epoch=1)
    config = TrainConfig(epochs=2, batch_size=16, model=model, schedule=late)
    runs = [
        Trainer(from_dict(TrainConfig, {"objective": name}, "test", config), Split.of(textures))
        for name in (objective, "baseline")
    ]
    for step in range(2):
        parts, alone = (run.step(step) for run in runs)
        assert parts.keys() == alone.keys() == {"loss", "ce", "accuracy"}
        assert parts["loss"] == alone["loss"]
    for one, other in zip(*(run.network.parameters() for run in runs), strict=True):
        assert torch.equal(one, other)


def test_accuracy_counts_right_answers(textures: ImageSet, tiny_network: Network) -> None:
    images, labels = torch.from_numpy(textures.images), torch.from_numpy(textures.labels)
    right = [tiny_network(image[None]).argmax().item() == label for image, label in zip(images, labels, strict=True)]
    assert measure_accuracy(tiny_network, textures) == sum(right) / 160
