"""The 19 corruptions of CIFAR-10-C, Tiny-ImageNet-C and ImageNet-C, following the official recipes, severities and quirks,
and eight others for tuning.

``corrupt`` changes one image, ``corrupt_set`` many, each with its own generator, ``corrupt_one`` one of those. At 32 pixels the eight
deterministic ones of CIFAR-10-C equal the official files bit for bit; its eleven random ones follow the same distribution
(docs/corruptions.md)."""

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from ttaps.config import did_you_mean
from ttaps.data.corruptions import blur, cbar, digital, noise, weather
from ttaps.data.corruptions.tools import Floats, Pixels
from ttaps.errors import UsageError
from ttaps.rng import derive_seed

DETERMINISTIC: Mapping[str, Callable[[Pixels, int], Floats]] = {
    "defocus_blur": blur.defocus_blur, "zoom_blur": blur.zoom_blur, "gaussian_blur": blur.gaussian_blur,
    "brightness": digital.brightness, "contrast": digital.contrast, "saturate": digital.saturate,
    "pixelate": digital.pixelate, "jpeg_compression": digital.jpeg_compression,
    "circular_motion_blur": cbar.circular_motion_blur, "chromatic_aberration": cbar.chromatic_aberration,
}  # fmt: skip
RANDOM: Mapping[str, Callable[[Pixels, int, np.random.Generator], Floats]] = {
    "gaussian_noise": noise.gaussian_noise, "shot_noise": noise.shot_noise, "impulse_noise": noise.impulse_noise,
    "speckle_noise": noise.speckle_noise, "glass_blur": blur.glass_blur, "motion_blur": blur.motion_blur,
    "snow": weather.snow, "frost": weather.frost, "fog": weather.fog, "spatter": weather.spatter,
    "elastic_transform": digital.elastic_transform, "checkerboard_cutout": cbar.checkerboard_cutout, "sparkles": cbar.sparkles,
    "lines": cbar.lines, "brownish_noise": cbar.brownish_noise, "ripple": cbar.ripple, "pinch_and_twirl": cbar.pinch_and_twirl,
}  # fmt: skip
EXTRA_CORRUPTIONS = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
UNLIKE_CORRUPTIONS = (
    "checkerboard_cutout", "sparkles", "lines", "brownish_noise",
    "ripple", "pinch_and_twirl", "circular_motion_blur", "chromatic_aberration",
)  # fmt: skip
TUNING_CORRUPTIONS = EXTRA_CORRUPTIONS + UNLIKE_CORRUPTIONS  # what settings are chosen on
CORRUPTIONS = tuple(sorted({*DETERMINISTIC, *RANDOM} - {*TUNING_CORRUPTIONS}))  # in the order of the paper's tables
SEVERITIES = range(1, 6)
# Pixels a side: below, glass blur moves pixels out of the image; above, snow and fog take gigabytes.
LEAST, MOST = 8, 4096


def corrupt(image: Pixels, name: str, severity: int, rng: np.random.Generator) -> Pixels:
    """Corrupt one image, uint8 of shape (height, width, 3); fractions are truncated, not rounded, as in the official files."""
    check_corruption(name, severity)
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
        found = f"{image.dtype} {image.shape}"
        raise UsageError(f"Corruptions need one uint8 image of shape (height, width, 3), not {found}.")
    if not LEAST <= min(image.shape[:2]) <= max(image.shape[:2]) <= MOST:
        size = f"{image.shape[1]}x{image.shape[0]}"
        raise UsageError(f"Corruptions need images of {LEAST} to {MOST} pixels a side, not {size}.\nResize it first.")
    image = np.ascontiguousarray(image)  # sums depend on the order in memory, in their last bit
    if name in DETERMINISTIC:
        return DETERMINISTIC[name](image, severity).astype(np.uint8)
    return RANDOM[name](image, severity, rng).astype(np.uint8)


def corrupt_set(
    images: Pixels, name: str, severity: int, seed: int = 0, indices: npt.ArrayLike | None = None
) -> Pixels:
    """Corrupt images of shape (N, height, width, 3), each depending only on (seed, name, severity, its index).
    ``indices`` are the images' places in the whole data set, 0 to N-1 if not given: a part gives the same as the whole."""
    places = np.arange(len(images)) if indices is None else np.asarray(indices)
    if len(places) != len(images):
        raise UsageError(f"There are {len(images)} images and {len(places)} indices; give one index per image.")
    changed = np.empty(images.shape, dtype=np.uint8)
    for number, place in enumerate(places):
        rng = np.random.default_rng(derive_seed(seed, name, severity, int(place)))
        changed[number] = corrupt(images[number], name, severity, rng)
    return changed


def corrupt_one(image: Pixels, name: str, severity: int, seed: int = 0, index: int = 0) -> Pixels:
    """Corrupt one image (3, height, width) as :func:`corrupt_set` does the one with this index."""
    return corrupt_set(image.transpose(1, 2, 0)[None], name, severity, seed, [index])[0].transpose(2, 0, 1)


def check_corruption(name: str, severity: int = 1) -> None:
    """Refuse an unknown corruption or severity, and suggest the nearest."""
    known = CORRUPTIONS + TUNING_CORRUPTIONS
    if name not in known:
        raise UsageError(f"Unknown corruption '{name}'{did_you_mean(name, known)}.")
    if severity not in SEVERITIES:
        raise UsageError(f"Severity must be 1, 2, 3, 4 or 5, not {severity!r}.")
