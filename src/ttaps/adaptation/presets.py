"""Presets: ``ttaps:fast`` is method ``ttaps`` with the settings called ``fast``."""

from __future__ import annotations

from typing import Any

MILD = {"scale": [0.7, 1.0], "jitter_strength": 0.0, "gray_p": 0.0, "blur_p": 1.0}

PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "ttaps": {
        # as printed: the defaults
        "paper": {},
        # the authors' code: its momentum leaks from image to image, so results depend on the order
        "reference": {"momentum": 0.9, "weight_decay": 1e-5, "swap_reduction": "mean", "keep_momentum": True},
        # the paper's ten steps as one of ten times the size: they are so small that gradients hardly change on the way
        "fast": {"num_pairs": 24, "steps": 1, "lr": 1.0, "confidence_threshold": 0.7},
        # best on validation images under the four extra corruptions; plain steps, nothing shared between images
        "tuned": {
            "view_pool": 16,
            "num_pairs": 8,
            "adapt_params": "last_block",
            "steps": 2,
            "lr": 2.0,
            "tau": 0.1,
            "epsilon": 0.05,
            "confidence_threshold": 0.5,
            "views": MILD,
        },
    },
    # exactly the views of ttaps:tuned
    "augment": {"tuned": {"views": MILD}},
}
