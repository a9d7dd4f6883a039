"""Several candidates on the same images: features of equal views are computed once, and all prediction rules share the same steps."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ttaps.adaptation import Augment, Method, Ttaps
from ttaps.adaptation.augment import combine, mean_over_views
from ttaps.adaptation.engine import CarriedState, map_images
from ttaps.adaptation.ttaps import CHUNK
from ttaps.model import Network, SplitNetwork, eval_mode
from ttaps.tuning.space import variants


def adapt_together(
    candidates: Sequence[Method], network: Network, images: Tensor, keys: Sequence[int]
) -> list[list[Tensor]]:
    """Return the traces (N, entries, classes) of all variants of all candidates, equal to separate runs up to rounding."""
    with eval_mode(network):
        joined = map_images(partial(_adapt_one, candidates, network), images, keys)
    lengths = [[variant.steps + 1 if variant.steps else 2 for variant in variants(one)] for one in candidates]
    parts = iter(joined.split([length for each in lengths for length in each], dim=1))
    return [[next(parts) for _ in each] for each in lengths]


@torch.no_grad()
def _adapt_one(candidates: Sequence[Method], network: Network, image: Tensor, key: int, _: CarriedState) -> Tensor:
    source, shared = network(image).softmax(-1), dict[Any, Any]()
    found: list[Tensor] = []
    for candidate in candidates:
        if source.max() >= candidate.confidence_threshold:  # type: ignore[attr-defined]
            found += [source[:, None].repeat(1, max(2, one.steps + 1), 1) for one in variants(candidate)]
        elif isinstance(candidate, Augment):
            found += _augmented(candidate, network, image, key, source)
        else:
            assert isinstance(candidate, Ttaps)
            found += _stepped(candidate, network, image, key, source, shared)
    return torch.cat(found, dim=1)


def _augmented(candidate: Augment, network: Network, image: Tensor, key: int, source: Tensor) -> list[Tensor]:
    seen = network(candidate.draw_views(image, key)).softmax(-1)
    means = {
        count: mean_over_views(seen[:count], candidate.view_weights)
        for count in {v.num_views for v in _means(candidate)}
    }
    after = [
        (source + means[v.num_views]) / 2 if v.predict == "both" else means[v.num_views] for v in _means(candidate)
    ]
    return [torch.stack([source, one], dim=1) for one in after]


def _means(candidate: Augment) -> list[Augment]:
    return [variant for variant in variants(candidate) if isinstance(variant, Augment)]


def _stepped(
    candidate: Ttaps, network: Network, image: Tensor, key: int, source: Tensor, shared: dict[Any, Any]
) -> list[Tensor]:
    name = candidate.views, candidate.adapt_params
    if name not in shared:
        split = SplitNetwork(network, candidate.adapt_params)
        parts = [split.frozen(views) for views in candidate.draw_views(image, key).split(CHUNK)]
        shared[name] = split, split.frozen(image), torch.cat(parts)
    split, plain, features = shared[name]
    traces: list[list[Tensor]] = [[source] for _ in variants(candidate)]
    for weights, taken in candidate.walk(network, split, plain, features, source, key, CarriedState()):
        views = features if candidate.view_pool else features[taken]
        both = network.classifier(split.adapted(torch.cat([plain, views]), weights)).softmax(-1)
        for trace, rows, rule in zip(traces, (both[:1], both[1:], both), ("image", "views", "both"), strict=True):
            trace.append(combine(rows, rule, candidate.view_weights))  # type: ignore[arg-type]
    return [torch.stack(trace, dim=1) for trace in traces]
