"""Blur: defocus, glass, motion, zoom, Gaussian. Values are in [0, 255], not yet whole numbers."""

from math import ceil

import numpy as np
import numpy.typing as npt

from ttaps.data.corruptions import tools
from ttaps.data.corruptions.severity import PUBLISHED, between, constants, neighbors
from ttaps.data.corruptions.tools import Floats, Pixels, to_uint8_range

Kernel = npt.NDArray[np.float32]


def gaussian_blur(image: Pixels, severity: int) -> Floats:
    """Blur with a Gaussian."""
    (sigma,) = constants("gaussian_blur", severity, image)
    return to_uint8_range(tools.gaussian(image / 255, sigma))


def defocus_blur(image: Pixels, severity: int) -> Floats:
    """Blur with the kernel of a defocused lens."""
    return to_uint8_range(tools.require("cv2").filter2D(image / 255, -1, lens(severity, image)))


def lens(severity: int, image: Pixels) -> Kernel:
    """Return the kernel of a lens out of focus, sum 1: a disk with softened edge. Between the published sizes the disk's edge is as
    soft as makes the variance of the kernel follow the rule of the constants: a radius below 1 has no other effect."""
    low, high, share = neighbors(image)
    first, second = (published_lens(*PUBLISHED["defocus_blur"][place][severity - 1]) for place in (low, high))
    if not share:
        return first
    kernel = disk(constants("defocus_blur", severity, image)[0], grid=9)
    more = between(variance(first), variance(second), share) - variance(kernel)
    soft = np.array((more, 2 * (1 - more), more), dtype=np.float32) / 2  # its variance is ``more``
    return kernel if more <= 0 else np.asarray(tools.require("cv2").sepFilter2D(kernel, -1, soft, soft))


def published_lens(radius: float, smooth: float) -> Kernel:
    """Return the official kernel, at least 17 x 17."""
    width = 3 if radius <= 8 else 5
    return np.asarray(tools.require("cv2").GaussianBlur(disk(radius, grid=1), ksize=(width, width), sigmaX=smooth))


def disk(radius: float, grid: int) -> Kernel:
    """Return a disk, sum 1, whose border pixels count by how many of their ``grid`` x ``grid`` points are inside."""
    reach = max(8, ceil(radius) + (grid > 1))  # room for a softer edge
    line = (np.arange(grid * (2 * reach + 1)) - grid // 2) / grid - reach
    fine = (line[:, None] ** 2 + line**2 <= radius**2).astype(np.float32)
    whole = fine.reshape(2 * reach + 1, grid, 2 * reach + 1, grid).sum(axis=(1, 3))
    return np.asarray(whole / whole.sum(), dtype=np.float32)


def variance(kernel: Kernel) -> float:
    """Return the variance of a symmetric kernel along one axis, in pixels squared."""
    reach = len(kernel) // 2
    return float(kernel.sum(axis=0) @ np.arange(-reach, reach + 1) ** 2)


def copy_neighbors(image: Pixels, up: npt.NDArray[np.int64], left: npt.NDArray[np.int64]) -> Pixels:
    """Give every pixel but those at the border the value ``up`` and ``left`` of it (down and right if negative), one after the
    other from the lower right to the upper left: the official loop means to swap pixels but, on views of one array, only copies."""
    height, width = image.shape[:2]
    edge = (height - len(up)) // 2 + 1
    sources = list(range(height * width))  # numbers in a list: 20 times as fast as pixels of an array
    rows, columns = (np.arange(edge, edge + count) for count in up.shape)
    places = rows[:, None] * width + columns
    origins = places - up * width - left
    for place, origin in zip(places.ravel()[::-1].tolist(), origins.ravel()[::-1].tolist(), strict=True):
        sources[place] = sources[origin]
    return image.reshape(height * width, -1)[sources].reshape(image.shape)


def glass_blur(image: Pixels, severity: int, rng: np.random.Generator) -> Floats:
    """Blur, move pixels a few places per round, blur again."""
    sigma, *whole = constants("glass_blur", severity, image)
    most, rounds = map(round, whole)
    height, width = image.shape[:2]
    shuffled = (tools.gaussian(image / 255, sigma) * 255).astype(np.uint8)
    for _ in range(rounds):
        up, left = rng.integers(0, 2 * most, size=(2, height - 2 * most, width - 2 * most)) - (most - 1)
        shuffled = copy_neighbors(shuffled, up, left)
    return to_uint8_range(tools.gaussian(shuffled / 255, sigma))


def motion_blur(image: Pixels, severity: int, rng: np.random.Generator) -> Floats:
    """Blur along a line within 45 degrees of the horizontal."""
    radius, sigma = constants("motion_blur", severity, image)
    return tools.motion_blur(image, round(radius), sigma, degrees=rng.uniform(-45, 45))


def zoom_blur(image: Pixels, severity: int) -> Floats:
    """Average the image with magnified copies of itself."""
    farthest, step = constants("zoom_blur", severity, image)
    factors = np.arange(1, farthest, step)
    light = (image / 255).astype(np.float32)
    copies = np.zeros_like(light)
    for factor in factors:
        copies += tools.clipped_zoom(light, factor)
    return to_uint8_range((light + copies) / (len(factors) + 1))
