"""T3A against its definition: supports by class, filtered by entropy, and their centroids in place of the classifier."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import ttaps
from helpers.other_nets import made, some_images
from ttaps.adaptation import Source, T3a
from ttaps.adaptation.engine import CarriedState
from ttaps.errors import UsageError
from ttaps.model import Network
from ttaps.model.functional import last_linear


def literal(network: Network, images: Tensor, kept: int) -> Tensor:
    """Return the labels of images one after the other: sorted Python lists of supports, nothing shared with the package."""
    weight = network.classifier.weight.detach()
    supports: list[list[tuple[float, Tensor]]] = [[] for _ in weight]

    def add(label: int, feature: Tensor) -> None:
        p = network.classifier(feature).softmax(-1).detach()
        supports[label].append((-(p * p.log()).sum().item(), feature / feature.norm()))

    for label, row in enumerate(weight):
        add(label, row)
    found = []
    for image in images.split(1):
        z = network.project(image)[0].detach()
        add(int(network.classifier(z).argmax()), z)
        centroids = [
            torch.stack([one for _, one in sorted(own, key=lambda it: it[0])[:kept]]).mean(0) for own in supports
        ]
        found.append(int(torch.stack([z @ c / c.norm() for c in centroids]).argmax()))
    return torch.tensor(found)


@pytest.mark.parametrize("kept", [1, 2, 100])
def test_labels_are_those_of_the_literal_way(tiny_network: Network, kept: int) -> None:
    images = some_images(24)
    got = T3a(num_supports=kept).adapt(tiny_network.eval(), images, range(24))
    assert torch.equal(got[:, 1].argmax(-1), literal(tiny_network, images, kept))


def test_without_supports_of_images_it_is_the_source_model() -> None:
    """Rows of equal length and no bias: then centroids that are rows alone give the logits of the classifier."""
    net, images = made("preact").eval(), some_images(5) / 255
    head = net.get_submodule("head")
    assert isinstance(head, nn.Linear)
    with torch.no_grad():
        head.weight.div_(head.weight.norm(dim=1, keepdim=True)).mul_(3.0)
        head.bias.zero_()
    logits, features, classifier = last_linear(net, images)
    rows = {"feature": classifier.weight, "label": torch.arange(4), "entropy": torch.zeros(4)}
    torch.testing.assert_close(T3a().predict(features, classifier, rows), logits.softmax(-1), rtol=0, atol=1e-6)


def test_an_image_by_itself_is_only_more_certain(tiny_network: Network) -> None:
    images = some_images(5)
    trace = T3a(online=False).adapt(tiny_network, images, range(5))
    source = Source().adapt(tiny_network, images, range(5))[:, 0]
    assert torch.equal(trace[:, 0], source)
    turned = T3a(online=False).adapt(tiny_network, images.flip(0), range(5)).flip(0)
    assert torch.equal(trace, turned)


def test_supports_are_bounded_and_carried(tiny_network: Network) -> None:
    images, state = some_images(12), CarriedState()
    method = T3a(num_supports=2)
    whole = method.adapt(tiny_network, images, range(12))
    parts = [method.adapt(tiny_network, images[i : i + 4], range(4), state) for i in (0, 4, 8)]
    assert torch.equal(whole, torch.cat(parts))
    assert state.memory["label"].bincount().max() <= 2
    assert (method.protocol, T3a(online=False).protocol) == ("online", "episodic")


@pytest.mark.parametrize("method", ["t3a", "lame"])
def test_a_network_without_a_last_linear_layer_is_refused(method: str) -> None:
    scaled = nn.Sequential(made("two layers"), nn.Softplus())
    with pytest.raises(UsageError, match=r"a final linear layer \(nn.Linear\) for the logits; Classifier has none"):
        ttaps.adapt(scaled, some_images(2), method)
    with pytest.raises(UsageError, match=f"'{method}' needs a last linear layer; this model supports source, augment"):
        ttaps.adapt(nn.Flatten(), some_images(2), method)
