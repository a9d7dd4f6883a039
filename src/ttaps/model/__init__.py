"""The network: backbone, projector, prototypes, classifier, and where it can be cut."""

from ttaps.model.backbone import ResNet
from ttaps.model.config import ModelConfig
from ttaps.model.cut import SCOPES, Cut
from ttaps.model.heads import Byol
from ttaps.model.network import Network, as_network, evaluating, to_unit

__all__ = ["SCOPES", "Byol", "Cut", "ModelConfig", "Network", "ResNet", "as_network", "evaluating", "to_unit"]
