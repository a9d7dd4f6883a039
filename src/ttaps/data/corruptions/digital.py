"""Digital: brightness, contrast, saturation, elastic, pixelate, JPEG. Values are in [0, 255], not yet whole numbers."""

import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from ttaps.data.corruptions.severity import constants
from ttaps.data.corruptions.tools import Floats, Pixels, require, to_uint8_range


def contrast(image: Pixels, severity: int) -> Floats:
    """Move every value towards its channel's mean."""
    (strength,) = constants("contrast", severity, image)
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
    """Raise the V of HSV (hue, saturation, value)."""
    (shift,) = constants("brightness", severity, image)
    return _scale_and_shift(image, channel=2, scale=1, shift=shift)


def saturate(image: Pixels, severity: int) -> Floats:
    """Lower (severity 1, 2) or raise (3 to 5) the saturation."""
    scale, shift = constants("saturate", severity, image)
    return _scale_and_shift(image, channel=1, scale=scale, shift=shift)


def pixelate(image: Pixels, severity: int) -> Floats:
    """Shrink with a box filter and enlarge again."""
    (scale,) = constants("pixelate", severity, image)
    height, width = image.shape[:2]
    small = Image.fromarray(image).resize((int(width * scale), int(height * scale)), Image.Resampling.BOX)
    return np.asarray(small.resize((width, height), Image.Resampling.BOX))


def jpeg_compression(image: Pixels, severity: int) -> Floats:
    """Compress with libjpeg 9b, whose chroma upsampling the official file has.
    Pillow's libjpeg-turbo gives another color to 69 % of the pixels at severity 1 and to 51 % at severity 5."""
    quality = round(constants("jpeg_compression", severity, image)[0])
    jpeglib = require("jpeglib")
    with tempfile.TemporaryDirectory() as folder, jpeglib.version("9b"):
        path = Path(folder, "image.jpeg")
        jpeglib.from_spatial(image).write_spatial(str(path), qt=quality, flags=["FORCE_BASELINE"])  # as Pillow does
        return jpeglib.read_spatial(str(path)).spatial


def ripple(shape: tuple[int, int], reach: float, smooth: float, rng: np.random.Generator) -> Floats:
    """Draw a smooth map of displacements, none above ``reach`` pixels."""
    rough = rng.uniform(-1, 1, size=shape)
    smoothed: Floats = require("skimage.filters").gaussian(rough, smooth, mode="reflect", truncate=3)
    return (smoothed * reach).astype(np.float32)


def elastic_transform(image: Pixels, severity: int, rng: np.random.Generator) -> Floats:
    """Shear the image, moving three corners of its center square, then let every pixel drift smoothly."""
    reach, smooth, corner = constants("elastic_transform", severity, image)
    cv2, sample = require("cv2"), require("scipy.ndimage").map_coordinates
    height, width = image.shape[:2]
    center, third = np.array((width // 2, height // 2)), min(height, width) // 3
    corners = (center + third * np.array(((1, 1), (1, -1), (-1, -1)))).astype(np.float32)
    moved = corners + rng.uniform(-corner, corner, size=corners.shape).astype(np.float32)
    matrix = cv2.getAffineTransform(corners, moved)
    light = (image / 255).astype(np.float32)
    sheared = cv2.warpAffine(light, matrix, (width, height), borderMode=cv2.BORDER_REFLECT_101)
    rows, columns = np.mgrid[:height, :width]
    right, down = (ripple((height, width), reach, smooth, rng) for _ in range(2))
    places = rows + down, columns + right
    channels = [sample(sheared[..., channel], places, order=1, mode="reflect") for channel in range(3)]
    return to_uint8_range(np.stack(channels, axis=-1))
