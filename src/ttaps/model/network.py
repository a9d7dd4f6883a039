"""The whole network of the paper's Fig. 1: backbone f, projector g, prototypes C and classifier h, with normalization inside."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from threading import Lock

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ttaps.errors import UsageError
from ttaps.model.backbone import ResNet
from ttaps.model.config import ModelConfig


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


def pooled(features: Tensor) -> Tensor:
    """Return features (N, F): feature maps (N, F, H, W) are averaged over all positions."""
    if isinstance(features, Tensor) and features.ndim in (2, 4):
        return features.mean((2, 3)) if features.ndim == 4 else features
    found = f"shape {tuple(features.shape)}" if isinstance(features, Tensor) else f"type {type(features).__name__}"
    wanted = "features (N, F) or feature maps (N, F, H, W)"
    raise UsageError(f"A backbone must return {wanted}; this one returned {found}.")


class Projector(nn.Sequential):
    """g: two layers from the backbone's features to Z dimensions."""

    def __init__(self, features: int, config: ModelConfig) -> None:
        norm = [nn.GroupNorm(config.num_groups, config.hidden_dim)] if config.projector_norm else []
        first, last = nn.Linear(features, config.hidden_dim), nn.Linear(config.hidden_dim, config.projection_dim)
        super().__init__(first, *norm, nn.ReLU(), last)
        self.features = features

    def forward(self, x: Tensor) -> Tensor:
        """Return projections of features (N, features), or of feature maps (N, features, H, W)."""
        x = pooled(x)
        if x.shape[1] != self.features:
            raise UsageError(f"The backbone returns {x.shape[1]} features, but the network expects {self.features}.")
        for layer in self:
            x = layer(x)
        return x


class Byol(nn.Module):
    """Images to their projections z and the predictions q(z), using only parts of a network."""

    def __init__(self, pieces: list[tuple[str, nn.Module]], predictor: nn.Module) -> None:
        super().__init__()
        self.encoder = nn.Sequential(*(piece for _, piece in pieces))
        self.predictor = predictor

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return z and q(z), both of shape (N, Z)."""
        z = self.encoder(images)
        return z, self.predictor(z)


class Network(nn.Module):
    """Images (N, 3, H, W), uint8 or float in [0, 1], to class logits; ``project`` gives z, ``scores`` compares z with the prototypes.
    Any ``nn.Module`` that maps normalized images to (N, features), or to feature maps, can be the backbone. One with a ``pieces()`` method
    like :meth:`ResNet.pieces`, or an ``nn.Sequential``, is cut where its adapted part begins; others run as a whole at every step."""

    def __init__(self, config: ModelConfig, backbone: nn.Module | None = None, features: int | None = None) -> None:
        super().__init__()
        self.config = config
        self.normalize = Normalize(config.mean, config.std)
        norm = partial(nn.GroupNorm, config.num_groups) if config.norm == "group" else nn.BatchNorm2d
        if backbone is not None and not isinstance(backbone, nn.Module):  # what a user's function returned
            raise UsageError(f"A backbone must be a torch.nn.Module, not {type(backbone).__name__}.")
        self.backbone = backbone or ResNet(config.depth, config.width, norm, config.stem_padding)
        if features is None:
            ours = isinstance(self.backbone, ResNet)
            features = 4 * config.width if ours else count_features(self.backbone, config.image_size)
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
        self.heads = nn.ModuleDict({name: self._head(name) for name in config.heads})

    def _head(self, name: str) -> nn.Sequential:
        """Return a head that a compared method trains beside the classifier: MT3's predictor, or TTT's rotation head."""
        if name == "predictor":
            outer, inner = self.config.projection_dim, self.config.hidden_dim
            return nn.Sequential(nn.Linear(outer, inner), nn.ReLU(), nn.Linear(inner, outer))
        if not isinstance(self.backbone, ResNet):
            raise UsageError("A rotation head needs the stages of our own ResNet; remove it from model.heads.")
        backbone = deepcopy(self.backbone)
        return nn.Sequential(backbone.stage3, backbone.pool, nn.Linear(backbone.features, 4))

    def start_rotation_head(self) -> None:
        """Make the rotation head's own stage a copy of the current stage 3; before the first step it already is."""
        rotation = self.get_submodule("heads.rotation.0")
        rotation.load_state_dict(self.get_submodule("backbone.stage3").state_dict())

    @property
    def image_size(self) -> int:
        """Height and width of the input images."""
        return self.config.image_size

    def pieces(self) -> list[tuple[str, nn.Module]]:
        """Return the modules between an image and z, in order, by name."""
        inner = getattr(self.backbone, "pieces", None)  # any module may be the backbone
        if inner is None and type(self.backbone).forward is nn.Sequential.forward:
            inner = self.backbone.named_children
        named = [(f"backbone.{name}", piece) for name, piece in inner()] if inner else [("backbone", self.backbone)]
        ends = [("projector", self.projector), ("l2_normalize", self.l2_normalize)]
        return [("normalize", self.normalize), *named, *ends]

    def split(self, part: str) -> tuple[nn.Sequential, nn.Sequential]:
        """Return the pieces before ``part``, such as ``backbone.stage3``, and the pieces from there to z."""
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
        """Project the prototypes back onto the unit sphere, as SwAV does before every training step."""
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
    """Put a network into evaluation mode; each layer's mode is restored when the last thread is done with the network."""
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


@contextmanager
def explain_failure(what: str, size: int) -> Iterator[None]:
    """Turn what a user's own module raises into one line."""
    try:
        yield
    except UsageError:
        raise
    except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UsageError(f"The {what} cannot take images of 3 x {size} x {size}: {reason}") from error


def count_features(backbone: nn.Module, size: int) -> int:
    """Return the number of features of a backbone."""
    weight = next(backbone.parameters(), torch.empty(0))
    with explain_failure("backbone", size), eval_mode(backbone), torch.no_grad():
        return pooled(backbone(torch.zeros(1, 3, size, size, device=weight.device, dtype=weight.dtype))).shape[1]


def to_float(images: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return uint8 pixels as floats in [0, 1]; leave floats alone."""
    if images.dtype == torch.uint8:
        return images.to(dtype).div(255)
    if not images.is_floating_point():
        raise UsageError(f"Images must be uint8 or float in [0, 1], not {str(images.dtype).removeprefix('torch.')}.")
    return images.to(dtype)
