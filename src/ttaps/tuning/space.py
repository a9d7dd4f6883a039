"""The search space of tuning. A candidate stands for many settings: numbers of steps and views, prediction rule and thresholds
are derived from its stored rows."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from ttaps.adaptation import PRESETS, Augment, Ttaps
from ttaps.config import from_dict
from ttaps.errors import UsageError
from ttaps.model import Network, adapted_names
from ttaps.rng import derive_seed
from ttaps.views import SwavViews

VIEWS = 16
STEPS = 3
CAP = 0.9  # no image above this confidence is adapted: a label that is this sure hardly ever changes, and half of the time is saved
THRESHOLDS = (0.4, 0.5, 0.6, 0.7, 0.8, CAP)
SHIFTS = (0.0, 0.25, 0.5, 0.75)  # shares of clean validation images that are nearer to a prototype than what adapts
PARTS = ("last_block", "last_block+projector", "projector", "stage3")
CODES = ((0.1, 0.05), (0.25, 0.1), (0.25, 0.1), (0.5, 0.25))  # τ and ε
RATES = {False: (0.3, 1.0, 3.0, 8.0), True: (0.003, 0.01, 0.03)}  # lr, by normalize_step
CHOICES: dict[str, tuple[Any, ...]] = {
    "adapt_params": PARTS,
    "test_loss": ("swapped", "consensus"),
    "class_codes": (False, True),
    "view_weights": ("equal", "agreement"),
    "kl_weight": (0.0, 0.0, 1.0),
    "momentum": (0.0, 0.0, 0.9),
    "normalize_step": (False, True),
}


def all_views() -> list[Augment]:
    """Return the mean over views of every kind; mild ones only, since none of our models gained on others."""
    kinds = product((0.5, 0.7, 0.9), (0.0, 1.0), (0.0, 0.3))
    views = [SwavViews(scale=(low, 1.0), jitter_strength=s, gray_p=0.0, blur_p=p) for low, p, s in kinds]
    return [Augment(num_views=VIEWS, confidence_threshold=CAP, views=one) for one in views]


def draw_candidates(network: Network, views: Sequence[SwavViews], count: int, seed: int) -> list[Ttaps]:
    """Return candidates with views of these kinds, best first: the package's settings, softer codes, and others at random."""
    parts = [part for part in PARTS if _has(network, part)]
    usual = from_dict(Ttaps, PRESETS["ttaps"]["tuned"], where="ttaps")
    usual = replace(usual, steps=STEPS, confidence_threshold=CAP, view_pool=VIEWS, num_pairs=VIEWS // 2, views=views[0])
    found = [usual, replace(usual, tau=0.25, epsilon=0.1)]
    draw = np.random.Generator(np.random.PCG64(derive_seed(seed, "tune")))
    while len(found) < count:
        chosen = {name: _pick(draw, parts if values is PARTS else values) for name, values in CHOICES.items()}
        tau, epsilon = _pick(draw, CODES)
        chosen |= {"lr": _pick(draw, RATES[chosen["normalize_step"]]), "views": _pick(draw, views)}
        candidate = replace(usual, tau=tau, epsilon=epsilon, **chosen)
        found += [] if candidate in found else [candidate]
    return found[:count]


def _has(network: Network, part: str) -> bool:
    try:
        return bool(adapted_names(network, part))
    except UsageError:
        return False


def _pick(draw: np.random.Generator, values: Sequence[Any]) -> Any:
    return values[int(draw.integers(len(values)))]
