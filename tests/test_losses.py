"""The paper's equations against independent solutions, their own bounds, and finite differences."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from ttaps import losses
from ttaps.losses import hard_codes, prototype_entropy, sinkhorn_codes, swapped_prediction

Array = NDArray[np.float64]


def cosines(batch: int, prototypes: int, seed: int = 0) -> Tensor:
    """Scores as they occur: inner products of random unit vectors, float64."""
    draw = torch.Generator().manual_seed(seed)
    z, c = (torch.randn(n, 6, generator=draw, dtype=torch.float64) for n in (batch, prototypes))
    return torch.nn.functional.normalize(z, dim=1) @ torch.nn.functional.normalize(c, dim=1).T


def test_sinkhorn_reaches_both_marginals() -> None:
    codes = sinkhorn_codes(cosines(12, 5), iterations=2_000)
    torch.testing.assert_close(codes.sum(1), torch.ones(12, dtype=torch.float64), rtol=0, atol=1e-12)
    torch.testing.assert_close(codes.sum(0), torch.full((5,), 12 / 5, dtype=torch.float64), rtol=0, atol=1e-9)


@pytest.mark.parametrize("iterations", [0, 1, 3])
def test_sinkhorn_rows_sum_to_one_after_any_number_of_iterations(iterations: int) -> None:
    rows = sinkhorn_codes(cosines(12, 5), iterations=iterations).sum(1)
    torch.testing.assert_close(rows, torch.ones(12, dtype=torch.float64), rtol=0, atol=1e-14)


def test_three_iterations_are_the_plain_algorithm_of_sinkhorn_and_knopp() -> None:
    scores = cosines(7, 4)
    q = torch.exp(scores / 0.05).T  # K x B, as the paper writes it
    for _ in range(3):
        q = q / q.sum(1, keepdim=True) / 4
        q = q / q.sum(0, keepdim=True) / 7
    torch.testing.assert_close(sinkhorn_codes(scores), 7 * q.T, rtol=1e-12, atol=1e-15)


def test_many_iterations_agree_with_the_optimal_transport_dual() -> None:
    """The dual of eq. (4) on the polytope (5) is smooth, convex and free: L-BFGS finds u and v without Sinkhorn's updates."""
    scores, epsilon = cosines(6, 4).numpy(), 0.1
    batch, prototypes = scores.shape

    def plan(duals: Array) -> Array:
        u, v = duals[:batch], duals[batch:]
        return np.asarray(np.exp((scores - u[:, None] - v) / epsilon - 1))

    def dual(duals: Array) -> tuple[float, Array]:
        q = plan(duals)
        value = epsilon * q.sum() + duals[:batch].mean() + duals[batch:].mean()
        return float(value), np.concatenate([1 / batch - q.sum(1), 1 / prototypes - q.sum(0)])

    found = minimize(
        dual, np.zeros(batch + prototypes), jac=True, method="L-BFGS-B", options={"ftol": 0, "gtol": 1e-12}
    )
    codes = sinkhorn_codes(torch.from_numpy(scores), epsilon, iterations=2_000)
    np.testing.assert_allclose(codes.numpy(), batch * plan(found.x), atol=1e-7)


def maximiser(scores: Array, epsilon: float, both_marginals: bool) -> Array:
    """Maximise Tr(QᵀCᵀZ) + ε H(Q), eq. (4), by sequential quadratic programming on the polytope itself."""
    batch, prototypes = scores.shape

    def objective(q: Array) -> float:
        return float(-(q * scores.ravel()).sum() + epsilon * (q * np.log(q)).sum())

    def gradient(q: Array) -> Array:
        return np.asarray(-scores.ravel() + epsilon * (np.log(q) + 1))

    rows = np.kron(np.eye(batch), np.ones(prototypes))
    columns = np.kron(np.ones(batch), np.eye(prototypes))
    sums = np.concatenate([rows, columns[:-1]]) if both_marginals else rows  # the last column follows from the others
    totals = np.array([1.0] * batch + [batch / prototypes] * (len(sums) - batch))
    result = minimize(
        objective,
        np.full(scores.size, 1 / prototypes),
        jac=gradient,
        method="SLSQP",
        bounds=[(1e-12, 1.0)] * scores.size,
        constraints={"type": "eq", "fun": lambda q: sums @ q - totals, "jac": lambda q: sums},
        options={"maxiter": 500, "ftol": 1e-15},
    )
    assert result.success, result.message
    return np.asarray(result.x).reshape(scores.shape)


def test_many_iterations_maximise_equation_4_on_the_transportation_polytope() -> None:
    scores = cosines(6, 3)
    expected = maximiser(scores.numpy(), 0.3, both_marginals=True)
    np.testing.assert_allclose(sinkhorn_codes(scores, 0.3, 500).numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("epsilon", [0.3, 1.0])
def test_test_codes_maximise_equation_4_on_the_relaxed_polytope(epsilon: float) -> None:
    scores = cosines(4, 5)
    expected = maximiser(scores.numpy(), epsilon, both_marginals=False)
    np.testing.assert_allclose(losses.soft_codes(scores, epsilon).numpy(), expected, atol=1e-6)


def test_hard_codes_are_the_limit_of_test_codes() -> None:
    scores = cosines(20, 9)
    torch.testing.assert_close(losses.soft_codes(scores, 1e-6), hard_codes(scores), rtol=0, atol=1e-15)


def test_codes_of_equal_scores_are_uniform() -> None:
    for codes in (sinkhorn_codes(torch.full((8, 5), 0.3)), losses.soft_codes(torch.full((8, 5), 0.3))):
        torch.testing.assert_close(codes, torch.full((8, 5), 0.2))


def test_swapped_prediction_is_equation_3_written_out() -> None:
    tau, s, t = 0.1, cosines(3, 4, seed=1), cosines(3, 4, seed=2)
    q_s, q_t = losses.soft_codes(s, 0.2), losses.soft_codes(t, 0.2)
    total = 0.0
    for n in range(3):
        for k in range(4):
            total += float(q_s[n, k] * t[n, k] / tau + q_t[n, k] * s[n, k] / tau)
        total -= math.log(sum(math.exp(t[n, k] / tau) for k in range(4)))
        total -= math.log(sum(math.exp(s[n, k] / tau) for k in range(4)))
    assert swapped_prediction(s, t, q_s, q_t, tau).item() == pytest.approx(-total / 3, rel=1e-13)


def test_swapped_prediction_of_a_collapsed_batch_is_twice_ln_k() -> None:
    scores = torch.zeros(8, 300, dtype=torch.float64)
    codes = sinkhorn_codes(scores)
    assert swapped_prediction(scores, scores, codes, codes, 0.1).item() == pytest.approx(2 * math.log(300), rel=1e-14)


def test_prototype_entropy_reaches_its_lower_bound() -> None:
    sure_and_shared = 1e4 * torch.eye(5, dtype=torch.float64).repeat(6, 1)
    assert prototype_entropy(sure_and_shared).item() == pytest.approx(-math.log(5), rel=1e-15)


@pytest.mark.parametrize("row", [[0.0, 0.0, 0.0], [1e4, 0.0, 0.0], [0.3, -0.7, 0.1]])
def test_prototype_entropy_reaches_zero_where_all_prototypes_agree(row: list[float]) -> None:
    assert prototype_entropy(torch.tensor(row, dtype=torch.float64).repeat(7, 1)).item() == pytest.approx(0, abs=1e-14)


def test_prototype_entropy_is_equation_7_and_keeps_its_bounds() -> None:
    for seed, scale in enumerate((0.1, 1.0, 10.0, 100.0)):
        logits = scale * torch.randn(30, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        p = logits.softmax(1)
        mean = p.mean(0)
        expected = -torch.xlogy(p, p).sum(1).mean() + torch.xlogy(mean, mean).sum()
        value = prototype_entropy(logits)
        torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-14)
        assert -math.log(4) <= value.item() <= 0


def test_gradients_agree_with_finite_differences() -> None:
    s, t = (cosines(4, 5, seed).requires_grad_() for seed in (1, 2))
    codes = sinkhorn_codes(cosines(4, 5, 3)), losses.soft_codes(cosines(4, 5, 4))
    assert torch.autograd.gradcheck(lambda a, b: swapped_prediction(a, b, *codes, 0.1), (s, t))
    assert torch.autograd.gradcheck(prototype_entropy, (cosines(6, 3, 5).requires_grad_(),))


def test_codes_carry_no_gradient() -> None:
    scores = cosines(4, 5).requires_grad_()
    for codes in (sinkhorn_codes(scores), losses.soft_codes(scores), hard_codes(scores)):
        assert not codes.requires_grad


@pytest.mark.parametrize("epsilon", [0.001, 0.05])
@pytest.mark.parametrize("kind", ["random", "one for all", "opposite", "extremes"])
def test_float32_is_stable_for_any_scores(kind: str, epsilon: float) -> None:
    scores = {
        "random": cosines(16, 40).float(),
        "one for all": torch.full((16, 40), -1.0).index_fill(1, torch.tensor([3]), 1.0),
        "opposite": torch.ones(16, 40).index_fill(0, torch.arange(8), -1.0),
        "extremes": torch.where(torch.rand(16, 40, generator=torch.Generator().manual_seed(0)) < 0.5, -1.0, 1.0),
    }[kind]
    for codes, exact in (
        (sinkhorn_codes(scores, epsilon), sinkhorn_codes(scores.double(), epsilon)),
        (losses.soft_codes(scores, epsilon), losses.soft_codes(scores.double(), epsilon)),
    ):
        torch.testing.assert_close(codes.double(), exact, rtol=0, atol=2e-7 / epsilon)  # float32's digits of score / ε
        torch.testing.assert_close(codes.sum(1), torch.ones(16))
        leaf = scores.clone().requires_grad_()
        loss = swapped_prediction(leaf, leaf, codes, codes, epsilon)
        loss.backward()
        assert leaf.grad is not None
        assert loss.isfinite()
        assert leaf.grad.isfinite().all()


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(half: torch.dtype) -> None:
    """The result is exactly that of the rounded scores in float32: nothing more is lost than the input's own digits."""
    s, t = (cosines(16, 40, seed).to(half) for seed in (1, 2))
    for codes in (sinkhorn_codes, losses.soft_codes, hard_codes):
        torch.testing.assert_close(codes(s), codes(s.float()), rtol=0, atol=0)
    q_s, q_t = sinkhorn_codes(s), sinkhorn_codes(t)
    exact = swapped_prediction(s.float(), t.float(), q_s, q_t, 0.1)
    torch.testing.assert_close(swapped_prediction(s, t, q_s, q_t, 0.1), exact, rtol=0, atol=0)
    logits = 300 * s
    torch.testing.assert_close(prototype_entropy(logits), prototype_entropy(logits.float()), rtol=0, atol=0)
    leaf = s.clone().requires_grad_()
    swapped_prediction(leaf, t, q_s.to(half), q_t.to(half), 0.1).backward()
    assert leaf.grad is not None
    assert leaf.grad.isfinite().all()


def test_sinkhorn_over_ranks_is_sinkhorn_over_the_whole_batch() -> None:
    """``logsumexp`` is where data-parallel training sums over ranks: two halves that share it give the whole batch's codes."""
    scores = cosines(8, 5)
    seen: list[Tensor] = []

    def record(logits: Tensor) -> Tensor:
        seen.append(logits.logsumexp(0))
        return seen[-1]

    whole = sinkhorn_codes(scores, logsumexp=record)
    sums = iter(seen)
    half = sinkhorn_codes(scores[:4], logsumexp=lambda _: next(sums))
    torch.testing.assert_close(half, whole[:4], rtol=1e-12, atol=0)
