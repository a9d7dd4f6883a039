"""Images that come in, bounded before they are decoded, and images that go out."""

import base64
import io
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from ttaps.errors import DataError

MAX_BODY = 12 * 2**20  # bytes of a request
MAX_DECODED, MAX_SIDE = 300 * 10**6, 16_000  # bytes that decoding and fitting an image may take, and pixels
BYTES = {"L": 12, "RGB": 12, "I": 32, "F": 32}  # of them for a pixel, measured; 20 where there is transparency
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")  # none that starts another program, as EPS does


def decode(text: str) -> Image.Image:
    """Decode an image file in base64, if its size is allowed, or say what is wrong with it in the words of the command line."""
    try:
        data = base64.b64decode(text.partition(",")[2] if text.startswith("data:") else text, validate=True)
    except ValueError:
        raise DataError("The image is not valid base64.\nSend the bytes of an image file in base64.") from None
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            width, height = image.size
            most = MAX_DECODED // BYTES.get(image.mode.split(";")[0], 20)
            if width * height > most or max(width, height) > MAX_SIDE:
                limit = f"{most // 10**6} megapixels of {image.mode} and {MAX_SIDE:,} pixels a side"
                raise DataError(
                    f"The image is too large: {width}x{height} pixels, at most {limit} are read.\nMake it smaller first."
                )
            image.load()
            return image
    except DataError:
        raise
    except UnidentifiedImageError:
        remedy = "Give a PNG, JPEG, WebP or similar file."
        raise DataError(f"The upload is not an image that Pillow can read.\n{remedy}") from None
    except Image.DecompressionBombError as error:
        raise DataError(f"The image is too large: {error}\nMake it smaller first.") from None
    except Exception as error:  # on damaged bytes Pillow's decoders raise whatever their parser ran into
        raise DataError(f"The image is damaged or truncated ({error}).") from error


def png(pixels: Any) -> str:
    """Return an image (3, H, W), uint8 or float in [0, 1], as PNG in base64."""
    array = np.asarray(pixels)
    if array.dtype != np.uint8:
        array = np.rint(255 * array).clip(0, 255).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(array.transpose(1, 2, 0))).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()
