"""Weather: fog, frost, snow, spatter. Values are in [0, 255], not yet whole numbers."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import numpy as np
from PIL import Image

from ttaps.data.corruptions import tools
from ttaps.data.corruptions.tools import SIDE, Floats, Pixels, require, to_uint8_range

FROST_PICTURES = ("frost1", "frost2", "frost3", "frost4", "frost5")
"""The official recipe lists six pictures and draws from the first five."""

WATER = np.array((175, 238, 238), dtype=np.float32) / 255
MUD = np.array((63, 42, 20), dtype=np.float32) / 255


def plasma(decay: float, rng: np.random.Generator) -> Floats:
    """Draw a cloud, (32, 32) with values from 0 to 1: the diamond-square fractal on a torus."""
    cloud = np.zeros((SIDE, SIDE))
    step, wibble = SIDE, 100.0

    def mean_of(*neighbors: Floats) -> Floats:
        # the recipe scales a draw from ±wibble by wibble once more: noise falls with decay squared
        return sum(neighbors, np.zeros(())) / 4 + wibble * rng.uniform(-wibble, wibble, neighbors[0].shape)

    while step >= 2:
        half = step // 2
        corners = cloud[::step, ::step]
        right, below = np.roll(corners, -1, axis=1), np.roll(corners, -1, axis=0)
        centres = mean_of(corners, right, below, np.roll(right, -1, axis=0))
        cloud[half::step, half::step] = centres
        cloud[::step, half::step] = mean_of(corners, right, centres, np.roll(centres, 1, axis=0))
        cloud[half::step, ::step] = mean_of(corners, below, centres, np.roll(centres, 1, axis=1))
        step, wibble = half, wibble / decay
    cloud -= cloud.min()
    return cloud / float(cloud.max())


def fog(image: Pixels, severity: int, rng: np.random.Generator) -> Floats:
    """Add a cloud and scale back, so that the brightest value keeps its place."""
    thickness, decay = ((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75))[severity - 1]
    light = image / 255
    brightest = float(light.max())
    foggy = light + thickness * plasma(decay, rng)[..., None]
    return to_uint8_range(foggy * brightest / (brightest + thickness))


@cache
def frost_picture(name: str) -> Pixels:
    """Read a picture of frost, already shrunk to a fifth as the recipe does (see frost/NOTICE.md)."""
    with (files("ttaps.data") / "frost" / f"{name}.png").open("rb") as file:
        return np.asarray(Image.open(file).convert("RGB"))


def frost(image: Pixels, severity: int, rng: np.random.Generator) -> Floats:
    """Lay a random piece of a frost picture over the image."""
    keep, cover = ((1.0, 0.2), (1.0, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))[severity - 1]
    picture = frost_picture(FROST_PICTURES[rng.integers(len(FROST_PICTURES))])
    top, left = rng.integers(0, (picture.shape[0] - SIDE, picture.shape[1] - SIDE))
    piece = picture[top : top + SIDE, left : left + SIDE]
    return np.clip(keep * image + cover * piece, 0, 255)


def luminance(light: Floats) -> Floats:
    """Return 0.299 R + 0.587 G + 0.114 B of float32 light, one fused multiply-add after the other.

    A matrix product would fuse them on some machines and not on others, and change one value in 10,000 by one level. In 64 bits
    the products are exact, so this is the same everywhere.
    """
    red, green, blue = (light[..., channel].astype(np.float64) for channel in range(3))
    gray = (red * np.float32(0.299)).astype(np.float32)
    gray = (green * np.float32(0.587) + gray).astype(np.float32)
    return (blue * np.float32(0.114) + gray).astype(np.float32)


def snow(image: Pixels, severity: int, rng: np.random.Generator) -> Floats:
    """Whiten the image, then let flakes fall, blurred along their way, once upright and once upside down."""
    mean, sigma, zoom, least, radius, blur, keep = (
        (0.10, 0.2, 1.00, 0.60, 8, 3, 0.95),
        (0.10, 0.2, 1.00, 0.50, 10, 4, 0.90),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.90),
        (0.25, 0.3, 2.25, 0.60, 12, 6, 0.85),
        (0.30, 0.3, 1.25, 0.65, 14, 12, 0.80),
    )[severity - 1]
    flakes = tools.clipped_zoom(rng.normal(mean, sigma, size=(SIDE, SIDE, 1)), zoom)
    flakes = (np.where(flakes < least, 0, np.clip(flakes, 0, 1)) * 255).astype(np.uint8)
    falling = tools.motion_blur(flakes, radius, blur, degrees=rng.uniform(-135, -45)) / 255
    light = image.astype(np.float32) / 255
    white = np.maximum(light, luminance(light)[..., None] * 1.5 + 0.5)
    return to_uint8_range(keep * light + (1 - keep) * white + falling + np.rot90(falling, 2))


def spatter(image: Pixels, severity: int, rng: np.random.Generator) -> Floats:
    """Splash water (severity 1 to 3) or mud (4 and 5) on the lens."""
    mean, sigma, smooth, least, strength = (
        (0.62, 0.1, 0.7, 0.70, 0.5),
        (0.65, 0.1, 0.8, 0.70, 0.5),
        (0.65, 0.3, 1.0, 0.69, 0.5),
        (0.65, 0.1, 0.7, 0.69, 0.6),
        (0.65, 0.1, 0.5, 0.68, 0.6),
    )[severity - 1]
    light = image.astype(np.float32) / 255
    liquid = tools.gaussian(rng.normal(mean, sigma, size=(SIDE, SIDE, 1)), smooth)[..., 0]
    if severity <= 3:
        cover = strength * water(np.where(liquid < least, 0, liquid))[..., None]
        return to_uint8_range(light + cover * WATER)
    cover = mud(liquid > least, strength)[..., None]
    return to_uint8_range(light * (1 - cover) + cover * MUD)


def water(liquid: Floats) -> Floats:
    """Shade drops by the distance to their edges, as if lit from one side; the brightest place is 1."""
    cv2 = require("cv2")
    drops = (liquid * 255).astype(np.uint8)
    distance = cv2.distanceTransform(255 - cv2.Canny(drops, 50, 150), cv2.DIST_L2, 5)
    height = cv2.equalizeHist(cv2.blur(np.minimum(distance, 20), (3, 3)).astype(np.uint8))
    lit = cv2.filter2D(height, cv2.CV_8U, np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]))
    shade: Floats = drops * cv2.blur(lit, (3, 3)).astype(np.float32)
    return shade / float(shade.max())


def mud(wet: Floats, smooth: float) -> Floats:
    """Soften the blots' edges, and leave out what is thin."""
    blots: Floats = require("skimage.filters").gaussian(wet.astype(np.float32), sigma=smooth)
    return np.where(blots < 0.8, 0, blots)
