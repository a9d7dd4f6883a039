"""TTAPS' options beyond the paper: each against an identity or a slow reference; all are off by default."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from ttaps.adaptation import Augment, Source, Ttaps
from ttaps.adaptation.augment import mean_over_views
from ttaps.adaptation.engine import CarriedState, Weights
from ttaps.adaptation.ttaps import nearest_distance, to_norm_of
from ttaps.errors import UsageError
from ttaps.losses import soft_codes, swapped_prediction
from ttaps.model import ModelConfig, Network, SplitNetwork

QUICK = Ttaps(steps=3, num_pairs=4, view_pool=8, lr=0.5, tau=0.1, epsilon=0.05)
MIXED = replace(QUICK, class_codes=True, view_weights="agreement", kl_weight=0.5, predict="both")


@pytest.fixture(scope="module")
def network() -> Network:
    torch.manual_seed(1)
    return Network(ModelConfig(num_classes=5, depth=8, width=8, num_groups=4, num_prototypes=12, image_size=16)).eval()


@pytest.fixture(scope="module")
def images() -> Tensor:
    return torch.randint(0, 256, (5, 3, 16, 16), generator=torch.Generator().manual_seed(2), dtype=torch.uint8)


@pytest.fixture(scope="module")
def scores() -> Tensor:
    return torch.rand(8, 12, generator=torch.Generator().manual_seed(3)) * 2 - 1


@pytest.mark.parametrize("predict", ["views", "both"])
def test_without_a_step_the_rules_are_those_of_augment(network: Network, images: Tensor, predict: Any) -> None:
    """With a step size of 0 the adapted weights are the source's: the mean over the same views, drawn from the same keys."""
    still = replace(QUICK, lr=0.0, predict=predict).adapt(network, images, range(5))
    augmented = Augment(num_views=8, predict=predict).adapt(network, images, range(5))
    assert (still[:, 1:] - augmented[:, 1:]).abs().max() < 1e-6
    assert torch.equal(still[:, :1], Source().adapt(network, images, range(5)))
    assert (augmented[:, 1] - augmented[:, 0]).abs().max() > 1e-4


@pytest.mark.parametrize("method", [QUICK, replace(QUICK, view_pool=0), MIXED])
def test_both_is_the_mean_of_the_image_and_the_views(network: Network, images: Tensor, method: Ttaps) -> None:
    image, views, both = (
        replace(method, predict=rule).adapt(network, images, range(5)) for rule in ("image", "views", "both")
    )
    assert (both[:, 1:] - (image + views)[:, 1:] / 2).abs().max() < 1e-6
    assert torch.equal(image[:, 0], both[:, 0])


def test_consensus_of_equal_views_is_the_swapped_prediction(scores: Tensor) -> None:
    same = scores[:1].expand(8, -1)
    swapped, consensus = (replace(QUICK, test_loss=loss).loss(same) for loss in ("swapped", "consensus"))
    assert torch.isclose(swapped, consensus)


def test_consensus_is_the_mean_of_swapping_every_view_with_every_view(scores: Tensor) -> None:
    codes = soft_codes(scores, QUICK.epsilon)
    pairs = [(i, j) for i in range(8) for j in range(8)]
    each = [
        swapped_prediction(scores[i : i + 1], scores[j : j + 1], codes[i : i + 1], codes[j : j + 1], QUICK.tau)
        for i, j in pairs
    ]
    assert torch.isclose(replace(QUICK, test_loss="consensus").loss(scores), torch.stack(each).mean())


def test_class_codes_of_one_class_change_nothing_and_of_two_leave_the_likelier(scores: Tensor) -> None:
    """Where every prototype has the same class there is nothing to choose; where each is sure of one of two, Bayes' rule applies."""
    method = replace(QUICK, class_codes=True)
    one = torch.eye(5)[0].expand(12, -1)
    assert torch.allclose(method.targets(scores, one), QUICK.targets(scores, None))
    two = torch.eye(2)[torch.arange(12) % 2]
    plain, weighted = QUICK.targets(scores, None), method.targets(scores, two)
    share = plain.mean(0) @ two
    for view in range(8):
        want = [float(plain[view, k] * share[k % 2]) for k in range(12)]
        assert torch.allclose(weighted[view], torch.tensor(want) / sum(want))


def test_agreement_of_equal_views_is_equal_weights_and_an_odd_one_counts_less(scores: Tensor) -> None:
    method = replace(QUICK, view_weights="agreement")
    same = scores[:1].expand(8, -1)
    assert torch.allclose(method.targets(same, None), QUICK.targets(same, None))
    odd = torch.cat([same[:7], scores[:1].flip(1)])
    weights = method.targets(odd, None).sum(1)
    assert torch.isclose(weights.mean(), torch.tensor(1.0))
    assert weights[7] < weights[0] / 2
    views = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9]])
    by_hand = [float(view @ views.mean(0)) for view in views]
    want = sum(share * view for share, view in zip(by_hand, views, strict=True)) / sum(by_hand)
    assert torch.allclose(mean_over_views(views, "agreement")[0], want)


def test_the_prior_is_a_divergence_that_pulls_the_prediction_back(network: Network, images: Tensor) -> None:
    """KL is 0 with gradient 0 at the source, so the first step is the same; from there it pulls back."""
    split, source = SplitNetwork(network, "last_block"), network(images[:1]).softmax(-1).detach()
    draw = torch.Generator().manual_seed(4)
    other = {name: weight + torch.randn(weight.shape, generator=draw) for name, weight in split.weights().items()}
    plain = split.frozen(images[:1])
    after = network.classifier(split.adapted(plain, other)).softmax(-1).detach()
    by_hand = 3 * sum(p * math.log(p / q) for p, q in zip(source[0].tolist(), after[0].tolist(), strict=True))
    prior = replace(QUICK, kl_weight=3.0).prior(source, network, split, plain, other)
    assert prior.item() == pytest.approx(by_hand, rel=1e-3)
    free, held = (replace(QUICK, lr=0.05, kl_weight=weight).adapt(network, images, range(5)) for weight in (0.0, 300.0))
    assert (free[:, 1] - held[:, 1]).abs().max() < 1e-5
    drift = [(trace[:, -1] - trace[:, 0]).abs().sum() for trace in (free, held)]
    assert drift[1] < 0.9 * drift[0]


def test_a_normalized_step_is_as_long_as_asked(network: Network, images: Tensor) -> None:
    state = CarriedState()
    replace(QUICK, steps=1, lr=0.01, normalize_step=True, online=True).adapt(network, images[:1], [0], state)
    source = {name: dict(network.named_parameters())[name].detach() for name in state.weights or {}}

    def norm(weights: Weights) -> Tensor:
        return torch.cat([weight.flatten() for weight in weights.values()]).norm()

    moved = {name: weight - source[name] for name, weight in (state.weights or {}).items()}
    assert torch.isclose(norm(moved), 0.01 * norm(source), rtol=1e-4)


def test_each_image_is_scaled_by_its_own_gradient() -> None:
    weights, gradients = ({"a": torch.randn(3, 4, 2), "b": torch.randn(3, 5)} for _ in range(2))
    together = to_norm_of(weights, gradients, lead=1)
    for row in range(3):
        own, slope = ({name: part[row] for name, part in parts.items()} for parts in (weights, gradients))
        alone = to_norm_of(own, slope)
        assert all(torch.allclose(together[name][row], alone[name]) for name in alone)
    assert not to_norm_of(weights, {name: 0 * g for name, g in gradients.items()})["a"].any()


def test_images_near_a_prototype_are_left_alone(network: Network, images: Tensor) -> None:
    with torch.no_grad():
        distances = nearest_distance(network.scores(network.project(images)))
        by_hand = torch.stack([1 - network.prototypes @ z for z in network.project(images)]).amin(1)
    assert torch.allclose(distances, by_hand, atol=1e-6)
    bound = float(distances.sort().values[1:3].mean())
    full, part = (replace(QUICK, shift_threshold=t).adapt(network, images, range(5)) for t in (0.0, bound))
    for row, whole, distance in zip(part, full, distances, strict=True):
        assert torch.equal(row, whole[:1].expand_as(whole) if distance < bound else whole)


@pytest.mark.parametrize("method", [QUICK, Augment(num_views=4), replace(QUICK, patience=1)])
def test_a_temperature_keeps_labels_and_the_first_entry(network: Network, images: Tensor, method: Any) -> None:
    plain = method.adapt(network, images, range(5))
    soft = replace(method, temperature=2.0).adapt(network, images, range(5))
    assert torch.equal(soft[:, 0], plain[:, 0])
    assert torch.equal(soft.argmax(-1), plain.argmax(-1))
    roots = plain[:, 1:].sqrt()
    assert (soft[:, 1:] - roots / roots.sum(-1, keepdim=True)).abs().max() < 1e-6


@pytest.mark.parametrize(
    "method",
    [
        MIXED,
        replace(MIXED, test_loss="consensus", normalize_step=True, lr=0.02, momentum=0.9),
        replace(QUICK, predict="views", view_pool=0, temperature=1.5, patience=1, confidence_threshold=0.3),
        replace(QUICK, shift_threshold=0.6, class_codes=True, codes="hard"),
    ],
)
def test_together_is_one_by_one(network: Network, images: Tensor, method: Ttaps) -> None:
    one_by_one = method.adapt(network, images, range(5))
    together = method.adapt_group(network, images, range(5))
    batched = method.adapt_batched(network, images, range(5))
    assert (together - one_by_one).abs().max() < 1e-5
    assert batched is not None
    assert (batched - one_by_one).abs().max() < 1e-5


@pytest.mark.parametrize("settings", [{"temperature": 0.0}, {"kl_weight": -1.0}, {"shift_threshold": -0.1}])
def test_wrong_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(settings))):
        replace(QUICK, **settings)
