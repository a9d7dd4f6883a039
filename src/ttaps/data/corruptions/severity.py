"""The published constants of every corruption for images of 32, 64 and 224 pixels, and the rule in between."""

from math import log

from ttaps.data.corruptions.tools import Pixels

Constants = tuple[float, ...]
SIZES = (32, 64, 224)  # CIFAR-10-C, Tiny-ImageNet-C, ImageNet-C, all by Hendrycks and Dietterich


def _each(*values: float) -> tuple[Constants, ...]:
    return tuple((value,) for value in values)


PUBLISHED: dict[str, tuple[tuple[Constants, ...], ...]] = {
    "gaussian_noise": (  # sigma
        _each(0.04, 0.06, 0.08, 0.09, 0.10),
        _each(0.04, 0.08, 0.12, 0.15, 0.18),
        _each(0.08, 0.12, 0.18, 0.26, 0.38),
    ),
    "shot_noise": (  # photons
        _each(500, 250, 100, 75, 50),
        _each(250, 100, 50, 30, 15),
        _each(60, 25, 12, 5, 3),
    ),
    "impulse_noise": (  # share of values
        _each(0.01, 0.02, 0.03, 0.05, 0.07),
        _each(0.01, 0.02, 0.05, 0.08, 0.14),
        _each(0.03, 0.06, 0.09, 0.17, 0.27),
    ),
    "speckle_noise": (  # sigma
        _each(0.06, 0.10, 0.12, 0.16, 0.20),
        _each(0.15, 0.20, 0.25, 0.30, 0.35),
        _each(0.15, 0.20, 0.35, 0.45, 0.60),
    ),
    "gaussian_blur": (  # sigma
        _each(0.4, 0.6, 0.7, 0.8, 1.0),
        _each(0.5, 0.75, 1.0, 1.25, 1.5),
        _each(1, 2, 3, 4, 6),
    ),
    "defocus_blur": (  # radius, smoothing of its edge
        ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1)),
        ((0.5, 0.6), (1.0, 0.1), (1.5, 0.1), (2.5, 0.01), (3.0, 0.1)),
        ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    ),
    "glass_blur": (  # sigma, farthest move, rounds
        ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
        ((0.1, 1, 1), (0.5, 1, 1), (0.6, 1, 2), (0.7, 2, 1), (0.9, 2, 2)),
        ((0.7, 1, 2), (0.9, 2, 1), (1.0, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    ),
    "motion_blur": (  # radius, sigma
        ((6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5)),
        ((10, 1.0), (10, 1.5), (10, 2.0), (10, 2.5), (12, 3.0)),
        ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    ),
    "zoom_blur": (  # farthest factor, step
        ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
        ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
        ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
    ),
    "fog": (  # thickness, decay
        ((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75)),
        ((0.4, 3.0), (0.7, 3.0), (1.0, 2.5), (1.5, 2.0), (2.0, 1.75)),
        ((1.5, 2.0), (2.0, 2.0), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4)),
    ),
    "frost": (  # share of the image, share of the frost, scale of its image
        ((1.0, 0.2, 0.2), (1.0, 0.3, 0.2), (0.9, 0.4, 0.2), (0.85, 0.4, 0.2), (0.75, 0.45, 0.2)),
        ((1.0, 0.3, 0.3), (0.9, 0.4, 0.3), (0.8, 0.45, 0.3), (0.75, 0.5, 0.3), (0.7, 0.55, 0.3)),
        ((1.0, 0.4, 1.0), (0.8, 0.6, 1.0), (0.7, 0.7, 1.0), (0.65, 0.7, 1.0), (0.6, 0.75, 1.0)),
    ),
    "snow": (  # mean and sigma of the flakes, zoom, least value, radius and sigma of their motion, share of the image
        (
            (0.10, 0.2, 1.00, 0.60, 8, 3, 0.95),
            (0.10, 0.2, 1.00, 0.50, 10, 4, 0.90),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.90),
            (0.25, 0.3, 2.25, 0.60, 12, 6, 0.85),
            (0.30, 0.3, 1.25, 0.65, 14, 12, 0.80),
        ),
        (
            (0.10, 0.2, 1.00, 0.60, 8, 3, 0.80),
            (0.10, 0.2, 1.00, 0.50, 10, 4, 0.80),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.70),
            (0.25, 0.3, 2.25, 0.60, 12, 6, 0.65),
            (0.30, 0.3, 1.25, 0.65, 14, 12, 0.60),
        ),
        (
            (0.10, 0.3, 3.0, 0.50, 10, 4, 0.80),
            (0.20, 0.3, 2.0, 0.50, 12, 4, 0.70),
            (0.55, 0.3, 4.0, 0.90, 12, 8, 0.70),
            (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
            (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
        ),
    ),
    "spatter": (  # mean and sigma of the liquid, its smoothing, least value, strength (water) or smoothing (mud)
        (
            (0.62, 0.1, 0.7, 0.70, 0.5),
            (0.65, 0.1, 0.8, 0.70, 0.5),
            (0.65, 0.3, 1.0, 0.69, 0.5),
            (0.65, 0.1, 0.7, 0.69, 0.6),
            (0.65, 0.1, 0.5, 0.68, 0.6),
        ),
        (
            (0.62, 0.1, 0.7, 0.70, 0.6),
            (0.65, 0.1, 0.8, 0.70, 0.6),
            (0.65, 0.3, 1.0, 0.69, 0.6),
            (0.65, 0.1, 0.7, 0.68, 0.6),
            (0.65, 0.1, 0.5, 0.67, 0.6),
        ),
        (
            (0.65, 0.3, 4.0, 0.69, 0.6),
            (0.65, 0.3, 3.0, 0.68, 0.6),
            (0.65, 0.3, 2.0, 0.68, 0.5),
            (0.65, 0.3, 1.0, 0.65, 1.5),
            (0.67, 0.4, 1.0, 0.65, 1.5),
        ),
    ),
    "contrast": (  # what is left of it
        _each(0.75, 0.5, 0.4, 0.3, 0.15),
        _each(0.4, 0.3, 0.2, 0.1, 0.05),
        _each(0.4, 0.3, 0.2, 0.1, 0.05),
    ),
    "brightness": (  # added to the value
        _each(0.05, 0.1, 0.15, 0.2, 0.3),
        _each(0.1, 0.2, 0.3, 0.4, 0.5),
        _each(0.1, 0.2, 0.3, 0.4, 0.5),
    ),
    "saturate": (  # scale and shift of the saturation
        ((0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2)),
        ((0.3, 0.0), (0.1, 0.0), (2.0, 0.0), (5.0, 0.1), (30.0, 0.2)),
        ((0.3, 0.0), (0.1, 0.0), (2.0, 0.0), (5.0, 0.1), (20.0, 0.2)),
    ),
    "pixelate": (  # scale
        _each(0.95, 0.9, 0.85, 0.75, 0.65),
        _each(0.9, 0.8, 0.7, 0.6, 0.5),
        _each(0.6, 0.5, 0.4, 0.3, 0.25),
    ),
    "jpeg_compression": (  # quality
        _each(80, 65, 58, 50, 40),
        _each(65, 58, 50, 40, 25),
        _each(25, 18, 15, 10, 7),
    ),
    "elastic_transform": (  # reach and smoothing of the drift, reach of the corners, in pixels
        ((0.0, 0.0, 2.56), (1.6, 6.4, 2.24), (2.56, 1.92, 1.92), (3.2, 1.28, 1.6), (3.2, 0.96, 0.96)),
        ((0.0, 0.0, 5.12), (3.2, 19.2, 3.84), (6.4, 5.12, 3.84), (6.4, 1.92, 1.92), (10.24, 1.92, 1.28)),
        # times 244, as published, where 224 was meant
        ((488, 170.8, 24.4), (488, 19.52, 48.8), (12.2, 2.44, 4.88), (17.08, 2.44, 4.88), (29.28, 2.44, 4.88)),
    ),
}
"""At each of the sizes, for severities 1 to 5."""


def neighbors(image: Pixels) -> tuple[int, int, float]:
    """Return which two of the sizes an image lies between, by its shorter side, and how far it is from the first to the second, 0 to 1
    in the logarithm; outside and at one of them, that one twice."""
    side = min(max(min(image.shape[:2]), SIZES[0]), SIZES[-1])
    if side in SIZES:
        return SIZES.index(side), SIZES.index(side), 0.0
    first = 0 if side < SIZES[1] else 1
    return first, first + 1, log(side / SIZES[first]) / log(SIZES[first + 1] / SIZES[first])


def constants(name: str, severity: int, image: Pixels) -> Constants:
    """Return a corruption's constants for an image by its shorter side: the published ones at 32 pixels and less, at 64, and at 224
    and more. Between two of these sizes, the logarithm of a constant is linear in the logarithm of the size (a constant that is
    zero at one of them: itself)."""
    low, high, share = neighbors(image)
    tables = PUBLISHED[name][low][severity - 1], PUBLISHED[name][high][severity - 1]
    return tuple(between(first, second, share) for first, second in zip(*tables, strict=True))


def between(low: float, high: float, share: float) -> float:
    """Interpolate geometrically, or linearly if one is zero."""
    if low == high:
        return low
    return low ** (1 - share) * high**share if low > 0 and high > 0 else (1 - share) * low + share * high
