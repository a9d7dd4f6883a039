"""Image classifiers that adapt themselves to a single test image."""

import importlib
from typing import TYPE_CHECKING, Any

from ttaps.errors import TtapsError

if TYPE_CHECKING:
    from ttaps.api import adapt, load
    from ttaps.experiments import evaluate, train
    from ttaps.tuning.tune import tune

__version__ = "0.1.0"
PUBLIC = {
    "adapt": "api",
    "load": "api",
    "evaluate": "experiments",
    "train": "experiments",
    "tune": "tuning.tune",
}  # where each is defined
__all__ = ["TtapsError", "__version__", "adapt", "evaluate", "load", "train", "tune"]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Import torch only when a network is needed: ``ttaps --help`` must answer at once."""
    if name in PUBLIC:
        return getattr(importlib.import_module(f"ttaps.{PUBLIC[name]}"), name)
    raise AttributeError(f"module 'ttaps' has no attribute '{name}'")
