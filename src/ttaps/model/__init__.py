"""The network: backbone, projector, prototypes, classifier, and how to split it."""

from typing import TYPE_CHECKING, Any

from ttaps.model.config import ModelConfig

if TYPE_CHECKING:
    from ttaps.model.backbone import ResNet
    from ttaps.model.functional import ADAPT_PARAMS, SplitNetwork, adapted_names
    from ttaps.model.network import Byol, Network, as_network, eval_mode, to_float

__all__ = ["ADAPT_PARAMS", "Byol", "ModelConfig", "Network", "ResNet", "SplitNetwork"]
__all__ += ["adapted_names", "as_network", "eval_mode", "to_float"]


def __getattr__(name: str) -> Any:
    """Import torch only when a network is wanted: the help of ``ttaps train`` and the names of models need none."""
    if name not in __all__:
        raise AttributeError(f"module 'ttaps.model' has no attribute '{name}'")
    from ttaps.model import backbone, functional, network

    return next(vars(part)[name] for part in (backbone, functional, network) if name in vars(part))
