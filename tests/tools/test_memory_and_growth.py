"""Memory against memory that is known."""

from __future__ import annotations

import operator

import pytest

from memory_and_growth import COUNTS, growth, peak_memory
from ttaps.bench import sample_images
from ttaps.model import Network


def test_peak_memory_is_that_of_the_call_and_not_of_its_parent() -> None:
    held = b"x" * (400 << 20)  # more than the call needs: a child that began with this would find nothing
    assert peak_memory(operator.mul, b"x", 200 << 20) == pytest.approx(200, abs=5)
    assert len(held) == 400 << 20


def test_growth_is_relative_to_one_image(tiny_network: Network) -> None:
    found = growth(tiny_network, sample_images(max(COUNTS)), rounds=1)
    assert list(found) == list(COUNTS)
    assert found[1].tolist() == [1.0]
    assert all((number > 0).all() for number in found.values())
