"""Blur: defocus, glass, motion, zoom, Gaussian. Values are in [0, 255], not yet whole numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ttaps.data.corruptions import tools
from ttaps.data.corruptions.tools import SIDE, Floats, Pixels, to_uint8_range


def gaussian_blur(image: Pixels, severity: int) -> Floats:
    """Blur with a Gaussian."""
    sigma = (0.4, 0.6, 0.7, 0.8, 1.0)[severity - 1]
    return to_uint8_range(tools.gaussian(image / 255, sigma))


def disk(radius: float, smooth: float) -> Floats:
    """Return the 17 x 17 kernel of a lens out of focus: a disk with softened edge, sum 1."""
    line = np.arange(-8, 9)
    inside = (line[:, None] ** 2 + line**2 <= radius**2).astype(np.float32)
    return tools.require("cv2").GaussianBlur(inside / inside.sum(), ksize=(3, 3), sigmaX=smooth)


def defocus_blur(image: Pixels, severity: int) -> Floats:
    """Blur with a disk."""
    radius, smooth = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1))[severity - 1]
    blurred: Floats = tools.require("cv2").filter2D(image / 255, -1, disk(radius, smooth))
    return to_uint8_range(blurred)


def copy_neighbors(image: Pixels, up: npt.NDArray[np.int64], left: npt.NDArray[np.int64]) -> Pixels:
    """Give every pixel but the first two rows and columns the value ``up`` and ``left`` of it, 0 or 1 away.

    The official loop means to swap pixels but, on views of one array, only copies; it walks from the lower right to the
    upper left, so it never reads what it has written, and all pixels can be copied at once.
    """
    inner = np.arange(2, SIDE)
    shuffled = image.copy()
    shuffled[2:, 2:] = image[inner[:, None] - up, inner - left]
    return shuffled


def glass_blur(image: Pixels, severity: int, rng: np.random.Generator) -> Floats:
    """Blur, move pixels by at most one place per round, blur again."""
    sigma, rounds = ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2))[severity - 1]
    shuffled = (tools.gaussian(image / 255, sigma) * 255).astype(np.uint8)
    for _ in range(rounds):
        up, left = rng.integers(0, 2, size=(2, SIDE - 2, SIDE - 2))
        shuffled = copy_neighbors(shuffled, up, left)
    return to_uint8_range(tools.gaussian(shuffled / 255, sigma))


def motion_blur(image: Pixels, severity: int, rng: np.random.Generator) -> Floats:
    """Blur along a line within 45 degrees of the horizontal."""
    radius, sigma = ((6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5))[severity - 1]
    return tools.motion_blur(image, radius, sigma, degrees=rng.uniform(-45, 45))


def zoom_blur(image: Pixels, severity: int) -> Floats:
    """Average the image with magnified copies of itself."""
    farthest = (1.06, 1.11, 1.16, 1.21, 1.26)[severity - 1]
    factors = np.arange(1, farthest, 0.01)
    light = (image / 255).astype(np.float32)
    copies = np.zeros_like(light)
    for factor in factors:
        copies += tools.clipped_zoom(light, factor)
    return to_uint8_range((light + copies) / (len(factors) + 1))
