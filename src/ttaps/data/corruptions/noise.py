"""Noise: Gaussian, shot, impulse, speckle. Values are in [0, 255], not yet whole numbers."""

import numpy as np

from ttaps.data.corruptions.severity import constants
from ttaps.data.corruptions.tools import Floats, Pixels, to_uint8_range


def gaussian_noise(image: Pixels, severity: int, rng: np.random.Generator) -> Floats:
    """Add normal noise of one strength to every value."""
    (sigma,) = constants("gaussian_noise", severity, image)
    return to_uint8_range(image / 255 + rng.normal(scale=sigma, size=image.shape))


def shot_noise(image: Pixels, severity: int, rng: np.random.Generator) -> Floats:
    """Count photons: a Poisson draw whose mean is proportional to the light."""
    (photons,) = constants("shot_noise", severity, image)
    return to_uint8_range(rng.poisson(image / 255 * photons) / photons)


def impulse_noise(image: Pixels, severity: int, rng: np.random.Generator) -> Floats:
    """Set a fraction of all values (each channel for itself) to black or white, evenly."""
    (amount,) = constants("impulse_noise", severity, image)
    hit = rng.random(image.shape) < amount
    salt = rng.random(image.shape) < 0.5
    return np.where(hit, np.where(salt, 255.0, 0.0), image)


def speckle_noise(image: Pixels, severity: int, rng: np.random.Generator) -> Floats:
    """Add normal noise proportional to the light."""
    (sigma,) = constants("speckle_noise", severity, image)
    light = image / 255
    return to_uint8_range(light + light * rng.normal(scale=sigma, size=image.shape))
