"""Image classifiers that adapt themselves to a single test image."""

from typing import TYPE_CHECKING, Any

from ttaps.errors import TtapsError

if TYPE_CHECKING:
    from ttaps.api import adapt, load

__version__ = "0.1.0"
__all__ = ["TtapsError", "__version__", "adapt", "load"]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Import torch only when a network is really wanted: ``ttaps --help`` must answer at once."""
    if name in ("adapt", "load"):
        from ttaps import api

        return getattr(api, name)
    raise AttributeError(f"module 'ttaps' has no attribute '{name}'")
