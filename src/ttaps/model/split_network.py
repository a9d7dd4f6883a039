"""A network split into what stays frozen and what an image may change for itself."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ttaps.errors import UsageError
from ttaps.model.functional import frozen_copy, norm_weights
from ttaps.model.network import Network

SCOPES = ("stage3", "last_block", "stage3+projector", "norm", "all")
"""``stage3`` is the paper's "last ResNet block" as its authors run it. Parts of a name joined by + are prefixes of weights, so that
``layer4``, or in full ``backbone.layer4``, is a scope of a backbone that has a ``layer4``."""


class SplitNetwork:
    """A network split at a scope: ``frozen(images) -> features`` once, ``adapted(features, weights) -> z`` as often as needed."""

    def __init__(self, network: Network, scope: str = "stage3") -> None:
        pieces = network.pieces()
        names = adapted_names(network, scope)
        homes = [[name for name in names if name.startswith(f"{piece}.")] for piece, _ in pieces]
        if sum(map(len, homes)) != len(names):
            raise UsageError("The backbone's pieces() must have the names of its parts: each weight in one piece.")
        first = next(index for index, home in enumerate(homes) if home)
        self.head = nn.Sequential(*(piece for _, piece in pieces[:first]))
        # A copy: functional_call swaps weights in and out of the module it calls, and the network is not ours to touch.
        self.tail = frozen_copy(nn.Sequential(*(piece for _, piece in pieces[first:])))
        self._place = {
            name: f"{index}.{name.removeprefix(f'{piece}.')}"
            for index, (piece, _) in enumerate(pieces[first:])
            for name in homes[first + index]
        }

    def weights(self) -> dict[str, Tensor]:
        """Return the source values θ⁽⁰⁾ of the adapted weights, by their names in the network; not copies, so never write to them."""
        return {name: self.tail.get_parameter(place).detach() for name, place in self._place.items()}

    @torch.no_grad()
    def frozen(self, images: Tensor) -> Tensor:
        """Return the features of images where the adapted part begins."""
        return self.head(images)

    def adapted(self, features: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
        """Return z for features, with ``weights`` in place of the network's own."""
        placed = {self._place[name]: weight for name, weight in weights.items()}
        # contiguous: torch 2.13 crashes in GroupNorm's backward pass if its input is channels_last and needs no gradient
        return functional_call(self.tail, placed, (features.contiguous(),))


def adapted_names(network: Network, scope: str) -> list[str]:
    """Return the names of the weights a scope covers; always weights of f or g, never the prototypes or the classifier."""
    theta = [name for name, _ in network.named_parameters() if name.startswith(("backbone.", "projector."))]
    if scope == "norm":
        parts = [set(theta).intersection(norm_weights(network))]
    else:
        parts = [{name for name in theta if name.startswith(prefix)} for prefix in _prefixes(network, scope)]
    if not all(parts):
        raise UsageError(
            f"adapt_params '{scope}', or a part of it, covers no weight of this network.\n"
            f"Known are {', '.join(SCOPES)}, where the backbone has them, and names of its parts: {_parts(network)}."
        )
    return [name for name in theta if any(name in part for part in parts)]


def _prefixes(network: Network, scope: str) -> list[str]:
    inside = [(name, piece) for name, piece in network.pieces() if name.startswith("backbone")]
    last = next((name for name, piece in reversed(inside) if any(True for _ in piece.parameters())), "backbone")
    named = {"stage3": "backbone.stage3", "last_block": last}
    own = {name for name, _ in network.backbone.named_modules()}
    parts = ("backbone", "projector") if scope == "all" else scope.split("+")
    full = [named.get(part) or (f"backbone.{part}" if part and part in own else part) for part in parts]
    return [f"{part.removesuffix('.')}." for part in full]


def _parts(network: Network) -> str:
    children = network.backbone.named_children()
    return ", ".join([name for name, part in children if any(True for _ in part.parameters())] + ["projector"])
