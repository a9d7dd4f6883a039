"""The 19 corruptions of CIFAR-10-C and CIFAR-100-C, written after the official recipe, with its severities and its quirks.

``corrupt`` changes one image, ``corrupt_set`` many, each with its own generator. The eight deterministic corruptions
equal the official files bit for bit; the eleven random ones follow the same distribution (docs/corruptions.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ttaps.data.cifar_c import SEVERITIES, check_corruption
from ttaps.data.corruptions import blur, digital, noise, weather
from ttaps.data.corruptions.tools import SIDE, Floats, Pixels
from ttaps.errors import UsageError
from ttaps.rng import derive_seed

DETERMINISTIC: Mapping[str, Callable[[Pixels, int], Floats]] = {
    "defocus_blur": blur.defocus_blur,
    "zoom_blur": blur.zoom_blur,
    "brightness": digital.brightness,
    "contrast": digital.contrast,
    "pixelate": digital.pixelate,
    "jpeg_compression": digital.jpeg_compression,
    "gaussian_blur": blur.gaussian_blur,
    "saturate": digital.saturate,
}

RANDOM: Mapping[str, Callable[[Pixels, int, np.random.Generator], Floats]] = {
    "gaussian_noise": noise.gaussian_noise,
    "shot_noise": noise.shot_noise,
    "impulse_noise": noise.impulse_noise,
    "glass_blur": blur.glass_blur,
    "motion_blur": blur.motion_blur,
    "snow": weather.snow,
    "frost": weather.frost,
    "fog": weather.fog,
    "elastic_transform": digital.elastic_transform,
    "speckle_noise": noise.speckle_noise,
    "spatter": weather.spatter,
}


def corrupt(image: Pixels, name: str, severity: int, rng: np.random.Generator) -> Pixels:
    """Corrupt one image, uint8 of shape (32, 32, 3); fractions are cut off, not rounded, as in the official files."""
    check_request(name, severity)
    if image.shape != (SIDE, SIDE, 3) or image.dtype != np.uint8:
        raise UsageError(
            f"Corruptions need one uint8 image of shape (32, 32, 3), not {image.dtype} {image.shape}.\n"
            "The recipe is CIFAR-C's; scale the image to 32 x 32 first."
        )
    image = np.ascontiguousarray(image)  # sums depend on the order in memory, in their last bit
    if name in DETERMINISTIC:
        return DETERMINISTIC[name](image, severity).astype(np.uint8)
    return RANDOM[name](image, severity, rng).astype(np.uint8)


def corrupt_set(
    images: Pixels,
    name: str,
    severity: int,
    seed: int = 0,
    indices: Sequence[int] | npt.NDArray[np.int64] | None = None,
) -> Pixels:
    """Corrupt images of shape (N, 32, 32, 3), each as a function of (seed, name, severity, its index) and nothing else.

    ``indices`` are the images' places in the whole data set, 0 to N-1 if not given: a part gives the same as the whole.
    """
    check_request(name, severity)
    places = np.arange(len(images)) if indices is None else np.asarray(indices)
    if len(places) != len(images):
        raise UsageError(f"There are {len(images)} images and {len(places)} indices; give one index per image.")
    changed = np.empty(images.shape, dtype=np.uint8)
    for number, place in enumerate(places):
        rng = np.random.default_rng(derive_seed(seed, name, severity, int(place)))
        changed[number] = corrupt(images[number], name, severity, rng)
    return changed


def check_request(name: str, severity: int) -> None:
    """Refuse a corruption or severity that does not exist."""
    check_corruption(name)
    if severity not in SEVERITIES:
        raise UsageError(f"Severity must be 1, 2, 3, 4 or 5, not {severity!r}.")
