"""Networks called with external weights: any classifier as a whole, ours split into a frozen and an adapted part; and the norm
layers of a network: finding them, and replacing their statistics."""

from collections.abc import Collection, Mapping
from copy import deepcopy
from typing import TypeVar, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from ttaps.errors import UsageError
from ttaps.model.network import Network

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
NORMS = (*BATCH_NORMS, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
ADAPT_PARAMS = ("stage3", "last_block", "stage3+projector", "norm", "all")
"""``stage3`` is the paper's "last ResNet block" as its authors run it. Parts of a name joined by + are prefixes of weights, so that
``layer4``, or in full ``backbone.layer4``, are the weights of a backbone's ``layer4``."""
M = TypeVar("M", bound=nn.Module)


def frozen_copy(network: M) -> M:
    """Return a copy in evaluation mode whose weights need no gradients; the network itself is not changed.
    Never in channels_last: torch 2.13 then crashes in the backward pass of a GroupNorm whose input needs no gradient."""
    copy = deepcopy(network).eval().requires_grad_(False)
    for weight in copy.parameters():
        weight.data = weight.data.contiguous()
    return copy


class Functional:
    """A classifier that takes some of its weights as an argument: ``functional(images, weights) -> logits``."""

    def __init__(self, network: nn.Module, names: Collection[str] | None = None) -> None:
        # A copy: functional_call swaps weights in and out of the module it calls, and threads would swap each other's.
        self.copy = frozen_copy(network)
        self.names = names

    def weights(self) -> dict[str, Tensor]:
        """Return the source values of the weights that may change; not copies, so never write to them."""
        weights = ((name, weight) for name, weight in self.copy.named_parameters() if weight.is_floating_point())
        return {name: weight.detach() for name, weight in weights if self.names is None or name in self.names}

    def __call__(self, images: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
        """Return logits of images, with ``weights`` in place of the classifier's own."""
        return functional_call(self.copy, dict(weights), (images.contiguous(),))


class SplitNetwork:
    """A split network: ``frozen(images) -> features`` once, ``adapted(features, weights) -> z`` as often as needed."""

    def __init__(self, network: Network, adapt_params: str = "stage3") -> None:
        pieces = network.pieces()
        names = adapted_names(network, adapt_params)
        homes = [[name for name in names if name.startswith(f"{piece}.")] for piece, _ in pieces]
        if sum(map(len, homes)) != len(names):
            raise UsageError("The backbone's pieces() must use the names of its parts, with each weight in one piece.")
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


def adapted_names(network: Network, adapt_params: str) -> list[str]:
    """Return the names of the weights to adapt; always weights of f or g, never the prototypes or the classifier."""
    theta = [name for name, _ in network.named_parameters() if name.startswith(("backbone.", "projector."))]
    if adapt_params == "norm":
        parts = [set(theta).intersection(norm_weights(network))]
    else:
        parts = [{name for name in theta if name.startswith(prefix)} for prefix in _prefixes(network, adapt_params)]
    if not all(parts):
        own = [name for name, part in network.backbone.named_children() if any(True for _ in part.parameters())]
        raise UsageError(
            f"adapt_params '{adapt_params}', or a part of it, matches no weight of this network.\n"
            f"Known are {', '.join(ADAPT_PARAMS)}, if the backbone has them, and names of its parts: {', '.join([*own, 'projector'])}."
        )
    return [name for name in theta if any(name in part for part in parts)]


def _prefixes(network: Network, adapt_params: str) -> list[str]:
    inside = [(name, piece) for name, piece in network.pieces() if name.startswith("backbone")]
    last = next((name for name, piece in reversed(inside) if any(True for _ in piece.parameters())), "backbone")
    named = {"stage3": "backbone.stage3", "last_block": last}
    own = {name for name, _ in network.backbone.named_modules()}
    parts = ("backbone", "projector") if adapt_params == "all" else adapt_params.split("+")
    full = [named.get(part) or (f"backbone.{part}" if part and part in own else part) for part in parts]
    return [f"{part.removesuffix('.')}." for part in full]


def norm_layers(network: nn.Module) -> dict[str, nn.Module]:
    """Return the normalization layers of a network by name."""
    return {name: layer for name, layer in network.named_modules() if isinstance(layer, NORMS)}


def norm_weights(network: nn.Module) -> list[str]:
    """Return the names of scale and shift of every normalization layer that has them."""
    return [name for layer, norm in norm_layers(network).items() for name, _ in norm.named_parameters(prefix=layer)]


def kinds_of_norm(network: nn.Module) -> str:
    """Say which normalization layers a network has, for messages."""
    kinds = dict.fromkeys(type(layer).__name__ for layer in norm_layers(network).values())
    return ", ".join(kinds) or "none"


class BatchStatistics(nn.Module):
    """A BatchNorm layer whose mean and variance are (N · source + n · test) / (N + n) for n images, with N = ``source_weight``.
    Scale and shift keep their names. The variance is the biased one: BatchNorm divides by it, and it is defined for one pixel."""

    def __init__(self, layer: nn.BatchNorm2d, source_weight: float) -> None:
        super().__init__()
        self.source_weight, self.eps, self.affine = source_weight, layer.eps, layer.affine
        self.weight, self.bias = layer.weight, layer.bias
        self.source_mean, self.source_variance = layer.running_mean, layer.running_var

    def forward(self, x: Tensor) -> Tensor:
        """Return γ (x - μ) / √(σ² + ε) + β for all images of a batch, with statistics of that batch."""
        if not self.source_weight and x.numel() > x.shape[1]:  # torch's own is 1.7 times as fast
            return F.batch_norm(x, None, None, self.weight, self.bias, training=True, eps=self.eps)
        values = x.transpose(0, 1).flatten(1)  # (channels, images and pixels)
        mean, variance = values.mean(1), values.var(1, correction=0)
        if self.source_mean is not None and self.source_variance is not None:  # a layer may have none of its training
            share = len(x) / (self.source_weight + len(x))
            mean, variance = self.source_mean.lerp(mean, share), self.source_variance.lerp(variance, share)
        shape = (-1, *(1 for _ in x.shape[2:]))
        normal = (x - mean.view(shape)) * (variance + self.eps).rsqrt().view(shape)
        return normal * self.weight.view(shape) + self.bias.view(shape) if self.affine else normal


def use_batch_statistics(network: nn.Module, source_weight: float = 0.0) -> None:
    """Replace every BatchNorm layer of a network, in place; call it on a copy."""
    for name, layer in list(network.named_modules()):
        if isinstance(layer, BATCH_NORMS):
            network.set_submodule(name, BatchStatistics(cast(nn.BatchNorm2d, layer), source_weight))


def source_images(source_weight: float, images: int) -> float:
    """Return N for a batch: ``source_weight`` for one image, and one less for each further image, down to 0."""
    return max(0.0, source_weight + 1 - images)


def missing_linear(network: nn.Module) -> str | None:
    """Return a message if a network has no linear layer that could be its last, or None."""
    return None if any(isinstance(layer, nn.Linear) for layer in network.modules()) else "a last linear layer"


def last_linear(network: nn.Module, images: Tensor) -> tuple[Tensor, Tensor, nn.Linear]:
    """Return the logits of images, the input features (N, F) of the last linear layer, and a copy of that layer."""
    copy = frozen_copy(network)
    calls: list[tuple[nn.Linear, tuple[Tensor, ...], Tensor]] = []
    for layer in copy.modules():
        if isinstance(layer, nn.Linear):
            layer.register_forward_hook(lambda *call: calls.append(call))
    logits: Tensor = copy(images)
    output = calls[-1][2] if calls else logits[:0]
    if output.shape != logits.shape or not torch.allclose(output, logits, equal_nan=True):
        kind = type(network).__name__
        raise UsageError(f"This method needs a final linear layer (nn.Linear) for the logits; {kind} has none.")
    last, (features, *_), _ = calls[-1]
    return logits, features, last
