"""Named settings: ``ttaps:fast`` is method ``ttaps`` with the settings called ``fast``."""

from __future__ import annotations

from typing import Any

SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "ttaps": {
        "paper": {},  # as printed: the defaults
        # the authors' code: its momentum leaks from image to image, so results depend on the order
        "reference": {"momentum": 0.9, "weight_decay": 1e-5, "directions": "mean", "leak": True},
        "fast": {"pool": 32, "copies": 16, "scope": "last_block", "sure": 0.9},
    }
}
