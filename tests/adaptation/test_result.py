"""The warning about adaptation that gives every image the same label: known shares of labels, and a network made to do it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import ttaps
from helpers.other_nets import made, some_images
from ttaps.adaptation.result import FEW, collapse


def test_half_the_effective_number_of_labels_is_the_limit() -> None:
    four, three, two, one = ([label % count for label in range(24)] for count in (4, 3, 2, 1))
    assert collapse(four, three) == ""
    assert collapse(four, two) == ""  # exactly half
    assert collapse(four, one).startswith("100% of 24 images have the same label (25% before)")
    assert collapse(one, one) == ""  # they always had it
    assert collapse(one, four) == ""
    assert collapse(four[: FEW - 1], one[: FEW - 1]) == ""


def test_shares_that_are_not_alike_count_less() -> None:
    """Labels of shares 1/2, 1/4, 1/8, 1/8 are worth 2^1.75 = 3.36 labels: half of that is below 2."""
    before = [0] * 12 + [1] * 6 + [2] * 3 + [3] * 3
    assert collapse(before, [0, 1] * 12) == ""
    assert collapse(before, [0] * 20 + [1] * 4).startswith("83% of 24 images")


def test_adapting_many_images_warns() -> None:
    images = torch.cat([some_images(12), 255 - some_images(12)])
    with pytest.warns(UserWarning, match=r"^tent\[steps=30,lr=1,online=true\]: \d+% of 24 images have the same label"):
        ttaps.adapt(mixed_up(), images, "tent", lr=1.0, steps=30, online=True)


def mixed_up() -> nn.Module:
    """A net whose labels depend on the image, until entropy is made small for all images with far too large steps."""
    net = made("batchnorm").eval()
    with torch.no_grad():
        net.get_parameter("10.weight").mul_(20.0)
        logits = net(torch.cat([some_images(12), 255 - some_images(12)]) / 255)
        net.get_parameter("10.bias").sub_(logits.mean(0))
    return net
