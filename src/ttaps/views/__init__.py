"""Augmented views: draw parameters with :meth:`sample`, then make all views of a batch at once with :meth:`apply`."""

from ttaps.views.parameters import Parameters
from ttaps.views.swav import CropViews, SwavViews

__all__ = ["CropViews", "Parameters", "SwavViews"]
