"""Store the frost images of the `imagecorruptions` wheel in the package: at a fifth as PNG, and whole as JPEG.

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


def decode(encoded: bytes) -> npt.NDArray[np.uint8]:
    """Return an encoded image."""
    return np.asarray(cv2.imdecode(np.frombuffer(encoded, dtype=np.uint8), cv2.IMREAD_COLOR), dtype=np.uint8)


def main(wheel: str) -> None:
    """Write two files per image: shrunk as CIFAR's recipe does each time it draws frost, and as it is."""
    FOLDER.mkdir(exist_ok=True)
    with zipfile.ZipFile(wheel) as archive:
        for name in NAMES:
            encoded, stem = archive.read(f"imagecorruptions/frost/{name}"), Path(name).stem
            small = cv2.resize(decode(encoded), (0, 0), fx=0.2, fy=0.2)
            cv2.imwrite(str(FOLDER / f"{stem}.png"), small, [cv2.IMWRITE_PNG_COMPRESSION, 9])
            whole = cv2.imencode(".jpg", decode(encoded), [cv2.IMWRITE_JPEG_QUALITY, 85])[1].tobytes()
            (FOLDER / f"{stem}.jpg").write_bytes(encoded if name.endswith(".jpg") else whole)


if __name__ == "__main__":
    main(sys.argv[1])
