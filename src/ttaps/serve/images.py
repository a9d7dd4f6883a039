"""Images that come in, bounded before they are decoded, and images that go out."""

import base64
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ttaps.data.images import Limits, read_image
from ttaps.errors import DataError

MAX_BODY = 12 * 2**20  # bytes of a request
MAX_DECODED = 300 * 10**6  # bytes that decoding and fitting an image may take
BYTES = {"L": 12, "RGB": 12, "I": 32, "F": 32}  # of them for a pixel, measured; 20 where there is transparency
PIXELS = {mode: MAX_DECODED // count for mode, count in BYTES.items()}
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")  # none that starts another program, as EPS does
UPLOADS = Limits(MAX_DECODED // 20, 16_000, PIXELS, FORMATS)


def decode(text: str, size: int) -> NDArray[np.uint8]:
    """Return an image file in base64 as (3, size, size), if its own size is allowed."""
    try:
        data = base64.b64decode(text.partition(",")[2] if text.startswith("data:") else text, validate=True)
    except ValueError:
        raise DataError("The image is not valid base64.\nSend the bytes of an image file in base64.") from None
    return read_image(io.BytesIO(data), size, UPLOADS, "The upload")[0]


def png(pixels: Any) -> str:
    """Return an image (3, H, W), uint8 or float in [0, 1], as PNG in base64."""
    array = np.asarray(pixels)
    if array.dtype != np.uint8:
        array = np.rint(255 * array).clip(0, 255).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(array.transpose(1, 2, 0))).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()
