"""Augmented views: draw parameters with :meth:`sample`, then make a whole batch of views with :meth:`apply`."""

from ttaps.views.prime import PrimeViews
from ttaps.views.swav import MT3_VIEWS, CropViews, ShiftViews, SwavViews, quarter_turns, shift_task

__all__ = ["MT3_VIEWS", "CropViews", "PrimeViews", "ShiftViews", "SwavViews", "quarter_turns", "shift_task"]
