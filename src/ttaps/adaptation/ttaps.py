"""TTAPS (Bartler et al., 2022): align augmented views of one image with the prototypes, predict, reset."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import vmap

from ttaps import losses
from ttaps.adaptation.augment import Predict, ViewWeights, combine, tempered
from ttaps.adaptation.engine import CarriedState, Momentum, UpdateRule, Weights, gradient_steps
from ttaps.adaptation.method import GradientMethod
from ttaps.config import check_positive
from ttaps.errors import UsageError
from ttaps.model import Network, ResNet, SplitNetwork, adapted_names, as_network, eval_mode
from ttaps.model.checkpoint import Model
from ttaps.rng import generator
from ttaps.views import SwavViews

CHUNK = 16  # views at a time through the frozen part: 1.2 times faster than 64, which leave the cache
GROUP = 16  # images at a time in batched adaptation, to bound memory; so far run on a CPU only
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

    steps: int = 10
    """P, gradient steps per image."""
    lr: float = 0.1
    """α, step size."""
    num_pairs: int = 32
    """B_T, pairs of views of the image per step."""
    tau: float = 0.75
    """τ, temperature of the swapped prediction."""
    epsilon: float = 1.0
    """ε, smoothness of the codes."""
    adapt_params: str = "stage3"
    """Adapted weights: stage3, last_block, stage3+projector, norm, all, or names of parts."""
    codes: Literal["soft", "sinkhorn", "hard"] = "soft"
    """Codes: the paper's closed form, SwAV's equal partition, or only the nearest prototype."""
    test_loss: Literal["swapped", "consensus", "nearest"] = "swapped"
    """The paper's swapped prediction, the mean code as the target of all views, or each view's distance to its nearest prototype."""
    class_codes: bool = False
    """Weight codes by the classifier's predictions for the prototypes: prototypes of classes that the views agree on count more."""
    view_weights: ViewWeights = "equal"
    """Weight views equally, or by the agreement of their codes, and of their predictions if used, with the mean."""
    kl_weight: float = 0.0
    """Weight of KL(source ‖ adapted) of the image's prediction in the loss, which limits changes of the prediction."""
    swap_reduction: Literal["sum", "mean"] = "sum"
    """Sum (paper) or average (the authors' code) the two directions of the swapped prediction."""
    momentum: float = 0.0
    """Momentum within an image's steps; the authors' code uses 0.9."""
    weight_decay: float = 0.0
    """L2 penalty; the authors' code uses 1e-5."""
    view_pool: int = 0
    """Draw this many views once and pair them anew at every step; 0 draws fresh views for every step, as the paper does."""
    confidence_threshold: float = 1.0
    """Skip an image if the source model gives its label at least this probability; 1 adapts to every image."""
    patience: int = 0
    """Early stopping: end when the label has stayed the same, and not become less probable, for this many steps; 0 never does."""
    normalize_step: bool = False
    """Move the weights at each step by lr times their norm along the gradient, regardless of the gradient's size."""
    shift_threshold: float = 0.0
    """Skip an image whose cosine distance to a prototype is below this, as for training images; 0 adapts to every image."""
    predict: Predict = "image"
    """What to predict with the adapted weights: the image (paper), the mean over the views, or the mean of both."""
    temperature: float = 1.0
    """Divide the logits of adapted predictions by this, which calibrates their confidence without changing labels."""
    keep_momentum: bool = False
    """Keep the momentum, but not the weights, from image to image, as the authors' code does: results depend on the order."""
    views: SwavViews = field(default_factory=SwavViews)
    """The set of transformations 𝒯."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if 0 < self.view_pool < (least := 2 * self.num_pairs):
            raise UsageError(f"view_pool must be 0 or at least twice num_pairs ({least}), not {self.view_pool}.")
        check_positive(self, "tau", "epsilon", "temperature")

    def missing_requirement(self, network: nn.Module) -> str | None:
        """Return what a network lacks: prototypes."""
        return None if isinstance(network, Network) else "prototypes"

    def check_settings(self, network: nn.Module) -> None:
        """Refuse ``adapt_params`` that match no weight of the network."""
        adapted_names(as_network(network), self.adapt_params)

    @torch.no_grad()
    def adapt_one(self, network: nn.Module, image: Tensor, key: int, state: CarriedState) -> Tensor:
        """Algorithm 1. Views do not depend on the weights, so they all pass through the frozen part at once."""
        whole = as_network(network)
        split = SplitNetwork(whole, self.adapt_params)
        plain = split.frozen(image)
        z = split.adapted(plain, split.weights())
        trace = [state.tell(whole.classifier(z).softmax(-1))]
        if self.steps and self.stops(trace, nearest_distance(whole.scores(z))):
            if state.weights:  # online, a confident image is still seen with the weights kept so far
                trace.append(state.tell(whole.classifier(split.adapted(plain, state.weights)).softmax(-1)))
            return torch.stack(trace + trace[-1:] * (self.steps + 1 - len(trace)), dim=1)
        if self.steps:
            features = torch.cat([split.frozen(views) for views in self.draw_views(image, key).split(CHUNK)])
            for weights, taken in self.walk(whole, split, plain, features, trace[0], key, state):
                seen = self.predicted(plain, features, taken)
                trace.append(self.combined(whole.classifier(split.adapted(seen, weights))))
                state.tell(tempered(trace[-1], self.temperature))
                if self.stops(trace):
                    break
            state.weights = state.weights if self.online else None
        after = [tempered(row, self.temperature) for row in trace[1:]]
        return torch.stack([trace[0], *after] + (after or trace)[-1:] * (self.steps + 1 - len(trace)), dim=1)

    def walk(
        self,
        network: Network,
        split: SplitNetwork,
        plain: Tensor,
        features: Tensor,
        before: Tensor,
        key: int,
        state: CarriedState,
    ) -> Iterator[tuple[Weights, Tensor]]:
        """Yield the weights after every step, and which views it took."""
        pairs, assignment = self.pairs(key), self.assignment(network)
        state.rule = state.rule or self.update_rule()

        def loss(weights: Weights, step: int) -> Tensor:
            value = self.loss(network.scores(split.adapted(features[pairs[step]], weights)), assignment)
            return value + self.prior(before, network, split, plain, weights) if self.kl_weight else value

        return zip(gradient_steps(loss, split.weights(), self.steps, self.lr, state), pairs, strict=True)

    @torch.no_grad()
    def adapt_batched(self, network: nn.Module, images: Tensor, keys: Sequence[int]) -> Tensor | None:
        """Adapt in groups to the images for which the source model is not confident."""
        whole = as_network(network)
        if not isinstance(whole.backbone, ResNet):  # vmap may fail with other backbones (fused attention)
            return None
        z = torch.cat([whole.project(part) for part in images.split(64 * CHUNK)])
        source, distances = whole.classifier(z).softmax(-1), nearest_distance(whole.scores(z))
        traces = source[:, None].repeat(1, self.steps + 1, 1)
        low = [i for i in range(len(images)) if not self.stops([source[i]], distances[i])]
        for first in range(0, len(low), GROUP):
            group = low[first : first + GROUP]
            traces[group] = self.adapt_group(whole, images[group], [keys[i] for i in group])
        return traces

    @torch.no_grad()
    def adapt_group(self, network: Network, images: Tensor, keys: Sequence[int]) -> Tensor:
        """Adapt to several images at once. They share no weights, so the gradient of the sum of their losses is each image's own."""
        split, count, assignment = SplitNetwork(network, self.adapt_params), len(images), self.assignment(network)
        plain = split.frozen(images)
        z = split.adapted(plain, split.weights())
        source, distances = network.classifier(z).softmax(-1), nearest_distance(network.scores(z))
        views = torch.cat([self.draw_views(images[i : i + 1], key) for i, key in enumerate(keys)])
        features = torch.cat([split.frozen(part) for part in views.split(64 * CHUNK)])
        features = features.view(count, len(features) // count, *features.shape[1:])
        pairs = torch.stack([self.pairs(key) for key in keys]).to(images.device)
        rows = torch.arange(count, device=images.device)[:, None]

        def one(own: Weights, seen: Tensor, image: Tensor, before: Tensor) -> Tensor:
            value = self.loss(network.scores(split.adapted(seen, own)), assignment)
            return value + self.prior(before, network, split, image[None], own) if self.kl_weight else value

        def loss(weights: Weights, step: int) -> Tensor:
            return vmap(one)(weights, features[rows, pairs[:, step]], plain, source).sum()

        def predict(own: Weights, image: Tensor, seen: Tensor, taken: Tensor) -> Tensor:
            return self.combined(network.classifier(split.adapted(self.predicted(image[None], seen, taken), own)))[0]

        start = {name: weight.expand(count, *weight.shape) for name, weight in split.weights().items()}
        steps = gradient_steps(loss, start, self.steps, self.lr, CarriedState(rule=self.update_rule(apart=True)))
        after = [vmap(predict)(weights, plain, features, pairs[:, step]) for step, weights in enumerate(steps)]
        traces = torch.stack([source, *after], dim=1)
        for trace, distance in zip(traces, distances, strict=True):  # each as if its image had stopped early
            seen = ((step, self.stops(list(trace[: step + 1]), distance)) for step in range(len(trace)))
            stop = next((step for step, stops in seen if stops), len(trace) - 1)
            trace[stop:] = trace[stop].clone()
            trace[1:] = tempered(trace[1:], self.temperature) if stop else trace[1:]
        return traces

    def stops(self, trace: Sequence[Tensor], distance: Tensor | float = math.inf) -> bool:
        """Tell whether an image takes no further step: it was confident or near a prototype from the start, or its label has stayed
        the same and not become less probable."""
        if len(trace) == 1:
            confident = self.confidence_threshold < 1 and bool(trace[0].max() >= self.confidence_threshold)
            return confident or bool(distance < self.shift_threshold)
        if not self.patience or len(trace) <= self.patience:
            return False
        recent = [row.max(-1) for row in trace[-self.patience - 1 :]]
        same = len({int(top.indices) for top in recent}) == 1
        return same and all(bool(before.values <= after.values) for before, after in pairwise(recent))

    def draw_views(self, image: Tensor, key: int) -> Tensor:
        """Return the views of an image (1, 3, H, W): of all steps in order, or the pool that all steps share."""
        count = self.view_pool or self.steps * 2 * self.num_pairs
        return self.views.apply(image, self.views.sample(count, image.shape[-1], generator(key, "ttaps")))

    def pairs(self, key: int) -> Tensor:
        """Return the views used at each step, (steps, 2 * num_pairs): first all s, then all t; i is paired with num_pairs + i."""
        if not self.view_pool:
            return torch.arange(self.steps * 2 * self.num_pairs).view(self.steps, 2 * self.num_pairs)
        drawn = torch.rand(self.steps, self.view_pool, generator=generator(key, "pairs"))
        return drawn.argsort(1)[:, : 2 * self.num_pairs]

    def predicted(self, plain: Tensor, features: Tensor, taken: Tensor) -> Tensor:
        """Return the features to classify after a step: of the image, of the views (the pool's, or the step's), or of both."""
        views = features if self.view_pool else features[taken]
        return {"image": plain, "views": views}[self.predict] if self.predict != "both" else torch.cat([plain, views])

    def combined(self, logits: Tensor) -> Tensor:
        """Return one prediction, (1, classes), from the logits of the image, the views or both."""
        return combine(logits.softmax(-1), self.predict, self.view_weights)

    def update_rule(self, apart: bool = False) -> UpdateRule:
        """Return the update rule; ``apart`` if the first dimension of every weight counts images."""
        rule = Momentum(self.momentum, self.weight_decay)
        if not self.normalize_step:
            return rule
        return lambda weights, gradients: rule(weights, to_norm_of(weights, gradients, int(apart)))

    def assignment(self, network: Network) -> Tensor | None:
        """Return the class probabilities of the prototypes, h(c_k), (K, classes), if codes are weighted by them."""
        return network.classifier(network.prototypes).softmax(-1).detach() if self.class_codes else None

    def prior(self, before: Tensor, network: Network, split: SplitNetwork, plain: Tensor, weights: Weights) -> Tensor:
        """Return kl_weight · KL(before ‖ the image's prediction with these weights)."""
        after = network.classifier(split.adapted(plain, weights)).log_softmax(-1)
        return self.kl_weight * (before.xlogy(before) - before * after.view_as(before)).sum()

    def targets(self, scores: Tensor, assignment: Tensor | None) -> Tensor:
        """Return the code that each view's partner must predict, (2 * num_pairs, K), times the view's weight if by agreement."""
        codes = torch.cat([CODES[self.codes](half, self.epsilon) for half in scores.chunk(2)])
        if assignment is not None:  # q(k) Σ_y p(y) h_y(c_k), where p(y) = Σ_k mean q(k) h_y(c_k)
            codes = codes * (assignment @ (codes.mean(0) @ assignment))
            codes = codes / codes.sum(-1, keepdim=True)
        if self.view_weights == "agreement":
            shares = codes @ codes.mean(0)
            codes = codes * (shares / shares.mean())[:, None]
        return codes.mean(0, keepdim=True).expand_as(codes) if self.test_loss == "consensus" else codes

    def loss(self, scores: Tensor, assignment: Tensor | None = None) -> Tensor:
        """L_SwAV_test, eq. (3) with the codes of eq. (11), of scores (2 * num_pairs, K); ``assignment`` as :meth:`assignment` gives it."""
        if self.test_loss == "nearest":
            return nearest_distance(scores).mean()
        codes_s, codes_t = self.targets(scores, assignment).chunk(2)
        scores_s, scores_t = scores.chunk(2)
        both = losses.swapped_prediction(scores_s, scores_t, codes_s, codes_t, self.tau)
        return both / 2 if self.swap_reduction == "mean" else both


def nearest_distance(scores: Tensor) -> Tensor:
    """Return the cosine distance of each z to its nearest prototype, (N,), from scores (N, K)."""
    return 1 - scores.amax(-1)


@torch.no_grad()
def shift_of(model: Model, images: Tensor) -> Tensor:
    """Return for each image the share of the model's clean validation images that are nearer to a prototype (N,), on the CPU."""
    network, quantiles = as_network(model.network), model.presets["shift"]["quantiles"]
    with eval_mode(network):
        distances = nearest_distance(network.scores(network.project(images))).cpu().numpy()
    return torch.from_numpy(np.interp(distances, quantiles, np.linspace(0, 1, len(quantiles)))).float()


def to_norm_of(weights: Weights, gradients: Weights, lead: int = 0) -> Weights:
    """Return the gradients scaled to the joint norm of all weights, separately along ``lead`` leading dimensions."""
    size, length = (
        torch.stack([part.flatten(lead).norm(dim=-1) for part in parts.values()]).norm(dim=0)
        for parts in (weights, gradients)
    )
    ratio = size / length.clamp_min(1e-12)
    return {name: g * ratio.view(*ratio.shape, *[1] * (g.ndim - lead)) for name, g in gradients.items()}
