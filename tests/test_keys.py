"""Keys are the same everywhere and for ever: stored results and trained models depend on them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from ttaps.keys import generator, key


def test_keys_are_pinned() -> None:
    assert key() == 8238016292129134938
    assert key(0) == 6711488920161924273
    assert key("a") == 552439110572495161
    assert key(0, "cifar10-c", "fog", 5, 17) == 4038753023202679849


def test_different_parts_give_different_keys() -> None:
    parts: list[tuple[str | int, ...]] = [
        (),
        (0,),
        ("0",),
        (0, 0),
        ("00",),
        (1, 2),
        (2, 1),
        (12,),
        ("1", 2),
        ("a", "b"),
        ("ab",),
    ]
    assert len({key(*each) for each in parts}) == len(parts)
    grid = itertools.product(range(3), ("fog", "snow"), range(1, 6), range(200))
    assert len({key(*each) for each in grid}) == 3 * 2 * 5 * 200


def test_keys_fit_a_seed() -> None:
    assert all(0 <= key(index) < 2**63 for index in range(1000))


def test_a_numpy_integer_is_a_number_like_any_other() -> None:
    assert key(0, *np.array([5])) == key(0, 5)


def test_a_float_is_no_key() -> None:
    values: list[int] = [*np.array([0.5])]
    with pytest.raises(TypeError):
        key(*values)


def test_a_generator_is_a_function_of_its_parts() -> None:
    draws = [torch.rand(4, generator=generator(*parts)) for parts in ((0, "a"), (0, "a"), (0, "b"))]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
