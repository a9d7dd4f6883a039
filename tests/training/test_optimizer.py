"""SGD, Muon, kernel smoothing and the EMA of weights against independent references."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch import nn

from ttaps.errors import UsageError
from ttaps.training.config import OptimizerConfig
from ttaps.training.optimizer import Optimizer, WeightEMA, newton_schulz, orthogonalized, smooth


def three_weights() -> dict[str, nn.Parameter]:
    draw = torch.Generator().manual_seed(0)
    return {name: nn.Parameter(torch.randn(shape, generator=draw)) for name, shape in
            (("kernel", (4, 3, 3, 3)), ("matrix", (5, 7)), ("vector", (6,)))}  # fmt: skip


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_sgd_is_the_recurrence(momentum: float, nesterov: bool) -> None:
    """v ← m v + g with g = ∇ + λ w; w ← w - lr v, or w - lr (g + m v) with Nesterov. By hand, to the last bit."""
    weights = three_weights()
    expected = {name: weight.detach().clone() for name, weight in weights.items()}
    velocity = {name: torch.zeros_like(weight) for name, weight in expected.items()}
    config = OptimizerConfig(lr=0.3, momentum=momentum, nesterov=nesterov, weight_decay=0.01)
    optimizer = Optimizer(weights, config)
    for step in range(6):
        scale = 1 / (1 + step)
        for name, weight in weights.items():
            weight.grad = torch.sin(3 * weight.detach() + step)
            gradient = torch.sin(3 * expected[name] + step).add(expected[name], alpha=0.01)
            velocity[name].mul_(momentum).add_(gradient)
            update = gradient.add(velocity[name], alpha=momentum) if nesterov else velocity[name]
            expected[name].add_(update, alpha=-0.3 * scale)
        optimizer.step(scale)
        for name, weight in weights.items():
            assert torch.equal(weight, expected[name]), (step, name)
    if momentum:
        assert all(torch.equal(optimizer.momentum[name], velocity[name]) for name in velocity)


@pytest.mark.parametrize("name", ["sgd", "muon"])
def test_momentum_by_name_is_all_of_the_state(name: Literal["sgd", "muon"]) -> None:
    """Copied into a new optimizer, it continues to the last bit; so a resumed run does."""
    config = OptimizerConfig(
        name=name, lr=0.1, nesterov=True, kernel_smoothing=0.1, kernel_smoothing_layers=("kernel",)
    )
    one, other = three_weights(), three_weights()
    optimizers = [Optimizer(one, config), Optimizer(other, config)]
    for step in range(5):
        if step == 3:  # the second has done nothing until now
            for key, weight in other.items():
                weight.data.copy_(one[key].detach())
                optimizers[1].momentum[key].copy_(optimizers[0].momentum[key])
        for weights, optimizer in zip((one, other), optimizers, strict=True):
            for weight in weights.values():
                weight.grad = torch.cos(weight.detach() + step)
            if step >= 3 or weights is one:
                optimizer.step(0.5)
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_weights_without_gradient_rest() -> None:
    weights = three_weights()
    before = weights["matrix"].detach().clone()
    weights["vector"].grad = torch.ones(6)
    Optimizer(weights, OptimizerConfig(weight_decay=0.1)).step(1.0)
    assert torch.equal(weights["matrix"], before)


@pytest.mark.parametrize("shape", [(3, 5, 9), (2, 9, 5), (1, 6, 6)])
def test_newton_schulz_moves_only_the_singular_values(shape: tuple[int, ...]) -> None:
    """M = U S Vᵀ becomes U p(S / ‖M‖) Vᵀ, where p is Muon's quintic, iterated: the same singular vectors, by the SVD."""
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    u, s, vh = torch.linalg.svd(matrices, full_matrices=False)
    s = s / matrices.norm(dim=(1, 2))[:, None]
    for _ in range(3):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    torch.testing.assert_close(newton_schulz(matrices, 3), u * s[:, None] @ vh, rtol=0, atol=1e-6)


def test_newton_schulz_ends_near_the_orthogonal_matrix() -> None:
    """Muon's quintic holds all but the very smallest singular values between 0.68 and 1.14 from the fifth iteration on."""
    matrices = torch.randn(4, 16, 64, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(newton_schulz(matrices, 5))
    assert values.min() > 0.68
    assert values.max() < 1.14


def test_orthogonalized_updates_keep_their_places() -> None:
    draw = torch.Generator().manual_seed(0)
    kernels = [torch.randn(4 + 2 * (i == 2), 3, 3, 3, generator=draw) for i in range(4)]
    for kernel, found in zip(kernels, orthogonalized(kernels), strict=True):
        assert found.shape == kernel.shape
        torch.testing.assert_close(found, orthogonalized([kernel])[0])


def test_muon_moves_kernels_by_orthogonal_steps_and_the_rest_by_sgd() -> None:
    sgd, muon = three_weights(), three_weights()
    for weights in (sgd, muon):
        for weight in weights.values():
            weight.grad = weight.detach().cos()
    gradient, before = sgd["kernel"].detach().cos(), sgd["kernel"].detach().clone()
    Optimizer(sgd, OptimizerConfig(weight_decay=0)).step(0.5)
    Optimizer(muon, OptimizerConfig(name="muon", muon_lr=0.2, weight_decay=0)).step(0.5)
    assert torch.equal(sgd["matrix"], muon["matrix"])
    expected = before - 0.1 * newton_schulz(gradient.reshape(1, 4, 27), 3).reshape(4, 3, 3, 3)
    torch.testing.assert_close(muon["kernel"].detach(), expected)


def test_a_fixed_norm_makes_the_step_a_share_of_the_weights() -> None:
    """W' is W - lr ‖W‖ O / ‖O‖ scaled back to ‖W‖, whatever the scale of W, and the L2 penalty has no say in it."""
    kernel = nn.Parameter(torch.randn(4, 3, 3, 3, generator=torch.Generator().manual_seed(0)).double())
    gradient = torch.randn(kernel.shape, generator=torch.Generator().manual_seed(1)).double()
    moved = {}
    for size, weight_decay in ((1.0, 0.0), (1.0, 0.5), (7.0, 0.0)):
        weight = nn.Parameter(size * kernel.detach())
        weight.grad = gradient.clone()
        config = OptimizerConfig(name="muon", muon_lr=0.1, muon_fixed_norm=True, weight_decay=weight_decay)
        Optimizer({"conv": weight}, config).step(1.0)
        moved[size, weight_decay] = weight.detach() / size
        torch.testing.assert_close(weight.norm(), size * kernel.norm())
    direction = orthogonalized([gradient])[0]
    expected = kernel - 0.1 * kernel.norm() * direction / direction.norm()
    torch.testing.assert_close(moved[1.0, 0.0], (expected * kernel.norm() / expected.norm()).detach())
    assert torch.equal(moved[1.0, 0.5], moved[1.0, 0.0])
    torch.testing.assert_close(moved[7.0, 0.0], moved[1.0, 0.0])


def test_a_kernel_whose_gradient_is_zero_stays_with_a_fixed_norm() -> None:
    """As behind a residual branch that starts at zero."""
    weight = nn.Parameter(torch.ones(2, 2, 3, 3))
    weight.grad = torch.zeros_like(weight)
    Optimizer({"conv": weight}, OptimizerConfig(name="muon", muon_fixed_norm=True)).step(1.0)
    torch.testing.assert_close(weight.detach(), torch.ones(2, 2, 3, 3))


def test_vectors_can_go_without_the_penalty() -> None:
    weights = {"bias": nn.Parameter(torch.ones(3)), "linear": nn.Parameter(torch.ones(3, 3))}
    for weight in weights.values():
        weight.grad = torch.zeros_like(weight)
    Optimizer(weights, OptimizerConfig(lr=0.5, weight_decay=0.1, decay_vectors=False)).step(1.0)
    assert torch.equal(weights["bias"], torch.ones(3))
    torch.testing.assert_close(weights["linear"].detach(), torch.full((3, 3), 0.95))


def test_muon_leaves_parts_of_the_network_to_sgd() -> None:
    names = ("backbone.stem.0.weight", "backbone.stage1.0.conv1.weight")
    ends = {}
    for config in (
        OptimizerConfig(weight_decay=0),
        OptimizerConfig(name="muon", weight_decay=0),
        OptimizerConfig(name="muon", weight_decay=0, muon_exclude=("stem",)),
    ):
        torch.manual_seed(0)
        weights = {name: nn.Parameter(torch.randn(4, 3, 3, 3)) for name in names}
        for weight in weights.values():
            weight.grad = torch.randn_like(weight)
        Optimizer(weights, config).step(1.0)
        ends[config.name, config.muon_exclude] = weights
    mixed = ends["muon", ("stem",)]
    assert torch.equal(mixed[names[0]], ends["sgd", ()][names[0]])
    assert torch.equal(mixed[names[1]], ends["muon", ()][names[1]])
    assert not torch.equal(ends["muon", ()][names[0]], ends["sgd", ()][names[0]])
    with pytest.raises(UsageError, match="no part 'stam'"):
        Optimizer(weights, OptimizerConfig(name="muon", muon_exclude=("stam",)))


def test_smoothing_keeps_smooth_kernels_and_shrinks_rough_ones() -> None:
    """The blur's three directions of a row, found by hand, are its eigenvectors; both ways their factors multiply."""
    root = 2**0.5
    rows = torch.tensor([[1, root, 1], [1, 0, -1], [1, -root, 1]], dtype=torch.float64)
    factors = torch.tensor([2 + root, 2, 2 - root], dtype=torch.float64) / (2 + root)
    kernels = torch.einsum("ai,bj->abij", rows, rows)
    torch.testing.assert_close(smooth(kernels), torch.outer(factors, factors)[..., None, None] * kernels)


def test_smoothing_moves_the_kernels_of_its_parts_only() -> None:
    torch.manual_seed(0)
    shapes: dict[str, tuple[int, ...]] = {
        "backbone.stem.0.weight": (4, 3, 3, 3),
        "backbone.stage1.0.conv1.weight": (4, 4, 3, 3),
    }
    shapes |= {"backbone.stem.0.shortcut.weight": (4, 3, 1, 1), "backbone.stem.1.weight": (4,)}
    weights = {name: nn.Parameter(torch.randn(shape)) for name, shape in shapes.items()}
    before = {name: weight.detach().clone() for name, weight in weights.items()}
    for weight in weights.values():
        weight.grad = torch.zeros_like(weight)
    Optimizer(weights, OptimizerConfig(weight_decay=0, kernel_smoothing=0.2)).step(0.5)
    stem, *others = weights
    torch.testing.assert_close(weights[stem].detach(), 0.9 * before[stem] + 0.1 * smooth(before[stem]))
    assert all(torch.equal(weights[name], before[name]) for name in others)
    with pytest.raises(UsageError, match=r"kernel_smoothing_layers: the network has no part 'stam'"):
        Optimizer(weights, OptimizerConfig(kernel_smoothing=0.2, kernel_smoothing_layers=("stam",)))


def test_average_is_the_weighted_sum_of_all_weights_so_far() -> None:
    history = torch.randn(31, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weight = nn.Parameter(history[:1].clone())
    average = WeightEMA({"w": weight}, decay=0.8)
    share = torch.zeros(31, dtype=torch.float64)
    share[0] = 1
    for step, value in enumerate(history[1:]):
        with torch.no_grad():
            weight.fill_(value)
        average.update(step)
        decay = min(0.8, (1 + step) / (10 + step))
        share *= decay
        share[step + 1] = 1 - decay
    torch.testing.assert_close(average.weights["w"][0], share @ history)
    assert share.sum().item() == pytest.approx(1)
