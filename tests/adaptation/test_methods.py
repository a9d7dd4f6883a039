"""The promises every method keeps, on our network and on nets that are not ours."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ttaps
from helpers.other_nets import made, some_images
from ttaps.adaptation import (
    METHODS,
    Augment,
    Bn,
    Cotta,
    Eata,
    Memo,
    Method,
    Sar,
    Source,
    T3a,
    Tent,
    Ttaps,
    ensure_supported,
    supported_methods,
)
from ttaps.adaptation.engine import Adam, CarriedState, Momentum, UpdateRule, gradient_steps
from ttaps.cli.info import methods_of
from ttaps.errors import UsageError
from ttaps.model import ModelConfig, Network
from ttaps.model.checkpoint import Model
from ttaps.model.functional import adapted_names
from ttaps.views import SwavViews

FILTERED = [Sar(online=True, lr=5.0, entropy_margin=0.0), Eata(online=True, entropy_margin=0.0, redundancy_margin=0.0)]
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.3, 0.25)
ANYWHERE: list[Method] = [
    Source(),
    Augment(num_views=4),
    Tent(steps=2, lr=0.05),
    Tent(optimizer="sgd", lr=0.5),
    Sar(lr=20.0, entropy_margin=0.0),
    Eata(lr=0.5, entropy_margin=0.0),
    T3a(online=False),
    Cotta(online=False, num_views=4, steps=2),
    Memo(lr=0.5, num_views=4, steps=2),
]
CASES = [
    *(("preact", method) for method in ANYWHERE),
    *(("batchnorm", method) for method in (*ANYWHERE, Bn(source_weight=2.0))),
    ("two layers", Memo(lr=0.5, num_views=3)),
]


def named(value: object) -> str:
    return getattr(value, "name", str(value))


def bits(module: nn.Module) -> list[Any]:
    """Return all that adaptation might change in a module."""
    tensors = [(name, tensor.clone()) for name, tensor in copy.copy(module).state_dict().items()]
    wanted = [(name, weight.requires_grad, weight.grad is None) for name, weight in module.named_parameters()]
    return [
        tensors,
        wanted,
        [layer.training for layer in module.modules()],
        [len(layer._modules) for layer in module.modules()],
    ]


@pytest.mark.parametrize(("kind", "method"), CASES, ids=named)
def test_a_module_of_the_users_is_adapted_and_left_alone_in_every_bit(kind: str, method: Method) -> None:
    module, images = made(kind), some_images()
    next(module.children()).eval()  # some layers in one mode, some in the other
    next(iter(module.parameters())).requires_grad_(False)
    before = bits(module)
    result = ttaps.adapt(module, images, method, normalize=(MEAN, STD))
    tensors, *rest = bits(module)
    assert rest == before[1:]
    assert all(torch.equal(new, old) for (_, new), (_, old) in zip(tensors, before[0], strict=True))
    plain = (images / 255 - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
    with torch.no_grad():
        expected = made(kind).eval()(plain).softmax(-1)
    torch.testing.assert_close(result.before, expected, rtol=0, atol=1e-6)
    assert result.classes == ("0", "1", "2", "3")
    if method.name != "source":
        assert (result.probabilities - result.before).abs().max() > 1e-4


@pytest.mark.parametrize(("kind", "method"), CASES, ids=named)
def test_order_and_batching_change_nothing(kind: str, method: Method) -> None:
    module, images, keys = made(kind), some_images(), [11, 12, 13, 14, 15]
    together = method.adapt(module, images / 255, keys)
    turned = method.adapt(module, images.flip(0) / 255, keys[::-1]).flip(0)
    alone = torch.cat([method.adapt(module, images[i : i + 1] / 255, keys[i : i + 1]) for i in range(5)])
    assert torch.equal(together, turned)
    assert torch.equal(together, alone)


def test_average_is_the_mean_over_the_views_that_ttaps_adapts_to(tiny_network: Network) -> None:
    image, adapted = some_images()[:1] / 255, Ttaps(view_pool=6, num_pairs=3, views=SwavViews(scale=(0.5, 1.0)))
    with torch.no_grad():
        each = [tiny_network(view[None]).softmax(-1)[0] for view in adapted.draw_views(image, 11)]
    trace = Augment(num_views=6, views=adapted.views).adapt(tiny_network, image, [11])[0]
    torch.testing.assert_close(trace[1], sum(each) / 6, rtol=0, atol=1e-6)
    unchanged = SwavViews(scale=(1.0, 1.0), ratio=(1.0, 1.0), flip_p=0, jitter_strength=0, gray_p=0, blur_p=0)
    trace = Augment(views=unchanged).adapt(tiny_network, image, [11])[0]
    torch.testing.assert_close(trace[1], trace[0], rtol=0, atol=1e-6)


def test_average_leaves_alone_what_ttaps_leaves_alone(tiny_network: Network) -> None:
    images = some_images() / 255
    surest = Source().adapt(tiny_network, images, range(5))[:, 0].amax(-1)
    middle = surest.median().item()  # at least this probability: the image in the middle is left alone too
    everywhere = Augment(num_views=4).adapt(tiny_network, images, range(5))
    trace = Augment(num_views=4, confidence_threshold=middle).adapt(tiny_network, images, range(5))
    adapted = Ttaps(num_pairs=2, view_pool=4, steps=1, lr=10.0, confidence_threshold=middle).adapt(
        tiny_network, images, range(5)
    )
    left = (trace[:, 0] == trace[:, 1]).all(-1)
    assert left.tolist() == (adapted[:, 0] == adapted[:, 1]).all(-1).tolist() == (surest >= middle).tolist()
    assert torch.equal(trace[~left], everywhere[~left])


@pytest.mark.parametrize("kind", ["preact", "batchnorm"])
@pytest.mark.parametrize(
    "method", [Tent(steps=0), Memo(steps=0), Memo(lr=0.0, num_views=2), Bn(source_weight=1e12)], ids=named
)
def test_no_step_or_no_step_size_is_the_source_model(kind: str, method: Method) -> None:
    module, images = made(kind), some_images() / 255
    source = Source().adapt(module, images, range(5))
    trace = method.adapt(module, images, range(5))
    assert (trace - source).abs().max() < 1e-6


def test_no_step_size_is_the_source_model_where_no_statistics_change() -> None:
    module, images = made("preact"), some_images() / 255
    source = Source().adapt(module, images, range(5))
    assert (Tent(steps=3, lr=0.0).adapt(module, images, range(5)) - source).abs().max() < 1e-6


@pytest.mark.parametrize(
    "method",
    [Memo(online=True), Tent(online=True), T3a(), *FILTERED, Ttaps(online=True, num_pairs=4, steps=2)],
    ids=named,
)
def test_online_keeps_the_weights_in_one_call_as_in_several(method: Any, tiny_network: Network) -> None:
    images, memory = some_images(), CarriedState()
    whole = method.adapt(tiny_network, images, range(5))
    parts = [method.adapt(tiny_network, images[i : i + 1], [i], memory) for i in range(5)]
    assert torch.equal(whole, torch.cat(parts))
    alone = method.adapt(tiny_network, images[4:], [4])
    assert torch.equal(whole[4, 0], alone[0, 0])  # before: always the model as it was trained
    assert not torch.equal(whole[4, -1], alone[0, -1])
    turned = method.adapt(tiny_network, images.flip(0), [4, 3, 2, 1, 0]).flip(0)
    assert not torch.equal(whole, turned)


def test_online_continues_from_the_last_weights(tiny_network: Network) -> None:
    """The same image twice, with the same views, is one image with twice the steps."""
    image = some_images(1)
    method, longer = (Tent(optimizer="sgd", lr=0.1, steps=steps, online=True) for steps in (2, 4))
    twice = method.adapt(tiny_network, image.repeat(2, 1, 1, 1), [0, 0])
    assert torch.equal(twice[1, -1], longer.adapt(tiny_network, image, [0])[0, -1])


def test_leak_is_an_optimizer_that_is_never_reset(tiny_network: Network) -> None:
    """What the authors' code does: the weights are restored before every image, the optimizer's momentum is not."""
    method, images = (
        Ttaps(steps=2, num_pairs=4, lr=0.5, momentum=0.9, tau=0.1, epsilon=0.05, keep_momentum=True),
        some_images(3),
    )
    net = copy.deepcopy(tiny_network)
    moving = [weight for name, weight in net.named_parameters() if name in adapted_names(net, method.adapt_params)]
    optimizer = torch.optim.SGD(moving, method.lr, method.momentum)
    want = []
    for number, image in enumerate(images.split(1)):
        net.load_state_dict(tiny_network.state_dict())
        for views in method.draw_views(image, number).split(2 * method.num_pairs):
            optimizer.zero_grad()
            method.loss(net.scores(net.project(views))).backward()
            optimizer.step()
        want.append(net(image).softmax(-1)[0].detach())
    got = method.adapt(tiny_network, images, range(3))[:, -1]
    clean = replace(method, keep_momentum=False).adapt(tiny_network, images, range(3))[:, -1]
    torch.testing.assert_close(got, torch.stack(want), rtol=0, atol=1e-5)
    assert torch.equal(got[0], clean[0])
    assert (got[1:] - clean[1:]).abs().max() > 1e-4


@pytest.mark.parametrize(
    ("rule", "optimizer"),
    [
        (Momentum(0.9, 0.01), lambda w: torch.optim.SGD(w, 0.1, momentum=0.9, weight_decay=0.01)),
        (Momentum(), lambda w: torch.optim.SGD(w, 0.1)),
        (Adam(), lambda w: torch.optim.Adam(w, 0.1)),
    ],
)
def test_rules_are_torchs(rule: UpdateRule, optimizer: Any) -> None:
    start = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def loss(weight: Tensor) -> Tensor:
        return (weight.sin() * weight).sum() + weight[0].square().sum()

    got = list(gradient_steps(lambda weights, step: loss(weights["w"]), {"w": start}, 5, 0.1, CarriedState(rule=rule)))
    weight = start.clone().requires_grad_()
    stepper = optimizer([weight])
    for step in range(5):
        stepper.zero_grad()
        loss(weight).backward()
        stepper.step()
        torch.testing.assert_close(got[step]["w"], weight.detach(), rtol=1e-12, atol=1e-12)


def test_adam_in_half_precision_is_that_of_single_precision_rounded() -> None:
    """Squares and ε vanish in half precision: a gradient of zero, or a small one, must not become 0 / 0."""
    gradient = {"w": torch.tensor([0.0, 1e-4, -3.0])}
    half, single = Adam(), Adam()
    for _ in range(3):
        got = half({}, {"w": gradient["w"].half()})["w"]
        want = single({}, {"w": gradient["w"].half().float()})["w"]
        assert torch.equal(got, want.half())


NO_NORMS, NORMS = ["source", "augment", "t3a", "lame", "cotta", "memo"], ["tent", "eata", "sar"]


def test_a_network_says_which_methods_it_can_serve(tiny_network: Network) -> None:
    assert supported_methods(made("preact")) == [*NO_NORMS[:4], *NORMS, *NO_NORMS[4:]]
    assert supported_methods(made("batchnorm")) == ["source", "augment", "bn", *NO_NORMS[2:4], *NORMS, *NO_NORMS[4:]]
    assert supported_methods(made("two layers")) == NO_NORMS
    assert supported_methods(nn.Flatten()) == ["source", "augment"]
    assert {"source", "tent", "memo", "ttaps"} <= set(supported_methods(tiny_network, "jt"))
    assert "ttaps" not in supported_methods(tiny_network, "baseline")  # its prototypes were never trained


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize("heads", [(), ("rotation",), ("predictor",), ("rotation", "predictor")])
def test_info_says_without_a_network_which_methods_one_supports(norm: Any, heads: Any) -> None:
    config = ModelConfig(depth=8, width=16, norm=norm, heads=heads)
    network = Network(config)
    for objective in ("", "baseline", "jt", "jt+ent", "ttt", "mt3"):
        assert methods_of(config, objective) == supported_methods(network, objective)


@pytest.mark.parametrize(
    ("kind", "method", "words"),
    [
        (
            "preact",
            Bn(),
            r"Method 'bn' needs BatchNorm layers .*GroupNorm\); this model supports source, augment, t3a, lame, tent, .*, memo\.$",
        ),
        (
            "two layers",
            Tent(),
            r"'tent' needs norm layers .*none\); this model supports source, augment, t3a, lame, cotta, memo\.$",
        ),
        ("batchnorm", Ttaps(), r"'ttaps' needs prototypes; this model supports source, augment, bn, t3a, .*, memo\.$"),
    ],
    ids=named,
)
def test_what_a_model_cannot_serve_is_refused_in_one_line(kind: str, method: Method, words: str) -> None:
    with pytest.raises(UsageError, match=words) as error:
        ttaps.adapt(made(kind), some_images(), method)
    assert "\n" not in str(error.value)


def test_objective_of_a_model_counts(tiny_network: Network) -> None:
    model = Model(tiny_network, tuple("abcd"), info={"objective": "baseline"})
    with pytest.raises(UsageError, match=r"needs training with objective jt or jt\+ent \(this model's is baseline\)"):
        ttaps.adapt(model, some_images())
    ensure_supported(Ttaps(), tiny_network)  # nothing is known of its training: the user's word is taken


def test_threads_may_share_a_module_that_is_being_trained() -> None:
    """Each call wraps it anew; its BatchNorm must not go back into training while another thread predicts."""
    module, images = made("batchnorm"), some_images()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    alone = ttaps.adapt(module, images, "source").trace
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: ttaps.adapt(module, images, "source").trace, range(24)))
    assert all(torch.equal(one, alone) for one in found)
    assert module.training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_a_module_in_float64_is_adapted_in_float64() -> None:
    result = ttaps.adapt(made("preact").double(), some_images(), "memo", num_views=3)
    assert result.trace.dtype == torch.float64


def test_every_method_says_who_and_what(tiny_network: Network) -> None:
    for name, kind in METHODS.items():
        method = kind()
        assert method.name == name
        assert method.adapts
        assert isinstance(method.trained_by, Sequence)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (Bn, {"source_weight": -1.0}),
        (Tent, {"batch_size": 0}),
        (Tent, {"lr": float("nan")}),
        (Memo, {"num_views": 0}),
        (Memo, {"steps": -1}),
    ],
)
def test_wrong_settings_are_refused(kind: Any, settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(settings))} must be at least"):
        kind(**settings)
