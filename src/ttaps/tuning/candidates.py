"""Candidates: each stands for many settings, its variants, whose predictions all follow from one run. Candidates on the same images share
the features of equal views."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ttaps.adaptation import Augment, Method, Ttaps
from ttaps.adaptation.augment import combine, mean_over_views
from ttaps.adaptation.engine import CarriedState, map_images
from ttaps.adaptation.ttaps import CHUNK
from ttaps.model import Network, SplitNetwork, eval_mode

COUNTS = (4, 8, 16)  # of views, for the mean over them: the first of the sixteen


@dataclass(frozen=True, eq=False)
class Candidate:
    """A method and its variants."""

    method: Method
    variants: Sequence[Method]
    adapt_one: Callable[[Network, Tensor, int, Tensor, dict[Any, Any]], list[Tensor]]
    """The trace (1, entries, classes) of each variant for an image and its key; the last arguments are the source model's
    prediction, and the features that candidates share."""

    @property
    def entries(self) -> int:
        """Length of a trace."""
        return max(2, self.method.steps + 1)


def augment_candidate(method: Augment) -> Candidate:
    """Return a mean over views, with all prediction rules and numbers of views."""
    counts = [count for count in COUNTS if count <= method.num_views]
    variants = [replace(method, num_views=count, predict=rule) for count in counts for rule in ("views", "both")]

    def adapt_one(network: Network, image: Tensor, key: int, source: Tensor, _: dict[Any, Any]) -> list[Tensor]:
        views = network(method.draw_views(image, key)).softmax(-1)
        means = [mean_over_views(views[: one.num_views], one.view_weights) for one in variants]
        pairs = zip(variants, means, strict=True)
        after = [(source + mean) / 2 if one.predict == "both" else mean for one, mean in pairs]
        return [torch.stack([source, prediction], dim=1) for prediction in after]

    return Candidate(method, variants, adapt_one)


def ttaps_candidate(method: Ttaps) -> Candidate:
    """Return gradient steps, with all prediction rules."""
    variants = [replace(method, predict=rule) for rule in ("image", "views", "both")]

    def adapt_one(network: Network, image: Tensor, key: int, source: Tensor, shared: dict[Any, Any]) -> list[Tensor]:
        name = method.views, method.adapt_params
        if name not in shared:
            split = SplitNetwork(network, method.adapt_params)
            parts = [split.frozen(views) for views in method.draw_views(image, key).split(CHUNK)]
            shared[name] = split, split.frozen(image), torch.cat(parts)
        split, plain, features = shared[name]
        traces = [[source] for _ in variants]
        for weights, taken in method.walk(network, split, plain, features, source, key, CarriedState()):
            views = features if method.view_pool else features[taken]
            both = network.classifier(split.adapted(torch.cat([plain, views]), weights)).softmax(-1)
            for trace, rows, one in zip(traces, (both[:1], both[1:], both), variants, strict=True):
                trace.append(combine(rows, one.predict, one.view_weights))
        return [torch.stack(trace, dim=1) for trace in traces]

    return Candidate(method, variants, adapt_one)


def adapt_candidates(
    candidates: Sequence[Candidate], network: Network, images: Tensor, keys: Sequence[int]
) -> list[list[Tensor]]:
    """Return the traces (N, entries, classes) of all variants of all candidates, equal to separate runs up to rounding."""
    with eval_mode(network):
        joined = map_images(partial(_adapt_one, candidates, network), images, keys)
    parts = iter(joined.split([one.entries for one in candidates for _ in one.variants], dim=1))
    return [[next(parts) for _ in one.variants] for one in candidates]


@torch.no_grad()
def _adapt_one(candidates: Sequence[Candidate], network: Network, image: Tensor, key: int, _: CarriedState) -> Tensor:
    source, shared = network(image).softmax(-1), dict[Any, Any]()
    found: list[Tensor] = []
    for candidate in candidates:
        if source.max() >= candidate.method.confidence_threshold:
            found += [source[:, None].repeat(1, candidate.entries, 1) for _ in candidate.variants]
        else:
            found += candidate.adapt_one(network, image, key, source, shared)
    return torch.cat(found, dim=1)
