"""Augmented views: draw parameters with :meth:`sample`, then make all views of a batch at once with :meth:`apply`."""

from ttaps.views.mt3 import MT3_VIEWS, shift_task
from ttaps.views.parameters import Parameters
from ttaps.views.prime import PrimeViews
from ttaps.views.swav import CropViews, SwavViews
from ttaps.views.ttt import ShiftViews, quarter_turns

__all__ = [
    "MT3_VIEWS",
    "CropViews",
    "Parameters",
    "PrimeViews",
    "ShiftViews",
    "SwavViews",
    "quarter_turns",
    "shift_task",
]
