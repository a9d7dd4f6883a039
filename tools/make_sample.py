"""Write the sample images inside the package from CIFAR-10.

ttaps data download cifar10
python tools/make_sample.py data
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ttaps.data.cifar import CIFAR10, read_cifar
from ttaps.data.corruptions import corrupt_set
from ttaps.data.sample import SAMPLE_CORRUPTIONS, SEVERITY

FOLDER = Path(__file__).parent.parent / "src" / "ttaps" / "data" / "sample"


def first_of_each_class(labels: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the places of the first ``count`` images of every class, classes taking turns."""
    return np.stack([np.flatnonzero(labels == label)[:count] for label in range(10)], axis=1).ravel()


def to_sheet(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Lay images (10 n, 32, 32, 3) out as ``ttaps.data.sample.from_sheet`` cuts them."""
    return images.reshape(-1, 10, 32, 32, 3).transpose(1, 2, 0, 3, 4).reshape(320, -1, 3)


def write_sheet(name: str, images: NDArray[np.uint8]) -> None:
    """Write images (10 n, 32, 32, 3) as one lossless image."""
    Image.fromarray(to_sheet(images)).save(FOLDER / f"{name}.webp", lossless=True, quality=100, method=6, exact=True)


def main(root: Path) -> None:
    """Write the sheets and the images' places in the data set."""
    FOLDER.mkdir(exist_ok=True)
    test, train = read_cifar(CIFAR10, root, "test"), read_cifar(CIFAR10, root, "train")
    test_places, train_places = first_of_each_class(test.labels, 20), first_of_each_class(train.labels, 50)
    clean = test.images[test_places].transpose(0, 2, 3, 1)
    write_sheet("test-clean", clean)
    for corruption in SAMPLE_CORRUPTIONS:
        write_sheet(f"test-{corruption}", corrupt_set(clean, corruption, SEVERITY, seed=0, indices=test_places))
    write_sheet("train", train.images[train_places].transpose(0, 2, 3, 1))
    places = {"test": test_places.tolist(), "train": train_places.tolist()}
    (FOLDER / "indices.json").write_text(json.dumps(places) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
