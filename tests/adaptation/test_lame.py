"""LAME: its fixed point is stationary, its objective never rises, and without neighbors it is the source model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from helpers.other_nets import some_images
from ttaps.adaptation import Lame, Source
from ttaps.adaptation.lame import affinities, refine
from ttaps.model import Network


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def objective(z: Tensor, log_p: Tensor, affinity: Tensor) -> float:
    """Return Σ KL(zᵢ ‖ pᵢ) - ½ Σ wᵢⱼ zᵢ·zⱼ."""
    divergence = sum(float(one @ (one.log() - target)) for one, target in zip(z, log_p, strict=True))
    pairs = sum(float(affinity[i, j] * (z[i] @ z[j])) for i in range(len(z)) for j in range(len(z)))
    return divergence - pairs / 2


def test_no_neighbors_or_no_other_image_is_the_source_model(tiny_network: Network) -> None:
    images = some_images(6)
    source = Source().adapt(tiny_network, images, range(6))
    alone = Lame(num_neighbors=0).adapt(tiny_network, images, range(6))
    torch.testing.assert_close(alone, source.expand_as(alone), rtol=0, atol=1e-6)
    alone = Lame(batch_size=1).adapt(tiny_network, images, range(6))
    torch.testing.assert_close(alone, source.expand_as(alone), rtol=0, atol=1e-6)
    assert (Lame(num_neighbors=2).adapt(tiny_network, images, range(6))[:, 1] - source[:, 0]).abs().max() > 1e-3


@pytest.mark.parametrize("neighbors", [1, 3])
def test_the_fixed_point_is_stationary(neighbors: int) -> None:
    """On the simplex the gradient ln z - ln p + 1 - W z is the same for all classes of an image."""
    log_p, affinity = random(8, 4).log_softmax(-1), affinities(random(8, 3), neighbors)
    z = refine(log_p, affinity, 10_000)
    slope = z.log() - log_p - affinity @ z
    assert (slope - slope.mean(-1, keepdim=True)).abs().max() < 1e-4
    assert (z - log_p.exp()).abs().max() > 0.01


def test_the_objective_never_rises_where_affinities_are_positive_semidefinite() -> None:
    """The paper's guarantee, for a Gaussian kernel that is strong enough to turn labels."""
    log_p, features = random(7, 3).log_softmax(-1), random(7, 2)
    affinity = (-torch.cdist(features, features).square()).exp()
    values = [objective(refine(log_p, affinity, steps), log_p, affinity) for steps in range(12)]
    assert np.all(np.diff(values) <= 1e-12)
    assert values[-1] < values[0] - 0.1


def test_affinities_of_three_points_by_hand() -> None:
    """Angles of 0, 10 and 40 degrees: the first two are each other's nearest, the third's nearest is the second."""
    angles = torch.tensor([0.0, 10.0, 40.0]).deg2rad()
    lengths = torch.tensor([[1.0], [5.0], [2.0]])  # which do not count
    points = lengths * torch.stack([angles.cos(), angles.sin()], dim=1)
    want = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 0.5], [0.0, 0.5, 0.0]])
    assert torch.equal(affinities(points, 1), want)


def test_two_images_by_hand() -> None:
    """One iteration for two neighbors: each takes what the other says into its exponent."""
    p = torch.tensor([[0.8, 0.2], [0.4, 0.6]])
    got = refine(p.log(), torch.tensor([[0.0, 1.0], [1.0, 0.0]]), 1)
    first = 0.8 * np.exp(0.4) / (0.8 * np.exp(0.4) + 0.2 * np.exp(0.6))
    second = 0.4 * np.exp(0.8) / (0.4 * np.exp(0.8) + 0.6 * np.exp(0.2))
    torch.testing.assert_close(got[:, 0], torch.tensor([first, second], dtype=torch.float32), rtol=0, atol=1e-6)


def test_batches_do_not_see_each_other(tiny_network: Network) -> None:
    images = some_images(6)
    whole = Lame(batch_size=3, num_neighbors=2).adapt(tiny_network, images, range(6))
    halves = [Lame(num_neighbors=2).adapt(tiny_network, part, range(3)) for part in images.split(3)]
    assert torch.equal(whole, torch.cat(halves))
    assert Lame().protocol == "batches of 64"
