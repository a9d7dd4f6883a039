"""Named settings: ``ttaps:fast`` is method ``ttaps`` with the settings called ``fast``."""

from __future__ import annotations

from typing import Any

MILD = {"scale": [0.7, 1.0], "jitter": 0.0, "grayscale": 0.0, "blur": 1.0}

SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "ttaps": {
        "paper": {},  # as printed: the defaults
        # the authors' code: its momentum leaks from image to image, so results depend on the order
        "reference": {"momentum": 0.9, "weight_decay": 1e-5, "directions": "mean", "leak": True},
        # the paper's ten steps as one of ten times the size: they are so small that gradients hardly change on the way (docs/log.md)
        "fast": {"copies": 24, "steps": 1, "lr": 1.0, "sure": 0.7},
        # best on validation images under the four extra corruptions (docs/results.md); plain steps, nothing shared between images
        "tuned": {
            "pool": 16,
            "copies": 8,
            "scope": "last_block",
            "steps": 2,
            "lr": 2.0,
            "tau": 0.1,
            "epsilon": 0.05,
            "sure": 0.5,
            "views": MILD,
        },
    },
    "average": {"tuned": {"views": MILD}},  # the very views of ttaps:tuned
}
