"""The whole network of the paper's Fig. 1: backbone f, projector g, prototypes C and classifier h, with normalization inside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from threading import Lock

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ttaps.errors import UsageError
from ttaps.model.backbone import Norm, ResNet
from ttaps.model.config import ModelConfig
from ttaps.model.heads import Byol, make_head


class Normalize(nn.Module):
    """Pixels, uint8 or float in [0, 1], to zero mean and unit deviation per channel."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return normalized float images."""
        return (to_float(images, self.mean.dtype) - self.mean) / self.std


class L2Normalize(nn.Module):
    """Project onto the unit sphere: "the l2-normalized lower dimensional projection"."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x / ‖x‖."""
        return F.normalize(x, dim=-1)


class Projector(nn.Sequential):
    """g: two layers from the backbone's features to Z dimensions."""

    def __init__(self, features: int, config: ModelConfig) -> None:
        norm = [nn.GroupNorm(config.num_groups, config.hidden_dim)] if config.projector_norm else []
        first, last = nn.Linear(features, config.hidden_dim), nn.Linear(config.hidden_dim, config.projection_dim)
        super().__init__(first, *norm, nn.ReLU(), last)
        self.features = features

    def forward(self, x: Tensor) -> Tensor:
        """Return projections of features (N, features)."""
        if x.shape[1:] != (self.features,):
            found = " x ".join(map(str, x.shape[1:]))
            raise UsageError(
                f"The backbone returns {found} features, the network was made for features={self.features}."
            )
        for layer in self:
            x = layer(x)
        return x


class Network(nn.Module):
    """Images (N, 3, H, W), uint8 or float in [0, 1], to class logits; ``project`` gives z, ``scores`` compares z with the prototypes.

    Any ``nn.Module`` that maps normalized images to (N, features) can be the backbone. With a ``pieces()`` method like
    :meth:`ResNet.pieces` it can also be cut inside, otherwise it is adapted as one piece.
    """

    def __init__(self, config: ModelConfig, backbone: nn.Module | None = None, features: int | None = None) -> None:
        super().__init__()
        self.config = config
        self.normalize = Normalize(config.mean, config.std)
        self.backbone = backbone or ResNet(config.depth, config.width, _norm(config), config.stem_padding)
        features = features or getattr(self.backbone, "features", None)
        if not isinstance(features, int):
            raise UsageError("Say how many features your backbone returns: Network(config, backbone, features=...).")
        self.projector = Projector(features, config)
        self.l2_normalize = L2Normalize()
        self.prototypes = nn.Parameter(F.normalize(torch.randn(config.num_prototypes, config.projection_dim), dim=1))
        self.classifier = nn.Linear(config.projection_dim, config.num_classes)
        with torch.no_grad():
            self.classifier.weight.mul_(config.classifier_scale)
        if config.zero_init_residual and isinstance(self.backbone, ResNet):
            self.backbone.zero_branches()
        if config.smooth_stem and isinstance(self.backbone, ResNet):
            self.backbone.smooth_stem()
        # Last, so that the rest starts the same with and without heads.
        self.heads = nn.ModuleDict({name: make_head(name, self.backbone, config) for name in config.heads})

    def pieces(self) -> list[tuple[str, nn.Module]]:
        """Return the modules between an image and z, in order, by name."""
        inner = getattr(self.backbone, "pieces", None)  # any module may be the backbone
        named = [(f"backbone.{name}", piece) for name, piece in inner()] if inner else [("backbone", self.backbone)]
        ends = [("projector", self.projector), ("l2_normalize", self.l2_normalize)]
        return [("normalize", self.normalize), *named, *ends]

    def split(self, part: str) -> tuple[nn.Sequential, nn.Sequential]:
        """Return what comes before the first piece of ``part``, such as ``backbone.stage3``, and what comes from there to z."""
        pieces = self.pieces()
        first = next(index for index, (name, _) in enumerate(pieces) if name.startswith(part))
        modules = [piece for _, piece in pieces]
        return nn.Sequential(*modules[:first]), nn.Sequential(*modules[first:])

    def rotation_branch(self) -> nn.Sequential:
        """Return the module from images to the logits of four rotations: the stages before the third, then the rotation head."""
        return nn.Sequential(self.split("backbone.stage3")[0], self.heads["rotation"])

    def byol(self) -> Byol:
        """Return the module from images to z and its prediction."""
        return Byol(self.pieces(), self.heads["predictor"])

    def project(self, images: Tensor) -> Tensor:
        """Return z = g(f(x)), unit vectors of shape (N, Z)."""
        return self.l2_normalize(self.projector(self.backbone(self.normalize(images))))

    def scores(self, z: Tensor) -> Tensor:
        """Return Cᵀz, the cosine of every z with every prototype, shape (N, K)."""
        # never in bfloat16: it has cosines to 0.004, and the codes divide them by ε
        with torch.autocast(z.device.type, enabled=False):
            return z.to(self.prototypes.dtype) @ self.prototypes.T

    def forward(self, images: Tensor) -> Tensor:
        """Return class logits h(g(f(x)))."""
        return self.classifier(self.project(images))

    @torch.no_grad()
    def renormalize_prototypes(self) -> None:
        """Put the prototypes back on the unit sphere, as SwAV does before every training step."""
        self.prototypes.copy_(F.normalize(self.prototypes, dim=1))


def as_network(module: nn.Module) -> Network:
    """Return a module that is a :class:`Network`; refuse others."""
    if not isinstance(module, Network):
        raise UsageError(f"This needs a ttaps network with its heads, not a {type(module).__name__}.")
    return module


_evaluated: dict[nn.Module, tuple[int, bool]] = {}  # layer: how many threads use it, and its mode before
_guard = Lock()


@contextmanager
def eval_mode(network: nn.Module) -> Iterator[None]:
    """Put a network into evaluation mode; each layer returns to its mode when the last thread is done with the network."""
    layers = list(network.modules())
    with _guard:
        for layer in layers:
            users, training = _evaluated.get(layer, (0, layer.training))
            _evaluated[layer] = users + 1, training
        network.eval()
    try:
        yield
    finally:
        with _guard:
            for layer in layers:
                users, training = _evaluated.pop(layer)
                if users > 1:
                    _evaluated[layer] = users - 1, training
                else:
                    layer.training = training


def to_float(images: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return uint8 pixels as floats in [0, 1]; leave floats alone."""
    if images.dtype == torch.uint8:
        return images.to(dtype).div(255)
    if not images.is_floating_point():
        raise UsageError(f"Images must be uint8 or float in [0, 1], not {str(images.dtype).removeprefix('torch.')}.")
    return images.to(dtype)


def _norm(config: ModelConfig) -> Norm:
    return partial(nn.GroupNorm, config.num_groups) if config.norm == "group" else nn.BatchNorm2d
