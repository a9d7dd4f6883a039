"""The architecture of a network, as plain values that round-trip through JSON."""

import math
from dataclasses import dataclass
from typing import Literal

from ttaps.config import check_min
from ttaps.errors import UsageError

CONFIG = "config.json"  # the file of a model's folder that holds it
CIFAR10_MEAN = (0.4914, 0.4822, 0.4465)
CIFAR10_STD = (0.2470, 0.2435, 0.2616)


@dataclass(frozen=True)
class ModelConfig:
    """The paper's network by default: ResNet-26 with 32 filters and GroupNorm(16), Z = 128, K = 300."""

    num_classes: int = 10  # Number of classes.
    num_prototypes: int = 300  # K, the number of prototypes.
    projection_dim: int = 128  # Z, the dimension of the shared projection space.
    hidden_dim: int = 256  # Width of the projector's hidden layer.
    projector_norm: bool = False
    """GroupNorm between the projector's two layers, as in the authors' code but not the paper."""
    depth: int = 26  # Layers of the ResNet: 6n + 2, with n basic blocks in each of the three stages.
    width: int = 32  # Filters of the first stage; the second and third have two and four times as many.
    norm: Literal["group", "batch"] = "group"  # Normalization layers of the backbone.
    num_groups: int = 16  # Groups of every GroupNorm.
    stem_padding: int = 1
    """Zero padding of the first convolution; the authors' code has 2: feature maps of 34, 17 and 9 pixels for images of 32."""
    image_size: int = 32  # Height and width of the images the network was made for.
    mean: tuple[float, float, float] = CIFAR10_MEAN  # Channel means of the input.
    std: tuple[float, float, float] = CIFAR10_STD  # Channel standard deviations of the input.
    zero_init_residual: bool = False
    """Start every residual branch at zero (its last norm's scale), which helps short training runs."""
    smooth_stem: bool = False
    """Start every filter of the stem as a blur, so that short training runs do not learn to respond to pixel noise."""
    classifier_scale: float = 1.0
    """Factor on the classifier's initial weights; z has unit norm, so 1 gives tiny initial logits."""
    heads: tuple[Literal["rotation", "predictor"], ...] = ()
    """Extra heads: ``rotation`` (TTT: its own stage 3 and four logits) and ``predictor`` (MT3: a second projector on z)."""

    def __post_init__(self) -> None:
        check_min(self, num_classes=1, num_prototypes=1, projection_dim=1, hidden_dim=1)
        check_min(self, width=1, num_groups=1, image_size=1, stem_padding=0)
        if not all(0 < value < math.inf for value in self.std):
            raise UsageError(f"model.std must be positive, not {self.std}.")
        for name, values in (("mean", self.mean), ("classifier_scale", (self.classifier_scale,))):
            if not all(map(math.isfinite, values)):
                raise UsageError(f"model.{name} must be finite, not {', '.join(map(str, values))}.")
        if self.depth not in range(8, 1203, 6):
            raise UsageError(f"model.depth must be 6n + 2 (8, 14, 20, 26, 32, ... 1202), not {self.depth}.")
        grouped = {"width": self.width} if self.norm == "group" else {}
        grouped |= {"hidden_dim": self.hidden_dim} if self.projector_norm else {}
        for name, size in grouped.items():
            if size % self.num_groups:
                raise UsageError(f"model.{name} ({size}) must be a multiple of model.num_groups ({self.num_groups}).")
