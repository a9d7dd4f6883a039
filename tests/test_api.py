"""The Python interface: what ``ttaps.adapt`` takes, what it refuses, and what it returns."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import ttaps
from helpers.other_nets import made, some_images
from ttaps.adaptation import Ttaps
from ttaps.errors import UsageError
from ttaps.model import ModelConfig, Network
from ttaps.model.checkpoint import Model

CLASSES = tuple("abcde")
QUICK = Ttaps(steps=3, num_pairs=4, lr=0.5)
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.3, 0.25)


@pytest.fixture(scope="module")
def network() -> Network:
    torch.manual_seed(1)
    return Network(ModelConfig(num_classes=5, depth=8, width=8, num_groups=4, num_prototypes=12, image_size=16)).eval()


@pytest.fixture(scope="module")
def images() -> Tensor:
    return torch.randint(0, 256, (5, 3, 16, 16), generator=torch.Generator().manual_seed(2), dtype=torch.uint8)


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


def test_images_for_a_module_are_arrays_with_names_for_its_logits() -> None:
    module, images = made("preact"), some_images()
    assert ttaps.adapt(module, images[0], "source", classes=tuple("abcd")).label in "abcd"
    with pytest.raises(UsageError, match="such as size=64"):
        ttaps.adapt(module, "image.png", "source")
    with pytest.raises(UsageError, match="4 logits, but 3 classes"):
        ttaps.adapt(module, images, "source", classes=tuple("abc"))


def test_normalize_is_for_modules_of_the_users(tiny_network: Network) -> None:
    model, images = Model(tiny_network, tuple("abcd")), some_images()
    for ours in (model, tiny_network):
        with pytest.raises(UsageError, match="are for your own modules"):
            ttaps.adapt(ours, images, "source", normalize=(MEAN, STD))
    with pytest.raises(UsageError, match="three means and three positive standard deviations"):
        ttaps.adapt(made("preact"), images, "source", normalize=(MEAN, (1.0, 0.0, 1.0)))
    assert ttaps.adapt(tiny_network, images, "source").classes == ("0", "1", "2", "3")
