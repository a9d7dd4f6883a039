"""The paper's equations, one short pure function each.

Scores are inner products of unit vectors, ``z @ C.T``, shape (batch, K); codes have the same shape and rows that sum to 1.
Everything is computed in float32 or better, whatever the input's precision."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

Reduce = Callable[[Tensor], Tensor]


def sinkhorn_codes(
    scores: Tensor, epsilon: float = 0.05, iterations: int = 3, logsumexp: Reduce | None = None
) -> Tensor:
    """Codes on the transportation polytope, eqs. (4)-(6): every prototype is used equally often over the batch.
    "Q* = Diag(u) exp(CᵀZ / ε) Diag(v)", u and v from a few Sinkhorn-Knopp iterations; in the log domain nothing underflows, however
    small ε is. ``logsumexp`` sums over the batch; data-parallel training passes one that sums over all ranks."""
    over_batch = logsumexp or (lambda logits: logits.logsumexp(0))
    log_q = at_least_float32(scores.detach()) / epsilon
    for _ in range(iterations):
        log_q = log_q - over_batch(log_q)  # u: every prototype gets the same mass
        log_q = log_q - log_q.logsumexp(1, keepdim=True)  # v: every image has mass one
    return log_q.softmax(1)  # the last step again, so that rows sum to 1 even with no iteration at all


def soft_codes(scores: Tensor, epsilon: float = 1.0) -> Tensor:
    """Codes on the relaxed polytope, eq. (11): only the columns must sum to one, which is a softmax over prototypes."""
    return (at_least_float32(scores.detach()) / epsilon).softmax(-1)


def hard_codes(scores: Tensor) -> Tensor:
    """All mass on the nearest prototype: the limit of :func:`soft_codes` for ε → 0."""
    scores = at_least_float32(scores.detach())
    return torch.zeros_like(scores).scatter(-1, scores.argmax(-1, keepdim=True), 1.0)


def swapped_prediction(scores_s: Tensor, scores_t: Tensor, codes_s: Tensor, codes_t: Tensor, tau: float) -> Tensor:
    """The SwAV loss, eqs. (1)-(3): predict each view's code from the other view; both directions summed, mean over the batch."""
    return _cross_entropy(codes_s, scores_t, tau) + _cross_entropy(codes_t, scores_s, tau)


def prototype_entropy(logits: Tensor) -> Tensor:
    """L_ent, eq. (7): each prototype sure of its class, all classes equally frequent. In [-ln classes, 0].
    ``logits`` are the classifier's outputs at the prototypes, shape (K, classes)."""
    log_p = at_least_float32(logits).log_softmax(-1)
    log_mean = log_p.logsumexp(0) - math.log(len(log_p))
    return _entropy(log_p).mean() - _entropy(log_mean)


def prediction_entropies(logits: Tensor) -> Tensor:
    """The entropy of each image's prediction, (images,); logits (images, classes)."""
    return _entropy(at_least_float32(logits).log_softmax(-1))


def prediction_entropy(logits: Tensor) -> Tensor:
    """TENT's loss: the mean over images of :func:`prediction_entropies`."""
    return prediction_entropies(logits).mean()


def marginal_entropy(logits: Tensor) -> Tensor:
    """MEMO's loss: the entropy of the mean prediction over views of one image; logits (views, classes)."""
    log_p = at_least_float32(logits).log_softmax(-1)
    return _entropy(log_p.logsumexp(0) - math.log(len(log_p)))


def byol(predictions: Tensor, z: Tensor) -> Tensor:
    """MT3's self-supervised loss: 2 - 2 cos of each view's prediction with the other view's z, which is a constant.
    Rows are first all of one view, then all of the other; both directions summed, mean over images."""
    other = torch.cat(z.detach().chunk(2)[::-1])
    cosine = F.cosine_similarity(at_least_float32(predictions), at_least_float32(other))
    return 2 * (2 - 2 * cosine).mean()


def at_least_float32(x: Tensor) -> Tensor:
    """Return half-precision numbers as float32 and leave float32 and float64 alone."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _cross_entropy(codes: Tensor, scores: Tensor, tau: float) -> Tensor:
    return -(codes * (at_least_float32(scores) / tau).log_softmax(-1)).sum(-1).mean()


def _entropy(log_p: Tensor) -> Tensor:
    p = log_p.exp()
    return -(p * log_p.masked_fill(p == 0, 0.0)).sum(-1)  # 0 ln 0 = 0
