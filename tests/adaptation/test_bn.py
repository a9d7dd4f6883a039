"""BN: the mixture of statistics against sums written out, and against torch at both ends."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from helpers.other_nets import made, some_images
from ttaps.adaptation import Bn
from ttaps.model.functional import BatchStatistics, frozen_copy, use_batch_statistics


def layer() -> nn.BatchNorm2d:
    found = next(layer for layer in made("batchnorm").eval().modules() if isinstance(layer, nn.BatchNorm2d))
    assert found.affine
    return found


def features(images: int = 3) -> Tensor:
    return torch.randn(images, 6, 5, 4, generator=torch.Generator().manual_seed(0)) * 2 + 1


@pytest.mark.parametrize("source_weight", [0.0, 1.0, 16.0])
@pytest.mark.parametrize("images", [1, 3])
def test_mixture_is_the_papers_for_mean_and_variance(source_weight: float, images: int) -> None:
    norm, x = layer(), features(images)
    got = BatchStatistics(norm, source_weight)(x)
    source_mean, source_variance = norm.get_buffer("running_mean"), norm.get_buffer("running_var")
    for channel in range(6):
        values = x[:, channel]
        test_mean = values.sum() / values.numel()
        test_variance = (values - test_mean).square().sum() / values.numel()
        mean = (source_weight * source_mean[channel] + images * test_mean) / (source_weight + images)
        variance = (source_weight * source_variance[channel] + images * test_variance) / (source_weight + images)
        want = norm.weight[channel] * (values - mean) / (variance + norm.eps).sqrt() + norm.bias[channel]
        torch.testing.assert_close(got[:, channel], want, rtol=1e-5, atol=1e-5)


def test_no_source_weight_is_batch_norm_in_training_mode() -> None:
    norm, x = layer(), features()
    torch.testing.assert_close(BatchStatistics(norm, 0.0)(x), norm.train()(x), rtol=1e-5, atol=1e-5)


def test_a_large_source_weight_is_batch_norm_in_evaluation_mode() -> None:
    norm, x = layer(), features()
    torch.testing.assert_close(BatchStatistics(norm, 1e9)(x), norm(x), rtol=1e-5, atol=1e-5)


def test_whole_net_is_a_net_whose_statistics_were_mixed_by_hand() -> None:
    """Layer by layer, one image: put the mixture into the running statistics and let torch do the rest."""
    net, image, source_weight = made("batchnorm").eval(), some_images(1) / 255, 16.0
    by_hand, x = frozen_copy(net), image
    for part in by_hand.children():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            values = x.reshape(1, x.shape[1], -1)[0]
            for name, own in (("running_mean", values.mean(1)), ("running_var", values.var(1, correction=0))):
                part.get_buffer(name).mul_(source_weight / (source_weight + 1)).add_(own / (source_weight + 1))
        x = part(x)
    got = Bn(source_weight).adapt(net, image, [0])[0, 1]
    torch.testing.assert_close(got, x[0].softmax(-1), rtol=0, atol=1e-6)


def test_layers_without_statistics_of_training_take_the_images() -> None:
    net = nn.Sequential(nn.Conv2d(3, 2, 3), nn.BatchNorm2d(2, track_running_stats=False))
    mixed, x = frozen_copy(net), torch.rand(2, 3, 6, 6)
    use_batch_statistics(mixed, 16.0)
    torch.testing.assert_close(mixed(x), net(x).detach(), rtol=1e-5, atol=1e-5)
    assert "this network's norm layers: BatchNorm2d" in str(Bn().missing_requirement(net))
