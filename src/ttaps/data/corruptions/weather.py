"""Weather: fog, frost, snow, spatter. Values are in [0, 255], not yet whole numbers."""

from functools import cache
from importlib.resources import files

import numpy as np
from PIL import Image

from ttaps.data.corruptions import tools
from ttaps.data.corruptions.severity import constants
from ttaps.data.corruptions.tools import Floats, Pixels, require, to_uint8_range

FROST_IMAGES = ("frost1", "frost2", "frost3", "frost4", "frost5")  # the recipe lists six and draws from five
WATER = np.array((175, 238, 238), dtype=np.float32) / 255
MUD = np.array((63, 42, 20), dtype=np.float32) / 255


def plasma(side: int, decay: float, rng: np.random.Generator) -> Floats:
    """Draw a cloud, (side, side) with values from 0 to 1: the diamond-square fractal on a torus. The side is a power of two."""
    cloud = np.zeros((side, side))
    step, wibble = side, 100.0

    def mean_of(*neighbors: Floats) -> Floats:
        # the recipe scales a draw from ±wibble by wibble once more: noise falls with decay squared
        return sum(neighbors, np.zeros(())) / 4 + wibble * rng.uniform(-wibble, wibble, neighbors[0].shape)

    while step >= 2:
        half = step // 2
        corners = cloud[::step, ::step]
        right, below = np.roll(corners, -1, axis=1), np.roll(corners, -1, axis=0)
        centers = mean_of(corners, right, below, np.roll(right, -1, axis=0))
        cloud[half::step, half::step] = centers
        cloud[::step, half::step] = mean_of(corners, right, centers, np.roll(centers, 1, axis=0))
        cloud[half::step, ::step] = mean_of(corners, below, centers, np.roll(centers, 1, axis=1))
        step, wibble = half, wibble / decay
    cloud -= cloud.min()
    return cloud / float(cloud.max())


def fog(image: Pixels, severity: int, rng: np.random.Generator) -> Floats:
    """Add a cloud and rescale, so that the maximum value is unchanged."""
    thickness, decay = constants("fog", severity, image)
    light = image / 255
    height, width = image.shape[:2]
    cloud = plasma(1 << (max(height, width) - 1).bit_length(), decay, rng)[:height, :width, None]
    brightest = float(light.max())
    foggy = light + thickness * cloud
    return to_uint8_range(foggy * brightest / (brightest + thickness))


@cache
def frost_image(name: str, scale: float, height: int, width: int) -> Pixels:
    """Return an image of frost at a scale, or larger if a piece of this height and width must fit in (see frost/NOTICE.md)."""
    small = _read_frost(f"{name}.png")  # at a fifth, as for CIFAR
    if scale == 0.2 and small.shape[0] > height and small.shape[1] > width:
        return small
    large = _read_frost(f"{name}.jpg")
    scale = max(scale, (height + 1) / large.shape[0], (width + 1) / large.shape[1])
    return large if scale == 1 else np.asarray(require("cv2").resize(large, (0, 0), fx=scale, fy=scale))


def _read_frost(file: str) -> Pixels:
    with (files("ttaps.data") / "frost" / file).open("rb") as opened:
        return np.asarray(Image.open(opened).convert("RGB"))


def frost(image: Pixels, severity: int, rng: np.random.Generator) -> Floats:
    """Lay a random piece of a frost image over the image."""
    keep, cover, scale = constants("frost", severity, image)
    height, width = image.shape[:2]
    whole = frost_image(FROST_IMAGES[rng.integers(len(FROST_IMAGES))], scale, height, width)
    top, left = rng.integers(0, (whole.shape[0] - height, whole.shape[1] - width))
    piece = whole[top : top + height, left : left + width]
    return np.clip(keep * image + cover * piece, 0, 255)


def luminance(light: Floats) -> Floats:
    """Return 0.299 R + 0.587 G + 0.114 B of float32 light, one fused multiply-add after the other.
    A matrix product would fuse them on some machines and not on others, and change one value in 10,000 by one level. In 64 bits
    the products are exact, so this is the same everywhere."""
    red, green, blue = (light[..., channel].astype(np.float64) for channel in range(3))
    gray = (red * np.float32(0.299)).astype(np.float32)
    gray = (green * np.float32(0.587) + gray).astype(np.float32)
    return (blue * np.float32(0.114) + gray).astype(np.float32)


def snow(image: Pixels, severity: int, rng: np.random.Generator) -> Floats:
    """Whiten the image, then add motion-blurred flakes, once upright and once upside down."""
    mean, sigma, zoom, least, radius, blur, keep = constants("snow", severity, image)
    flakes = tools.clipped_zoom(rng.normal(mean, sigma, size=(*image.shape[:2], 1)), zoom)
    flakes = (np.where(flakes < least, 0, np.clip(flakes, 0, 1)) * 255).astype(np.uint8)
    falling = tools.motion_blur(flakes, round(radius), blur, degrees=rng.uniform(-135, -45)) / 255
    light = image.astype(np.float32) / 255
    white = np.maximum(light, luminance(light)[..., None] * 1.5 + 0.5)
    return to_uint8_range(keep * light + (1 - keep) * white + falling + np.rot90(falling, 2))


def spatter(image: Pixels, severity: int, rng: np.random.Generator) -> Floats:
    """Splash water (severity 1 to 3) or mud (4 and 5) on the lens."""
    mean, sigma, smooth, least, strength = constants("spatter", severity, image)
    light = image.astype(np.float32) / 255
    liquid = tools.gaussian(rng.normal(mean, sigma, size=(*image.shape[:2], 1)), smooth)[..., 0]
    if severity <= 3:
        cover = strength * water(np.where(liquid < least, 0, liquid))[..., None]
        return to_uint8_range(light + cover * WATER)
    blots: Floats = require("skimage.filters").gaussian((liquid > least).astype(np.float32), sigma=strength)
    cover = np.where(blots < 0.8, 0, blots)[..., None]  # soft edges, and nothing where it is thin
    return to_uint8_range(light * (1 - cover) + cover * MUD)


def water(liquid: Floats) -> Floats:
    """Shade drops by the distance to their edges, as if lit from one side; the brightest place is 1."""
    cv2 = require("cv2")
    drops = (liquid * 255).astype(np.uint8)
    distance = cv2.distanceTransform(255 - cv2.Canny(drops, 50, 150), cv2.DIST_L2, 5)
    height = cv2.equalizeHist(cv2.blur(np.minimum(distance, 20), (3, 3)).astype(np.uint8))
    lit = cv2.filter2D(height, cv2.CV_8U, np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]))
    shade: Floats = drops * cv2.blur(lit, (3, 3)).astype(np.float32)
    return shade / (float(shade.max()) or 1)  # a small image may have no drop
