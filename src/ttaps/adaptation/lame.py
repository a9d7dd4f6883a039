"""LAME (Boudiaf et al., 2022): make neighbors in a batch agree on their labels. Only predictions change, no weights."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ttaps.adaptation.engine import CarriedState
from ttaps.adaptation.method import Method
from ttaps.losses import at_least_float32
from ttaps.model.functional import last_linear, missing_linear

TOLERANCE = 1e-6  # change of a probability below which the iteration has converged


@dataclass(frozen=True)
class Lame(Method):
    """Minimize Σ KL(zᵢ ‖ pᵢ) - ½ Σ wᵢⱼ zᵢ·zⱼ over the predictions zᵢ of a batch; wᵢⱼ is large for near features of i and j."""

    name = "lame"
    paper = "Boudiaf et al. 2022"
    adapts = "predictions of a batch"

    batch_size: int = 64
    """Images whose predictions are refined together (the authors' number); a single image has no neighbors and is unchanged."""
    num_neighbors: int = 5
    """k: number of nearest neighbors, by the cosine similarity of features. 0: the source model."""
    max_iterations: int = 100
    """Maximum number of iterations; they end early on convergence."""

    def missing_requirement(self, network: nn.Module) -> str | None:
        """Return what a network lacks: features and a linear layer that classifies them."""
        return missing_linear(network)

    @torch.no_grad()
    def adapt_one(self, network: nn.Module, image: Tensor, key: int, state: CarriedState) -> Tensor:
        """Predict the images of a batch one by one, then together."""
        logits, features, _ = last_linear(network, image)
        before = state.tell(logits.softmax(-1))
        log_p = at_least_float32(logits).log_softmax(-1)
        refined = refine(log_p, affinities(features, self.num_neighbors), self.max_iterations)
        return torch.stack([before, state.tell(refined.to(before.dtype))], dim=1)


def affinities(features: Tensor, neighbors: int) -> Tensor:
    """Return wᵢⱼ (N, N): 1 where each of two images is among the nearest of the other, ½ where one is, 0 on the diagonal."""
    unit = F.normalize(at_least_float32(features), dim=-1)
    cosine = (unit @ unit.T).fill_diagonal_(-torch.inf)
    nearest = cosine.topk(min(neighbors, len(unit) - 1)).indices
    chosen = torch.zeros_like(cosine).scatter(1, nearest, 1.0)
    return (chosen + chosen.T) / 2


def refine(log_p: Tensor, affinity: Tensor, iterations: int) -> Tensor:
    """Return z of the iteration z ← softmax(ln p + W z), which starts at p and ends on convergence."""
    z = log_p.exp()
    for _ in range(iterations):
        last, z = z, (log_p + affinity @ z).softmax(-1)
        if (z - last).abs().max() < TOLERANCE:
            break
    return z
