"""The network: backbone, projector, prototypes, classifier, and where it can be cut."""

from ttaps.model.backbone import ResNet
from ttaps.model.config import ModelConfig
from ttaps.model.heads import Byol
from ttaps.model.network import Network, as_network, eval_mode, to_float
from ttaps.model.split_network import SCOPES, SplitNetwork, adapted_names

__all__ = [
    "SCOPES",
    "Byol",
    "ModelConfig",
    "Network",
    "ResNet",
    "SplitNetwork",
    "adapted_names",
    "as_network",
    "eval_mode",
    "to_float",
]
