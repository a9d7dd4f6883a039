"""TTAPS (Bartler et al., 2022): pull augmented copies of one image towards the prototypes, predict, forget. Algorithm 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import vmap

from ttaps import losses
from ttaps.adaptation.engine import CarriedState, gradient_steps, in_chunks
from ttaps.adaptation.method import GradientMethod
from ttaps.adaptation.optimizers import Momentum, Weights
from ttaps.errors import UsageError
from ttaps.model import Network, ResNet, SplitNetwork, adapted_names, as_network
from ttaps.rng import generator
from ttaps.views import SwavViews

CHUNK = 16  # views at a time through the frozen part: 1.2 times faster than 64, which leave the cache
TOGETHER = 16  # images at a time where they are adapted together, to bound the memory; run on a CPU only so far
CODES: dict[str, Callable[[Tensor, float], Tensor]] = {
    "soft": losses.soft_codes,
    "sinkhorn": losses.sinkhorn_codes,
    "hard": lambda scores, epsilon: losses.hard_codes(scores),
}


@dataclass(frozen=True)
class Ttaps(GradientMethod):
    """The paper's settings by default: plain gradient steps on the last stage, nothing shared between images."""

    name = "ttaps"
    paper = "Bartler et al. 2022"
    adapts = "last stage"
    trained_by = ("jt", "jt+ent")

    steps: int = 10
    """P, gradient steps per image."""
    lr: float = 0.1
    """α, step size."""
    num_pairs: int = 32
    """B_T, copies of the image per step; each has two fresh views."""
    tau: float = 0.75
    """τ, temperature of the swapped prediction."""
    epsilon: float = 1.0
    """ε, smoothness of the codes."""
    adapt_params: str = "stage3"
    """Weights that adapt: stage3, last_block, stage3+projector, norm, all, or names of parts."""
    codes: Literal["soft", "sinkhorn", "hard"] = "soft"
    """Codes: the paper's closed form, SwAV's equal partition, or the nearest prototype alone."""
    test_loss: Literal["swapped", "nearest"] = "swapped"
    """The paper's swapped prediction, or the cosine distance of each view to its nearest prototype."""
    swap_reduction: Literal["sum", "mean"] = "sum"
    """The two directions of the swapped prediction are summed (paper) or averaged (the authors' code)."""
    momentum: float = 0.0
    """Momentum within an image's steps; the authors' code has 0.9."""
    weight_decay: float = 0.0
    """L2 penalty; the authors' code has 1e-5."""
    view_pool: int = 0
    """Draw this many views once and pair them anew at every step; 0 draws fresh views for every step, as the paper does."""
    confidence_threshold: float = 1.0
    """Leave an image unchanged when the source model gives its label at least this probability; 1 adapts to every image."""
    patience: int = 0
    """Stop when the label has stayed the same, and not become less probable, for this many steps; 0 takes every step."""
    keep_momentum: bool = False
    """Keep the momentum, but not the weights, from image to image, as the authors' code does: results depend on the order."""
    views: SwavViews = field(default_factory=SwavViews)
    """The set of transformations 𝒯."""

    def __post_init__(self) -> None:
        super().__post_init__()
        least = 2 * self.num_pairs
        if self.view_pool and self.view_pool < least:
            raise UsageError(f"view_pool must be 0 or at least twice num_pairs ({least}), not {self.view_pool}.")
        for name, value in (("tau", self.tau), ("epsilon", self.epsilon)):
            if not value > 0:
                raise UsageError(f"{name} must be positive, not {value}.")

    @property
    def carries(self) -> str:
        """What is kept from image to image, in words; empty for nothing."""
        return super().carries or ("momentum leak" if self.keep_momentum else "")

    def missing_requirement(self, network: nn.Module) -> str | None:
        """Return what a network lacks: prototypes."""
        return None if isinstance(network, Network) else "prototypes"

    def check_settings(self, network: nn.Module) -> None:
        """Refuse ``adapt_params`` that cover no weight of the network."""
        adapted_names(as_network(network), self.adapt_params)

    @torch.no_grad()
    def adapt_one(self, network: nn.Module, image: Tensor, key: int, state: CarriedState) -> Tensor:
        """Algorithm 1. Views do not depend on the weights, so they go through the frozen part all at once."""
        whole = as_network(network)
        split = SplitNetwork(whole, self.adapt_params)
        plain = split.frozen(image)

        def predict(weights: Weights) -> Tensor:
            return whole.classifier(split.adapted(plain, weights)).softmax(-1)

        trace = [predict(split.weights())]
        if self.steps and self.stops(trace) and state.weights:
            trace.append(predict(state.weights))  # online, a confident image is still seen with the weights kept so far
        elif self.steps and not self.stops(trace):
            features = in_chunks(split.frozen, self.draw_views(image, key), CHUNK)
            pairs = self.pairs(key)
            state.rule = state.rule or Momentum(self.momentum, self.weight_decay)

            def loss(weights: Weights, step: int) -> Tensor:
                return self.loss(whole.scores(split.adapted(features[pairs[step]], weights)))

            for weights in gradient_steps(loss, split.weights(), self.steps, self.lr, state):
                trace.append(predict(weights))
                if self.stops(trace):
                    break
            state.weights = state.weights if self.online else None
        return torch.stack(trace + trace[-1:] * (self.steps + 1 - len(trace)), dim=1)

    def can_batch(self, network: nn.Module) -> bool:
        """Tell whether ``vmap`` works: with our backbone only, since it may fail with others (fused attention)."""
        return isinstance(as_network(network).backbone, ResNet)

    @torch.no_grad()
    def adapt_batched(self, network: nn.Module, images: Tensor, keys: Sequence[int]) -> Tensor:
        """Adapt in groups to the images of which the source model is not confident."""
        source = in_chunks(network, images, 64 * CHUNK).softmax(-1)
        traces = source[:, None].repeat(1, self.steps + 1, 1)
        low = [i for i in range(len(images)) if not self.stops([source[i]])]
        for first in range(0, len(low), TOGETHER):
            group = low[first : first + TOGETHER]
            traces[group] = self.adapt_group(as_network(network), images[group], [keys[i] for i in group])
        return traces

    @torch.no_grad()
    def adapt_group(self, network: Network, images: Tensor, keys: Sequence[int]) -> Tensor:
        """Adapt to several images at once, each with its own weights: for devices that need large batches.

        The losses of different images share no weights, so the gradient of their sum is each image's own gradient.
        """
        split, count = SplitNetwork(network, self.adapt_params), len(images)
        plain = split.frozen(images)
        drawn = torch.cat([self.draw_views(images[i : i + 1], key) for i, key in enumerate(keys)])
        features = in_chunks(split.frozen, drawn, 64 * CHUNK)
        features = features.view(count, len(features) // count, *features.shape[1:])
        pairs = torch.stack([self.pairs(key) for key in keys]).to(images.device)
        rows = torch.arange(count, device=images.device)[:, None]

        def loss(weights: Weights, step: int) -> Tensor:
            each = vmap(lambda own, seen: self.loss(network.scores(split.adapted(seen, own))))
            return each(weights, features[rows, pairs[:, step]]).sum()

        def predict(weights: Weights) -> Tensor:
            each = vmap(lambda own, seen: network.classifier(split.adapted(seen[None], own))[0].softmax(-1))
            return each(weights, plain)

        source = {name: weight.expand(count, *weight.shape) for name, weight in split.weights().items()}
        state = CarriedState(rule=Momentum(self.momentum, self.weight_decay))
        steps = gradient_steps(loss, source, self.steps, self.lr, state)
        traces = torch.stack([predict(weights) for weights in (source, *steps)], dim=1)
        return torch.stack([self.truncate_at_stop(trace) for trace in traces])

    def stops(self, trace: Sequence[Tensor]) -> bool:
        """Tell whether an image with this trace takes no further step."""
        if len(trace) == 1:
            return self.confidence_threshold < 1 and bool(trace[0].max() >= self.confidence_threshold)
        return bool(self.patience) and settled(trace, self.patience)

    def truncate_at_stop(self, trace: Tensor) -> Tensor:
        """Return a trace of all steps as it would be had the image stopped where it should."""
        stop = next((step for step in range(len(trace)) if self.stops(list(trace[: step + 1]))), len(trace) - 1)
        return torch.cat([trace[:stop], trace[stop : stop + 1].expand(len(trace) - stop, -1)])

    def draw_views(self, image: Tensor, key: int) -> Tensor:
        """Return the views of an image (1, 3, H, W): of all steps in order, or the pool that all steps share."""
        count = self.view_pool or self.steps * 2 * self.num_pairs
        return self.views.apply(image, self.views.sample(count, image.shape[-1], generator(key, "ttaps")))

    def pairs(self, key: int) -> Tensor:
        """Return which views each step takes, (steps, 2 * num_pairs): first all s, then all t; row i meets row num_pairs + i."""
        if not self.view_pool:
            return torch.arange(self.steps * 2 * self.num_pairs).view(self.steps, 2 * self.num_pairs)
        drawn = torch.rand(self.steps, self.view_pool, generator=generator(key, "pairs"))
        return drawn.argsort(1)[:, : 2 * self.num_pairs]

    def loss(self, scores: Tensor) -> Tensor:
        """L_SwAV_test, eq. (3) with the codes of eq. (11), of scores (2 * num_pairs, K)."""
        if self.test_loss == "nearest":
            return (1 - scores.amax(-1)).mean()
        scores_s, scores_t = scores.chunk(2)
        codes_s, codes_t = (CODES[self.codes](half, self.epsilon) for half in (scores_s, scores_t))
        both = losses.swapped_prediction(scores_s, scores_t, codes_s, codes_t, self.tau)
        return both / 2 if self.swap_reduction == "mean" else both


def settled(trace: Sequence[Tensor], steps: int) -> bool:
    """Tell whether the label has been the same, and has not become less probable, over the last ``steps`` steps."""
    recent = trace[-steps - 1 :]
    best = [row.max(-1) for row in recent]
    same = len({int(row.indices) for row in best}) == 1
    rising = all(bool(before.values <= after.values) for before, after in pairwise(best))
    return len(recent) == steps + 1 and same and rising
