"""Digital: brightness, contrast, saturation, elastic, pixelate, JPEG. Values are in [0, 255], not yet whole numbers."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from ttaps.data.corruptions.tools import SIDE, Floats, Pixels, require, to_uint8_range


def contrast(image: Pixels, severity: int) -> Floats:
    """Pull every value towards its channel's mean."""
    strength = (0.75, 0.5, 0.4, 0.3, 0.15)[severity - 1]
    light = image / 255
    mean = light.mean(axis=(0, 1), keepdims=True)
    return to_uint8_range((light - mean) * strength + mean)


def _scale_and_shift(image: Pixels, channel: int, scale: float, shift: float) -> Floats:
    """Change one channel of hue, saturation, value."""
    color = require("skimage.color")
    hsv = color.rgb2hsv(image / 255)
    hsv[..., channel] = np.clip(hsv[..., channel] * scale + shift, 0, 1)
    return to_uint8_range(color.hsv2rgb(hsv))


def brightness(image: Pixels, severity: int) -> Floats:
    """Raise the value of hue, saturation, value."""
    return _scale_and_shift(image, channel=2, scale=1, shift=(0.05, 0.1, 0.15, 0.2, 0.3)[severity - 1])


def saturate(image: Pixels, severity: int) -> Floats:
    """Lower (severity 1, 2) or raise (3 to 5) the saturation."""
    scale, shift = ((0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2))[severity - 1]
    return _scale_and_shift(image, channel=1, scale=scale, shift=shift)


def pixelate(image: Pixels, severity: int) -> Floats:
    """Shrink with a box filter and enlarge again."""
    side = int(SIDE * (0.95, 0.9, 0.85, 0.75, 0.65)[severity - 1])
    small = Image.fromarray(image).resize((side, side), Image.Resampling.BOX)
    return np.asarray(small.resize((SIDE, SIDE), Image.Resampling.BOX))


def jpeg_compression(image: Pixels, severity: int) -> Floats:
    """Compress with libjpeg 9b, whose chroma upsampling the official file has.

    Pillow's libjpeg-turbo gives another color to 69 % of the pixels at severity 1 and to 51 % at severity 5.
    """
    quality = (80, 65, 58, 50, 40)[severity - 1]
    jpeglib = require("jpeglib")
    with tempfile.TemporaryDirectory() as folder, jpeglib.version("9b"):
        path = Path(folder, "image.jpeg")
        jpeglib.from_spatial(image).write_spatial(str(path), qt=quality)
        return jpeglib.read_spatial(str(path)).spatial


def shear(image: Floats, reach: float, rng: np.random.Generator) -> Floats:
    """Move three corners of the center square by up to ``reach`` pixels each way, and the image with them."""
    cv2 = require("cv2")
    middle, half = SIDE // 2, SIDE // 3
    near, far = middle - half, middle + half
    corners = np.array([[far, far], [far, near], [near, near]], dtype=np.float32)
    moved = corners + rng.uniform(-reach, reach, size=corners.shape).astype(np.float32)
    matrix = cv2.getAffineTransform(corners, moved)
    return cv2.warpAffine(image, matrix, (SIDE, SIDE), borderMode=cv2.BORDER_REFLECT_101)


def ripple(reach: float, smooth: float, rng: np.random.Generator) -> Floats:
    """Draw a smooth map of displacements, none above ``reach`` pixels."""
    rough = rng.uniform(-1, 1, size=(SIDE, SIDE))
    smoothed: Floats = require("skimage.filters").gaussian(rough, smooth, mode="reflect", truncate=3)
    return (smoothed * reach).astype(np.float32)


def elastic_transform(image: Pixels, severity: int, rng: np.random.Generator) -> Floats:
    """Shear the image, then let every pixel drift smoothly."""
    reach, smooth, corner = (
        (0.0, 0.0, 2.56),
        (1.6, 6.4, 2.24),
        (2.56, 1.92, 1.92),
        (3.2, 1.28, 1.6),
        (3.2, 0.96, 0.96),
    )[severity - 1]
    sheared = shear((image / 255).astype(np.float32), corner, rng)
    rows, columns = np.mgrid[:SIDE, :SIDE]
    right, down = ripple(reach, smooth, rng), ripple(reach, smooth, rng)
    sample = require("scipy.ndimage").map_coordinates
    moved = [
        sample(sheared[..., channel], (rows + down, columns + right), order=1, mode="reflect") for channel in range(3)
    ]
    return to_uint8_range(np.stack(moved, axis=-1))
