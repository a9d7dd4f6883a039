"""Shrink the frost pictures of the `imagecorruptions` wheel to a fifth and store them losslessly in the package.

pip download --no-deps imagecorruptions==1.1.2
python tools/make_frost.py imagecorruptions-1.1.2-py3-none-any.whl
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

FOLDER = Path(__file__).parent.parent / "src" / "ttaps" / "data" / "frost"
NAMES = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")


def shrink(encoded: bytes) -> npt.NDArray[np.uint8]:
    """Decode and shrink as the official recipe does each time it draws frost."""
    picture = cv2.imdecode(np.frombuffer(encoded, dtype=np.uint8), cv2.IMREAD_COLOR)
    return np.asarray(cv2.resize(picture, (0, 0), fx=0.2, fy=0.2), dtype=np.uint8)


def main(wheel: str) -> None:
    """Write one PNG per picture."""
    FOLDER.mkdir(exist_ok=True)
    with zipfile.ZipFile(wheel) as archive:
        for name in NAMES:
            small = shrink(archive.read(f"imagecorruptions/frost/{name}"))
            cv2.imwrite(str(FOLDER / f"{Path(name).stem}.png"), small, [cv2.IMWRITE_PNG_COMPRESSION, 9])


if __name__ == "__main__":
    main(sys.argv[1])
