"""The network: its size by hand, its invariants, and that a cut changes nothing but what may be adapted."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from helpers.small_training import TINY
from ttaps.adaptation import Memo, Method, Source, Ttaps
from ttaps.config import from_dict
from ttaps.errors import UsageError
from ttaps.losses import soft_codes, swapped_prediction
from ttaps.model import ADAPT_PARAMS, ModelConfig, Network, SplitNetwork
from ttaps.model.functional import adapted_names


class Plain(nn.Module):
    """A user's own backbone that says only how many features it returns."""

    features = 6

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 6, 3), nn.GroupNorm(2, 6), nn.ReLU())
        self.layer4 = nn.Conv2d(6, 6, 1)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.layer4(self.body(x)).mean((2, 3))
        return features


class Mean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))


class Pieces(Plain):
    """The same with ``pieces()``, so that it can be cut inside."""

    def __init__(self, last: str = "layer4") -> None:
        super().__init__()
        self.last = last
        self.mean = Mean()

    def pieces(self) -> list[tuple[str, nn.Module]]:
        return [("body", self.body), (self.last, self.layer4), ("mean", self.mean)]


@pytest.fixture
def images() -> Tensor:
    return torch.randint(0, 256, (5, 3, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


def count(module: nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters())


def resnet_weights(blocks: int, width: int) -> int:
    """Weights of the backbone by hand: 3x3 and 1x1 kernels without bias, two numbers a channel for each norm."""
    total = 9 * 3 * width + 2 * width
    inputs = width
    for outputs in (width, 2 * width, 4 * width):
        total += 9 * inputs * outputs + (2 * blocks - 1) * 9 * outputs**2 + 2 * blocks * 2 * outputs
        total += (inputs * outputs + 2 * outputs) * (inputs != outputs)
        inputs = outputs
    return total


def test_resnet26_has_the_number_of_weights_of_the_paper() -> None:
    network = Network(ModelConfig())
    assert count(network.backbone) == resnet_weights(blocks=4, width=32) == 1_471_264
    assert count(network.projector) == 128 * 256 + 256 + 256 * 128 + 128
    assert network.prototypes.shape == (300, 128)
    assert count(network.classifier) == 128 * 10 + 10
    convolutions = [m for m in network.backbone.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3)]
    assert len(convolutions) + 1 == 26  # with the classifier, as ResNets are counted


@pytest.mark.parametrize(("depth", "width"), [(8, 16), (14, 16), (20, 32)])
def test_other_depths_and_widths_follow_the_same_formula(depth: int, width: int) -> None:
    assert count(Network(ModelConfig(depth=depth, width=width)).backbone) == resnet_weights((depth - 2) // 6, width)


def test_shapes(tiny_network: Network, images: Tensor) -> None:
    z = tiny_network.project(images)
    assert z.shape == (5, 16)
    assert tiny_network.scores(z).shape == (5, 30)
    assert tiny_network(images).shape == (5, 4)
    assert Network(ModelConfig()).get_submodule("backbone.stage3")(torch.zeros(1, 64, 16, 16)).shape == (1, 128, 8, 8)


def test_uint8_and_float_images_give_the_same_logits(tiny_network: Network, images: Tensor) -> None:
    assert torch.equal(tiny_network(images), tiny_network(images.float() / 255))


def test_other_integers_are_refused(tiny_network: Network, images: Tensor) -> None:
    with pytest.raises(UsageError, match=r"uint8 or float in \[0, 1\], not int64"):
        tiny_network(images.long())


def test_the_input_is_normalized_inside() -> None:
    network = Network(TINY)
    flat = torch.tensor(TINY.mean).view(1, 3, 1, 1).expand(1, 3, 8, 8)
    torch.testing.assert_close(network.normalize(flat), torch.zeros(1, 3, 8, 8))
    torch.testing.assert_close(
        network.normalize(flat + torch.tensor(TINY.std).view(1, 3, 1, 1)), torch.ones(1, 3, 8, 8)
    )


def test_scores_are_cosines(tiny_network: Network, images: Tensor) -> None:
    z = tiny_network.project(images)
    torch.testing.assert_close(z.norm(dim=1), torch.ones(5))
    torch.testing.assert_close(tiny_network.prototypes.norm(dim=1), torch.ones(30))
    expected = torch.cosine_similarity(z[:, None], tiny_network.prototypes[None], dim=-1)
    torch.testing.assert_close(tiny_network.scores(z), expected, rtol=0, atol=1e-6)


def test_prototypes_are_put_back_on_the_sphere(tiny_network: Network) -> None:
    before = tiny_network.prototypes.detach().clone()
    with torch.no_grad():
        tiny_network.prototypes.mul_(3)
    tiny_network.renormalize_prototypes()
    torch.testing.assert_close(tiny_network.prototypes.detach(), before)


def test_smooth_stem_does_not_hear_a_checkerboard() -> None:
    torch.manual_seed(0)
    rough = Network(TINY).backbone.get_parameter("stem.0.weight")
    torch.manual_seed(0)
    smooth = Network(dataclasses.replace(TINY, smooth_stem=True)).backbone.get_parameter("stem.0.weight")
    sign = torch.tensor([1.0, -1.0]).repeat(8)
    checkerboard = (sign * sign[:, None]).expand(1, 3, 16, 16)
    assert nn.functional.conv2d(checkerboard, smooth).abs().max() < 1e-5
    assert nn.functional.conv2d(checkerboard, rough).abs().max() > 0.1
    torch.testing.assert_close(smooth.flatten(1).norm(dim=1), rough.flatten(1).norm(dim=1))


def test_zero_init_starts_as_the_shortcuts(images: Tensor) -> None:
    torch.manual_seed(0)
    network = Network(dataclasses.replace(TINY, zero_init_residual=True))
    x = torch.rand(2, 4, 8, 8)
    assert torch.equal(network.get_submodule("backbone.stage1")(x), x)


def test_classifier_scale_scales_only_the_initial_classifier() -> None:
    networks = []
    for scale in (1.0, 10.0):
        torch.manual_seed(0)
        networks.append(Network(dataclasses.replace(TINY, classifier_scale=scale)).state_dict())
    different = [name for name in networks[0] if not torch.equal(networks[0][name], networks[1][name])]
    assert different == ["classifier.weight"]
    assert torch.equal(10 * networks[0]["classifier.weight"], networks[1]["classifier.weight"])


def test_config_survives_json() -> None:
    config = ModelConfig(num_classes=100, norm="batch", mean=(0.1, 0.2, 0.3), projector_norm=True, classifier_scale=10)
    assert from_dict(ModelConfig, json.loads(json.dumps(dataclasses.asdict(config))), where="test") == config


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"depth": 27}, "6n \\+ 2"),
        ({"depth": 2}, "6n \\+ 2"),
        ({"width": 20}, "width \\(20\\) must be a multiple of model.num_groups \\(16\\)"),
        ({"hidden_dim": 100, "projector_norm": True}, "hidden_dim \\(100\\) must be a multiple"),
        ({"num_classes": 0}, "classes must be at least 1, not 0"),
        ({"num_prototypes": -3}, "prototypes must be at least 1, not -3"),
        ({"stem_padding": -1}, "stem_padding must be at least 0, not -1"),
        ({"std": (0.2, 0.0, 0.2)}, "std must be positive"),
        ({"std": (0.2, float("nan"), 0.2)}, "std must be positive"),
        ({"mean": (float("inf"), 0.5, 0.5)}, "mean must be finite, not inf, 0.5, 0.5"),
        ({"classifier_scale": float("nan")}, "classifier_scale must be finite, not nan"),
    ],
)
def test_impossible_networks_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ModelConfig(**values)


@pytest.mark.parametrize(("padding", "sizes"), [(1, [32, 32, 16, 8]), (2, [34, 34, 17, 9])])
def test_stem_padding_2_has_the_feature_maps_of_the_authors(padding: int, sizes: list[int]) -> None:
    network = Network(ModelConfig(depth=8, width=16, stem_padding=padding))
    x, found = torch.rand(1, 3, 32, 32), []
    for name, piece in network.pieces():
        x = piece(x)
        if name.startswith(("backbone.stem", "backbone.stage")):
            found.append(x.shape[-1])
    assert found == sizes
    usual = Network(ModelConfig(depth=8, width=16)).state_dict()
    assert {name: weight.shape for name, weight in network.state_dict().items()} == {
        name: weight.shape for name, weight in usual.items()
    }


def test_batch_norm_needs_no_groups(images: Tensor) -> None:
    network = Network(dataclasses.replace(TINY, norm="batch", width=5)).eval()
    assert network(images).shape == (5, 4)


def check_cut(network: Network, adapt_params: str, images: Tensor) -> SplitNetwork:
    """Frozen then adapted must be ``project``, and only weights of f and g may be adapted."""
    cut = SplitNetwork(network, adapt_params)
    weights = cut.weights()
    assert torch.equal(cut.adapted(cut.frozen(images), weights), network.project(images))
    assert weights
    assert all(name.startswith(("backbone.", "projector.")) for name in weights)
    assert all(torch.equal(weight, network.get_parameter(name)) for name, weight in weights.items())
    return cut


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize("adapt_params", ADAPT_PARAMS)
def test_a_cut_changes_nothing(adapt_params: str, norm: str, images: Tensor) -> None:
    config = from_dict(ModelConfig, {"norm": norm, "depth": 14}, where="test", base=TINY)
    check_cut(Network(config).eval(), adapt_params, images)


@pytest.mark.parametrize("adapt_params", ADAPT_PARAMS)
def test_gradients_through_a_cut_are_those_of_the_whole_network(
    adapt_params: str, tiny_network: Network, images: Tensor
) -> None:
    def loss(z: Tensor) -> Tensor:
        scores = tiny_network.scores(z)
        codes = soft_codes(scores, 0.1)
        return swapped_prediction(scores[:2], scores[2:4], codes[:2], codes[2:4], 0.1)

    cut = SplitNetwork(tiny_network, adapt_params)
    weights = {name: weight.clone().requires_grad_() for name, weight in cut.weights().items()}
    through_cut = torch.autograd.grad(loss(cut.adapted(cut.frozen(images), weights)), list(weights.values()))
    own = [tiny_network.get_parameter(name) for name in weights]
    whole = torch.autograd.grad(loss(tiny_network.project(images)), own)
    for ours, theirs in zip(through_cut, whole, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9)
    assert any(gradient.abs().max() > 0 for gradient in whole)


def test_what_each_choice_of_weights_covers() -> None:
    network = Network(dataclasses.replace(TINY, depth=14))
    names = {adapt_params: set(adapted_names(network, adapt_params)) for adapt_params in ADAPT_PARAMS}
    theta = {name for name, _ in network.named_parameters() if not name.startswith(("prototypes", "classifier"))}
    assert names["all"] == theta
    assert names["stage3"] == {name for name in theta if ".stage3." in name}
    assert names["last_block"] == {name for name in theta if ".stage3.1." in name}
    assert names["stage3+projector"] == names["stage3"] | {name for name in theta if name.startswith("projector")}
    assert names["norm"] == {name for name in theta if ".norm" in name or name.endswith(("shortcut.1.weight", "shortcut.1.bias"))} | {
        "backbone.stem.1.weight",
        "backbone.stem.1.bias",
    }  # fmt: skip


def test_only_the_adapted_part_uses_other_weights(tiny_network: Network, images: Tensor) -> None:
    before = {name: tensor.clone() for name, tensor in tiny_network.state_dict().items()}
    cut = SplitNetwork(tiny_network, "stage3")
    moved = {name: weight + 0.1 for name, weight in cut.weights().items()}
    assert not torch.equal(cut.adapted(cut.frozen(images), moved), tiny_network.project(images))
    assert all(torch.equal(tensor, before[name]) for name, tensor in tiny_network.state_dict().items())


@pytest.mark.parametrize("adapt_params", ["stage4", "stage3+stage9", "", "prototypes", "classifier"])
def test_unknown_weights_are_refused(adapt_params: str, tiny_network: Network) -> None:
    with pytest.raises(UsageError, match=r"Known are stage3, last_block"):
        SplitNetwork(tiny_network, adapt_params)


@pytest.mark.parametrize("backbone", [Plain(), Pieces()], ids=["plain", "pieces"])
@pytest.mark.parametrize("adapt_params", ["all", "norm", "last_block", "layer4", "backbone.layer4", "layer4+projector"])
def test_a_users_own_backbone_can_be_cut(backbone: nn.Module, adapt_params: str, images: Tensor) -> None:
    cut = check_cut(Network(TINY, backbone), adapt_params, images)
    if isinstance(backbone, Pieces) and adapt_params == "last_block":
        assert set(cut.weights()) == {"backbone.layer4.weight", "backbone.layer4.bias"}
        assert cut.frozen(images).shape == (5, 6, 6, 6)


def test_pieces_under_other_names_than_the_weights_are_refused() -> None:
    with pytest.raises(UsageError, match=r"pieces\(\) must use the names"):
        SplitNetwork(Network(TINY, Pieces(last="top")), "all")


def test_features_are_counted_and_feature_maps_averaged(images: Tensor) -> None:
    assert Network(TINY, nn.Sequential(nn.Flatten())).projector.features == 192
    body = nn.Conv2d(3, 6, 3)
    maps, averaged = Network(TINY, body), Network(TINY, nn.Sequential(body, Mean()))
    averaged.load_state_dict({name.replace("backbone.", "backbone.0."): w for name, w in maps.state_dict().items()})
    torch.testing.assert_close(maps(images), averaged(images), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("backbone", "words"),
    [
        (
            nn.Flatten(2),
            r"features \(N, F\) or feature maps \(N, F, H, W\); this one returned shape \(1, 3, 64\)",
        ),
        (nn.Sequential(nn.Flatten(), nn.Linear(5, 5)), "cannot take images of 3 x 8 x 8: mat1"),
        (nn.LSTM(3, 3), "cannot take images of 3 x 8 x 8: LSTM"),
    ],
)
def test_a_module_that_is_no_backbone_gets_a_sentence(backbone: nn.Module, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Network(TINY, backbone)


@pytest.mark.parametrize("method", [Source(), Ttaps(adapt_params="projector", steps=1), Memo()])
def test_a_backbone_that_returns_another_number_of_features_is_refused_with_both(
    images: Tensor, method: Method
) -> None:
    wrong = Network(TINY, nn.Sequential(nn.Flatten()), features=100)
    with pytest.raises(UsageError, match="returns 192 features, but the network expects 100"):
        method.adapt(wrong, images, range(len(images)))
    unpooled = Network(TINY, nn.Identity(), features=192)
    with pytest.raises(UsageError, match="returns 3 features, but the network expects 192"):
        method.adapt(unpooled, images, range(len(images)))
    with pytest.raises(UsageError, match="adapt_params 'last_block', or a part of it, matches no weight"):
        adapted_names(unpooled, "last_block")
