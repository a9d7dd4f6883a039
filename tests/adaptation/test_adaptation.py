"""TTAPS against a literal Algorithm 1, and the promises every method keeps."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import ttaps
from ttaps.adaptation import Method, Source, Ttaps
from ttaps.adaptation.engine import CarriedState
from ttaps.adaptation.spec import parse_method
from ttaps.errors import UsageError
from ttaps.losses import soft_codes, swapped_prediction
from ttaps.model import ADAPT_PARAMS, ModelConfig, Network
from ttaps.model.checkpoint import Model
from ttaps.model.functional import adapted_names

CLASSES = tuple("abcde")
QUICK = Ttaps(steps=3, num_pairs=4, lr=0.5)


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


@pytest.mark.parametrize("method", [QUICK, Source()])
def test_order_and_batching_change_nothing(network: Network, images: Tensor, method: Method) -> None:
    keys = [11, 12, 13, 14, 15]
    together = method.adapt(network, images, keys)
    turned = method.adapt(network, images.flip(0), keys[::-1]).flip(0)
    alone = torch.cat([method.adapt(network, images[i : i + 1], keys[i : i + 1]) for i in range(5)])
    again = method.adapt(network, images, keys)
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
    ],
)
def test_together_is_one_by_one(network: Network, images: Tensor, method: Ttaps) -> None:
    """What a GPU does, done on the CPU: all images in one batch, each with weights of its own."""
    one_by_one = method.adapt(network, images, range(5))
    together = method.adapt_group(network, images, range(5))
    assert (together - one_by_one).abs().max() < 1e-5


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


def test_what_is_no_method_is_refused(network: Network, images: Tensor) -> None:
    with pytest.raises(UsageError, match="or a method object, not NoneType"):
        ttaps.adapt(network, images, None)  # type: ignore[arg-type]


def test_arrays_are_understood_as_images_are_read(network: Network, images: Tensor) -> None:
    model, size = Model(network, CLASSES), images.shape[-1]
    first = ttaps.adapt(model, images[0], "source").trace
    pixels = images[0].permute(1, 2, 0).numpy()
    assert torch.equal(ttaps.adapt(model, pixels, "source").trace, first)
    assert torch.equal(ttaps.adapt(model, images.permute(0, 2, 3, 1), "source")[0].trace, first)
    assert (ttaps.adapt(model, pixels / 255, "source").trace - first).abs().max() < 1e-6
    for larger in (
        pixels.repeat(3, 0).repeat(2, 1),
        pixels.repeat(2, 0)[..., 0],
    ):  # cropped and resized, as a file is
        as_file = ttaps.adapt(model, Image.fromarray(larger), "source")
        assert torch.equal(ttaps.adapt(model, larger, "source").trace, as_file.trace)
    gray = pixels[..., :1]
    assert torch.equal(ttaps.adapt(model, gray, "source").trace, ttaps.adapt(model, gray[..., 0], "source").trace)
    for wrong, words in (
        (pixels.astype(np.float32), f"float32 from {pixels.min()} to {pixels.max()}"),
        (np.zeros((size, size, 5), np.uint8), rf"not uint8 of shape \({size}, {size}, 5\)"),
        (np.zeros((9, 9, 3)), r"uint8 of shape \(3, H, W\).*not float64 of shape \(9, 9, 3\)"),
        (None, "not NoneType"),
    ):
        with pytest.raises(UsageError, match=words):
            ttaps.adapt(model, wrong, "source")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"ttaps\.load returns"):
        ttaps.adapt("cifar10", pixels)  # type: ignore[arg-type]


def test_settings_in_brackets_are_settings(network: Network, images: Tensor) -> None:
    model = Model(network, CLASSES)
    written = ttaps.adapt(model, images[0], "ttaps[steps=2,num_pairs=2]", lr=0.3).trace
    assert torch.equal(written, ttaps.adapt(model, images[0], steps=2, num_pairs=2, method="ttaps", lr=0.3).trace)


def test_what_a_method_is_called_is_no_setting() -> None:
    with pytest.raises(UsageError, match="unknown key 'name'"):
        parse_method("ttaps", {"name": "mine"})


def test_results_as_plain_values_and_in_a_line(network: Network, images: Tensor) -> None:
    model = Model(network, CLASSES)
    many = ttaps.adapt(model, images[:2], "ttaps[steps=2,num_pairs=2,lr=1]")
    assert repr(many) == "Result(2 images, 2 steps, 5 classes)"
    one = many[0]
    found = one.to_dict()
    assert found["adapted"] is one.adapted is True
    assert found["trace"] == one.trace.tolist()
    assert torch.equal(one.before, one.trace[0])
    assert (found["label"], found["probability"]) == (one.label, float(one.probabilities.max()))
    after, before = (f"{CLASSES[int(p.argmax())]} {float(p.max()):.1%}" for p in (one.probabilities, one.before))
    assert repr(one) == f"Result({after}, before: {before})"
    alone = ttaps.adapt(model, images[0], "ttaps[confidence_threshold=0]")
    assert not alone.adapted
    assert repr(alone) == f"Result({before}, not adapted)"
    for several in (lambda: many.adapted, many.to_dict):
        with pytest.raises(UsageError, match="several images"):
            several()


def test_the_package_shows_what_it_has() -> None:
    assert {"adapt", "load"} <= set(dir(ttaps))


def test_python_interface(network: Network, images: Tensor) -> None:
    model = Model(network, CLASSES)
    one = ttaps.adapt(model, images[0], steps=2, num_pairs=2)
    assert one.label in CLASSES
    assert one.trace.shape == (3, 5)
    assert torch.equal(one.probabilities, one.trace[-1])
    many = ttaps.adapt(model, images, steps=2, num_pairs=2)
    assert many.labels[0] == one.label
    assert torch.equal(next(iter(many)).trace, one.trace)
    assert [many[0].label, many[-1].label] == [many.labels[0], many.labels[-1]]
    floats = ttaps.adapt(model, images[0].float() / 255, steps=0)
    assert (floats.probabilities - one.before).abs().max() < 1e-6
    mixed = ttaps.adapt(model, [images[0], images[1].float() / 255], steps=2, num_pairs=2)
    assert torch.equal(next(iter(mixed)).trace, one.trace)
    turned = ttaps.adapt(model, images[0].numpy()[:, :, ::-1], steps=0)
    assert torch.equal(turned.before, ttaps.adapt(model, images[0].flip(2), steps=0).before)
    with pytest.raises(UsageError, match="at least one image"):
        ttaps.adapt(model, [])
    with pytest.raises(UsageError, match="to the method object itself"):
        ttaps.adapt(model, images[0], QUICK, steps=3)
    with pytest.raises(UsageError, match="several images"):
        _ = many.label
    with pytest.raises(UsageError, match="shape"):
        ttaps.adapt(model, torch.zeros(3, 8, 8))
    with pytest.raises(UsageError, match="one key per image"):
        ttaps.adapt(model, images, keys=[1])
