"""TTAPS against a literal Algorithm 1, and each of its options against an identity or a slow reference."""

from __future__ import annotations

import copy
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ttaps.adaptation import Augment, Source, Ttaps
from ttaps.adaptation.augment import mean_over_views
from ttaps.adaptation.engine import CarriedState, Weights
from ttaps.adaptation.spec import parse_method
from ttaps.adaptation.ttaps import nearest_distance, to_norm_of
from ttaps.errors import UsageError
from ttaps.losses import soft_codes, swapped_prediction
from ttaps.model import ADAPT_PARAMS, ModelConfig, Network, SplitNetwork
from ttaps.model.functional import adapted_names

QUICK = Ttaps(steps=3, num_pairs=4, lr=0.5)
POOLED = replace(QUICK, view_pool=8, tau=0.1, epsilon=0.05)
MIXED = replace(POOLED, class_codes=True, view_weights="agreement", kl_weight=0.5, predict="both")


@pytest.fixture(scope="module")
def network() -> Network:
    torch.manual_seed(1)
    return Network(ModelConfig(num_classes=5, depth=8, width=8, num_groups=4, num_prototypes=12, image_size=16)).eval()


@pytest.fixture(scope="module")
def images() -> Tensor:
    return torch.randint(0, 256, (5, 3, 16, 16), generator=torch.Generator().manual_seed(2), dtype=torch.uint8)


def literal(method: Ttaps, network: Network, image: Tensor, key: int) -> Tensor:
    """Algorithm 1 as the paper prints it: the whole network, full backward, one step at a time, weights restored afterwards."""
    saved = copy.deepcopy(network.state_dict())
    views = method.draw_views(image, key).view(method.steps, 2, method.num_pairs, *image.shape[1:])
    moving = [
        weight for name, weight in network.named_parameters() if name in adapted_names(network, method.adapt_params)
    ]
    optimizer = torch.optim.SGD(moving, method.lr, method.momentum, weight_decay=method.weight_decay)
    trace = [network(image).softmax(-1)[0].detach()]
    for s, t in views:
        scores_s, scores_t = network.scores(network.project(s)), network.scores(network.project(t))
        codes_s, codes_t = soft_codes(scores_s, method.epsilon), soft_codes(scores_t, method.epsilon)
        loss = swapped_prediction(scores_s, scores_t, codes_s, codes_t, method.tau)
        network.zero_grad()
        (loss / 2 if method.swap_reduction == "mean" else loss).backward()
        optimizer.step()
        trace.append(network(image).softmax(-1)[0].detach())
    network.load_state_dict(saved)
    network.zero_grad()
    return torch.stack(trace)


@pytest.mark.parametrize("adapt_params", [*ADAPT_PARAMS, "backbone.stage2+projector"])
def test_equals_literal_algorithm_1_after_every_step(network: Network, images: Tensor, adapt_params: str) -> None:
    method = replace(QUICK, adapt_params=adapt_params, tau=0.1, epsilon=0.05)
    got = method.adapt(network, images[:1], [7])[0]
    want = literal(method, network, images[:1], 7)
    assert (got - want).abs().max() < 1e-6
    assert (want[-1] - want[0]).abs().max() > 1e-4  # the steps are large enough to tell right from wrong


def test_equals_literal_with_the_authors_momentum_decay_and_mean(network: Network, images: Tensor) -> None:
    method = replace(QUICK, momentum=0.9, weight_decay=0.01, swap_reduction="mean")
    got = method.adapt(network, images[:1], [7])[0]
    assert (got - literal(method, network, images[:1], 7)).abs().max() < 1e-6


@pytest.mark.parametrize("method", [replace(QUICK, steps=0), replace(QUICK, lr=0.0)])
def test_no_steps_or_no_step_size_is_the_source_model(network: Network, images: Tensor, method: Ttaps) -> None:
    source = Source().adapt(network, images, range(5))
    trace = method.adapt(network, images, range(5))
    assert trace.shape == (5, method.steps + 1, 5)
    assert torch.equal(trace, source.expand_as(trace))


def test_order_and_batching_change_nothing(network: Network, images: Tensor) -> None:
    keys = [11, 12, 13, 14, 15]
    together = QUICK.adapt(network, images, keys)
    turned = QUICK.adapt(network, images.flip(0), keys[::-1]).flip(0)
    alone = torch.cat([QUICK.adapt(network, images[i : i + 1], keys[i : i + 1]) for i in range(5)])
    again = QUICK.adapt(network, images, keys)
    assert torch.equal(together, turned)
    assert torch.equal(together, alone)
    assert torch.equal(together, again)


@pytest.mark.parametrize(
    "method",
    [
        replace(QUICK, tau=0.1, epsilon=0.05),
        replace(QUICK, adapt_params="all", momentum=0.9, weight_decay=0.01),
        replace(QUICK, adapt_params="norm", codes="hard"),
        replace(QUICK, codes="sinkhorn", view_pool=10),
        replace(QUICK, test_loss="nearest", confidence_threshold=0.25, patience=1),
        replace(QUICK, steps=0),
        MIXED,
        replace(MIXED, test_loss="consensus", normalize_step=True, lr=0.02, momentum=0.9),
        replace(POOLED, predict="views", view_pool=0, temperature=1.5, patience=1, confidence_threshold=0.3),
        replace(POOLED, shift_threshold=0.6, class_codes=True, codes="hard"),
    ],
)
def test_together_is_one_by_one(network: Network, images: Tensor, method: Ttaps) -> None:
    """What a GPU does, done on the CPU: all images in one batch, each with weights of its own."""
    one_by_one = method.adapt(network, images, range(5))
    together = method.adapt_group(network, images, range(5))
    batched = method.adapt_batched(network, images, range(5))
    assert (together - one_by_one).abs().max() < 1e-5
    assert batched is not None
    assert (batched - one_by_one).abs().max() < 1e-5


def test_off_the_cpu_sure_images_cost_no_views(
    network: Network, images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    confidences = network(images).softmax(-1).amax(-1).detach()
    method = replace(QUICK, tau=0.1, epsilon=0.05, confidence_threshold=float(confidences.sort().values[1:3].mean()))
    one_by_one = method.adapt(network, images, range(5))
    drawn = []
    draw = Ttaps.draw_views

    def watched(self: Ttaps, image: Tensor, key: int) -> Tensor:
        drawn.append(key)
        return draw(self, image, key)

    monkeypatch.setattr(Ttaps, "draw_views", watched)
    together = method.adapt_batched(network, images, range(5))
    assert together is not None
    assert (together - one_by_one).abs().max() < 1e-5
    assert drawn == [i for i in range(5) if confidences[i] < method.confidence_threshold]
    assert len(drawn) == 2


def test_only_our_own_backbone_is_batched_and_only_off_the_cpu(
    network: Network, images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fused attention has no derivative inside ``vmap``: backbones that have it are adapted one by one everywhere."""
    layer = nn.TransformerEncoderLayer(d_model=48, nhead=2, dim_feedforward=16, dropout=0.0, batch_first=True)
    attention = nn.Sequential(nn.Flatten(), nn.Unflatten(1, (16, 48)), layer, nn.Flatten())
    own = Network(network.config, backbone=attention, features=768).eval()
    trace = replace(QUICK, adapt_params="all", tau=0.1).adapt(own, images, range(5))
    assert trace.isfinite().all()
    assert (trace[:, 0] != trace[:, -1]).any()
    assert QUICK.adapt_batched(own, images, range(5)) is None
    monkeypatch.setattr(Ttaps, "adapt_batched", lambda method, network, images, keys: torch.tensor(len(keys)))
    assert QUICK.adapt(network, images, range(5)).shape == (5, QUICK.steps + 1, 5)  # on the CPU one at a time
    elsewhere = images.to("meta")
    assert QUICK.adapt(network, elsewhere, range(5)) == 5


def test_number_of_threads_changes_nothing(network: Network, images: Tensor) -> None:
    one = QUICK.adapt(network, images, range(5))
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        three = QUICK.adapt(network, images, range(5))
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(one, three)


def test_threads_that_adapt_at_once_leave_torch_and_the_network_as_they_were(network: Network, images: Tensor) -> None:
    alone, threads = QUICK.adapt(network, images, range(5)), torch.get_num_threads()
    torch.set_num_threads(3)
    network.train()
    try:
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _: QUICK.adapt(network, images, range(5)), range(8)))
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(torch.get_num_threads).result() == 3
        assert network.training
    finally:
        torch.set_num_threads(threads)
        network.eval()
    assert all(torch.equal(one, alone) for one in found)


def test_network_is_bitwise_unchanged(network: Network, images: Tensor) -> None:
    before = copy.deepcopy(network.state_dict())
    network.train()
    replace(QUICK, adapt_params="all", lr=1.0, momentum=0.9).adapt(network, images, range(5))
    Source().adapt(network, images, range(5))
    assert network.training
    network.eval()
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    assert all(weight.requires_grad and weight.grad is None for weight in network.parameters())


def test_first_steps_do_not_depend_on_how_many_follow(network: Network, images: Tensor) -> None:
    short = replace(QUICK, steps=1).adapt(network, images[:2], [1, 2])
    assert (short - QUICK.adapt(network, images[:2], [1, 2])[:, :2]).abs().max() < 1e-6


def test_key_decides_the_views(network: Network, images: Tensor) -> None:
    twice = images[:1].expand(3, -1, -1, -1)
    same, other, first = QUICK.adapt(network, twice, [5, 6, 5])
    assert torch.equal(same, first)
    assert not torch.equal(same, other)


def test_pool_of_all_views_taken_in_one_step_is_the_paper(network: Network, images: Tensor) -> None:
    """One step over a pool takes all its views once, in some order: pairs differ, but not the set of views."""
    method = replace(QUICK, steps=1, view_pool=8, test_loss="nearest")
    fresh = replace(method, view_pool=0).adapt(network, images[:2], [1, 2])
    assert (method.adapt(network, images[:2], [1, 2]) - fresh).abs().max() < 1e-6


def test_pool_pairs_are_different_views_of_the_pool() -> None:
    pairs = Ttaps(steps=50, num_pairs=3, view_pool=10).pairs(4)
    assert pairs.shape == (50, 6)
    assert all(len(set(row)) == 6 for row in pairs.tolist())
    assert set(pairs.flatten().tolist()) == set(range(10))


def test_sure_images_are_left_alone_and_others_are_not(network: Network, images: Tensor) -> None:
    full = QUICK.adapt(network, images, range(5))
    bound = float(full[:, 0].max(-1).values.median())
    part = replace(QUICK, confidence_threshold=bound).adapt(network, images, range(5))
    for row, whole in zip(part, full, strict=True):
        expected = whole[:1].expand_as(whole) if whole[0].max() >= bound else whole
        assert torch.equal(row, expected)


def test_images_the_model_is_wholly_sure_of_are_adapted_too_by_default() -> None:
    significant = [torch.tensor([1.0, 0.0])]
    assert not Ttaps().stops(significant)
    assert Ttaps(confidence_threshold=0.99).stops(significant)


def test_online_a_sure_image_is_seen_with_the_weights_kept_so_far(network: Network, images: Tensor) -> None:
    memory = CarriedState()
    online = replace(QUICK, online=True)
    online.adapt(network, images[:2], range(2), memory)
    kept = replace(online, lr=0.0).adapt(network, images[2:3], [2], CarriedState(memory.weights))
    sure = replace(online, confidence_threshold=0.0).adapt(network, images[2:3], [2], memory)
    assert torch.equal(sure, kept)
    assert not torch.equal(sure[0, 0], sure[0, 1])


def test_settled_stops_where_the_label_stayed_and_rose(network: Network, images: Tensor) -> None:
    full = replace(QUICK, steps=6, tau=0.1, epsilon=0.05).adapt(network, images, range(5))
    part = replace(QUICK, steps=6, tau=0.1, epsilon=0.05, patience=2).adapt(network, images, range(5))
    stops = []
    for row, whole in zip(part, full, strict=True):
        label, top = whole.argmax(-1), whole.max(-1).values
        quiet = [
            s
            for s in range(2, 7)
            if len(set(label[s - 2 : s + 1].tolist())) == 1 and top[s - 2] <= top[s - 1] <= top[s]
        ]
        stop = quiet[0] if quiet else 6
        assert torch.equal(row, torch.cat([whole[: stop + 1], whole[stop : stop + 1].expand(6 - stop, -1)]))
        stops.append(stop)
    assert min(stops) < 6  # the rule was met by some image, so the test can fail


def test_hard_codes_are_the_limit_of_soft_ones(network: Network, images: Tensor) -> None:
    hard = replace(QUICK, codes="hard").adapt(network, images[:2], [1, 2])
    sharp = replace(QUICK, epsilon=1e-5).adapt(network, images[:2], [1, 2])
    assert (hard - sharp).abs().max() < 1e-5


def test_nearest_prototype_loss_is_the_mean_cosine_distance() -> None:
    scores = torch.tensor([[0.1, 0.9], [0.5, -0.2]])
    assert torch.isclose(Ttaps(test_loss="nearest").loss(scores), torch.tensor((0.1 + 0.5) / 2))


def test_sinkhorn_codes_spread_over_prototypes() -> None:
    """With equal scores the closed form and the equal partition agree; with a favourite prototype only the latter spreads."""
    scores = torch.tensor([[0.9, 0.0], [0.9, 0.0]]).repeat(2, 1)
    free, spread = (Ttaps(codes=codes, epsilon=0.1).loss(scores) for codes in ("soft", "sinkhorn"))
    assert spread > free + 0.1


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"steps": -1}, "steps must be at least 0"),
        ({"num_pairs": 0}, "num_pairs"),
        ({"view_pool": 10}, "view_pool must be 0 or at least twice num_pairs"),
        ({"tau": 0.0}, "tau must be positive"),
        ({"temperature": 0.0}, "temperature must be positive"),
        ({"kl_weight": -1.0}, "kl_weight must be at least 0"),
        ({"shift_threshold": -0.1}, "shift_threshold must be at least 0"),
        ({"lr": float("nan")}, "lr must be at least 0"),
        ({"confidence_threshold": -1.0}, "confidence_threshold must be a probability, from 0 to 1, not -1.0"),
        ({"confidence_threshold": 1.5}, "confidence_threshold must be a probability, from 0 to 1, not 1.5"),
        ({"stepz": 3}, "did you mean 'steps'"),
        ({"codes": "sofd"}, "did you mean 'soft'"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_method("ttaps", settings)


def test_what_a_method_is_called_is_no_setting() -> None:
    with pytest.raises(UsageError, match="unknown key 'name'"):
        parse_method("ttaps", {"name": "mine"})


@pytest.fixture(scope="module")
def scores() -> Tensor:
    return torch.rand(8, 12, generator=torch.Generator().manual_seed(3)) * 2 - 1


@pytest.mark.parametrize("predict", ["views", "both"])
def test_without_a_step_the_rules_are_those_of_augment(network: Network, images: Tensor, predict: Any) -> None:
    """With a step size of 0 the adapted weights are the source's: the mean over the same views, drawn from the same keys."""
    still = replace(POOLED, lr=0.0, predict=predict).adapt(network, images, range(5))
    augmented = Augment(num_views=8, predict=predict).adapt(network, images, range(5))
    assert (still[:, 1:] - augmented[:, 1:]).abs().max() < 1e-6
    assert torch.equal(still[:, :1], Source().adapt(network, images, range(5)))
    assert (augmented[:, 1] - augmented[:, 0]).abs().max() > 1e-4


@pytest.mark.parametrize("method", [POOLED, replace(POOLED, view_pool=0), MIXED])
def test_both_is_the_mean_of_the_image_and_the_views(network: Network, images: Tensor, method: Ttaps) -> None:
    image, views, both = (
        replace(method, predict=rule).adapt(network, images, range(5)) for rule in ("image", "views", "both")
    )
    assert (both[:, 1:] - (image + views)[:, 1:] / 2).abs().max() < 1e-6
    assert torch.equal(image[:, 0], both[:, 0])


def test_consensus_of_equal_views_is_the_swapped_prediction(scores: Tensor) -> None:
    same = scores[:1].expand(8, -1)
    swapped, consensus = (replace(POOLED, test_loss=loss).loss(same) for loss in ("swapped", "consensus"))
    assert torch.isclose(swapped, consensus)


def test_consensus_is_the_mean_of_swapping_every_view_with_every_view(scores: Tensor) -> None:
    codes = soft_codes(scores, POOLED.epsilon)
    pairs = [(i, j) for i in range(8) for j in range(8)]
    each = [
        swapped_prediction(scores[i : i + 1], scores[j : j + 1], codes[i : i + 1], codes[j : j + 1], POOLED.tau)
        for i, j in pairs
    ]
    assert torch.isclose(replace(POOLED, test_loss="consensus").loss(scores), torch.stack(each).mean())


def test_class_codes_of_one_class_change_nothing_and_of_two_leave_the_likelier(scores: Tensor) -> None:
    """Where every prototype has the same class there is nothing to choose; where each is sure of one of two, Bayes' rule applies."""
    method = replace(POOLED, class_codes=True)
    one = torch.eye(5)[0].expand(12, -1)
    assert torch.allclose(method.targets(scores, one), POOLED.targets(scores, None))
    two = torch.eye(2)[torch.arange(12) % 2]
    plain, weighted = POOLED.targets(scores, None), method.targets(scores, two)
    share = plain.mean(0) @ two
    for view in range(8):
        want = [float(plain[view, k] * share[k % 2]) for k in range(12)]
        assert torch.allclose(weighted[view], torch.tensor(want) / sum(want))


def test_agreement_of_equal_views_is_equal_weights_and_an_odd_one_counts_less(scores: Tensor) -> None:
    method = replace(POOLED, view_weights="agreement")
    same = scores[:1].expand(8, -1)
    assert torch.allclose(method.targets(same, None), POOLED.targets(same, None))
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
    prior = replace(POOLED, kl_weight=3.0).prior(source, network, split, plain, other)
    assert prior.item() == pytest.approx(by_hand, rel=1e-3)
    free, held = (
        replace(POOLED, lr=0.05, kl_weight=weight).adapt(network, images, range(5)) for weight in (0.0, 300.0)
    )
    assert (free[:, 1] - held[:, 1]).abs().max() < 1e-5
    drift = [(trace[:, -1] - trace[:, 0]).abs().sum() for trace in (free, held)]
    assert drift[1] < 0.9 * drift[0]


def test_a_normalized_step_is_as_long_as_asked(network: Network, images: Tensor) -> None:
    state = CarriedState()
    replace(POOLED, steps=1, lr=0.01, normalize_step=True, online=True).adapt(network, images[:1], [0], state)
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
    full, part = (replace(POOLED, shift_threshold=t).adapt(network, images, range(5)) for t in (0.0, bound))
    for row, whole, distance in zip(part, full, distances, strict=True):
        assert torch.equal(row, whole[:1].expand_as(whole) if distance < bound else whole)


@pytest.mark.parametrize("method", [POOLED, Augment(num_views=4), replace(POOLED, patience=1)])
def test_a_temperature_keeps_labels_and_the_first_entry(network: Network, images: Tensor, method: Any) -> None:
    plain = method.adapt(network, images, range(5))
    soft = replace(method, temperature=2.0).adapt(network, images, range(5))
    assert torch.equal(soft[:, 0], plain[:, 0])
    assert torch.equal(soft.argmax(-1), plain.argmax(-1))
    roots = plain[:, 1:].sqrt()
    assert (soft[:, 1:] - roots / roots.sum(-1, keepdim=True)).abs().max() < 1e-6
