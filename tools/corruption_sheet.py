"""Draw every corruption at severities 1, 3 and 5 on a photograph of scikit-image, at 64 and at 96 pixels, into docs/corruptions.png.

python tools/corruption_sheet.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import skimage
from PIL import Image, ImageDraw

from ttaps.data.corruptions import CORRUPTIONS, EXTRA_CORRUPTIONS, corrupt_set
from ttaps.data.images import read_image

PHOTO = Path(skimage.__file__).parent / "data" / "chelsea.png"
SHEET = Path(__file__).parent.parent / "docs" / "corruptions.png"
SIZES, SEVERITIES = (64, 96), (1, 3, 5)
HEAD, GAP, ACROSS = 12, 4, 3  # pixels above a row and between tiles; corruptions beside each other


def row(name: str) -> Image.Image:
    """Draw one corruption: its name, and below it the photograph at each size and severity."""
    width = sum(len(SEVERITIES) * (size + GAP) for size in SIZES) + GAP
    image = Image.new("RGB", (width, max(SIZES) + HEAD + GAP), "white")
    ImageDraw.Draw(image).text((GAP, 0), name.replace("_", " "), "black")
    left = GAP
    for size in SIZES:
        clean = read_image(PHOTO, size)[0].transpose(1, 2, 0)[None]
        for severity in SEVERITIES:
            tile = Image.fromarray(np.ascontiguousarray(corrupt_set(clean, name, severity)[0]))
            image.paste(tile, (left, HEAD + max(SIZES) - size))
            left += size + GAP
    return image


def main() -> None:
    """Write the sheet, in 128 colors: a third of the size."""
    rows = [row(name) for name in CORRUPTIONS + EXTRA_CORRUPTIONS]
    width, height = rows[0].size
    sheet = Image.new("RGB", (ACROSS * width, -(-len(rows) // ACROSS) * height), "white")
    for place, image in enumerate(rows):
        sheet.paste(image, (place % ACROSS * width, place // ACROSS * height))
    sheet.quantize(128, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(SHEET, optimize=True)


if __name__ == "__main__":
    main()
