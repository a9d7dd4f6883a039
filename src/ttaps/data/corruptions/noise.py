"""Noise: Gaussian, shot, impulse, speckle. Values are in [0, 255], not yet whole numbers."""

from __future__ import annotations

import numpy as np

from ttaps.data.corruptions.tools import Floats, Pixels, to_uint8_range


def gaussian_noise(image: Pixels, severity: int, rng: np.random.Generator) -> Floats:
    """Add normal noise of one strength to every value."""
    sigma = (0.04, 0.06, 0.08, 0.09, 0.10)[severity - 1]
    noisy = image / 255 + rng.normal(scale=sigma, size=image.shape)
    return to_uint8_range(noisy)


def shot_noise(image: Pixels, severity: int, rng: np.random.Generator) -> Floats:
    """Count photons: a Poisson draw whose mean is proportional to the light."""
    photons = (500, 250, 100, 75, 50)[severity - 1]
    return to_uint8_range(rng.poisson(image / 255 * photons) / photons)


def impulse_noise(image: Pixels, severity: int, rng: np.random.Generator) -> Floats:
    """Set a fraction of all values (each channel for itself) to black or white, evenly."""
    amount = (0.01, 0.02, 0.03, 0.05, 0.07)[severity - 1]
    hit = rng.random(image.shape) < amount
    salt = rng.random(image.shape) < 0.5
    return np.where(hit, np.where(salt, 255.0, 0.0), image)


def speckle_noise(image: Pixels, severity: int, rng: np.random.Generator) -> Floats:
    """Add normal noise proportional to the light."""
    sigma = (0.06, 0.10, 0.12, 0.16, 0.20)[severity - 1]
    light = image / 255
    return to_uint8_range(light + light * rng.normal(scale=sigma, size=image.shape))
