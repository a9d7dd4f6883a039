"""Extra heads that the compared methods train beside the classifier: TTT's rotation head and MT3's predictor."""

from __future__ import annotations

from copy import deepcopy

from torch import Tensor, nn

from ttaps.errors import UsageError
from ttaps.model.backbone import ResNet
from ttaps.model.config import ModelConfig


def make_head(name: str, backbone: nn.Module, config: ModelConfig) -> nn.Sequential:
    """Return the head called ``name`` in its initial state."""
    if name == "predictor":
        outer, inner = config.projection_dim, config.hidden_dim
        return nn.Sequential(nn.Linear(outer, inner), nn.ReLU(), nn.Linear(inner, outer))
    if not isinstance(backbone, ResNet):
        raise UsageError("A rotation head branches off the stages of our own ResNet; leave it out of model.heads.")
    return nn.Sequential(deepcopy(backbone.stage3), deepcopy(backbone.pool), nn.Linear(backbone.features, 4))


def start_rotation_head(network: nn.Module) -> None:
    """Make the rotation head's own stage a copy of stage 3 as it is now; before the first step it is one already."""
    rotation = network.get_submodule("heads.rotation.0")
    rotation.load_state_dict(network.get_submodule("backbone.stage3").state_dict())


class Byol(nn.Module):
    """Images to their projections z and the predictions q(z), with the parts of a network and no others."""

    def __init__(self, pieces: list[tuple[str, nn.Module]], predictor: nn.Module) -> None:
        super().__init__()
        self.encoder = nn.Sequential(*(piece for _, piece in pieces))
        self.predictor = predictor

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return z and q(z), both of shape (N, Z)."""
        z = self.encoder(images)
        return z, self.predictor(z)
