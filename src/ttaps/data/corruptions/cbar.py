"""Eight corruptions of the kinds of CIFAR-10-C-bar (Mintun et al., 2021), which were chosen to be unlike those of CIFAR-10-C: settings are
tuned on them so that the test's stay unseen. Written from their names, with severities of our own: not the published files."""

import numpy as np

from ttaps.data.corruptions.tools import Floats, Pixels, require, to_uint8_range


def checkerboard_cutout(image: Pixels, severity: int, rng: np.random.Generator) -> Floats:
    """Gray out every other square of a board with random offset."""
    y, x = _grid(image)
    cell = max(2, round(min(image.shape[:2]) / 8))
    top, left = rng.integers(2 * cell, size=2)
    covered = ((y + top) // cell + (x + left) // cell) % 2 == 0
    share = (0.15, 0.25, 0.35, 0.45, 0.55)[severity - 1]
    return to_uint8_range(np.where(covered[..., None], (1 - share) * image / 255 + share / 2, image / 255))


def sparkles(image: Pixels, severity: int, rng: np.random.Generator) -> Floats:
    """Add glints with four rays that fall off with the distance."""
    y, x = _grid(image)
    height, width = image.shape[:2]
    light = image / 255
    for _ in range((2, 3, 4, 6, 8)[severity - 1]):
        down, right = y - rng.uniform(0, height), x - rng.uniform(0, width)
        size = min(height, width) * rng.uniform(0.02, 0.05)
        glint = size**2 / (size**2 + np.abs(down * right) + 0.05 * (down**2 + right**2))
        light = light + glint[..., None] * rng.uniform(0.5, 1, 3)
    return to_uint8_range(light)


def lines(image: Pixels, severity: int, rng: np.random.Generator) -> Floats:
    """Draw straight lines of random direction, place and color."""
    y, x = _grid(image)
    light = image / 255
    for _ in range(severity):
        angle, place = rng.uniform(0, np.pi), rng.uniform(0.1, 0.9, 2) * image.shape[:2]
        distance = np.abs((y - place[0]) * np.cos(angle) - (x - place[1]) * np.sin(angle))
        covered = 0.6 * np.clip(0.5 + min(image.shape[:2]) / 64 - distance, 0, 1)[..., None]
        light = (1 - covered) * light + covered * rng.random(3)
    return to_uint8_range(light)


def brownish_noise(image: Pixels, severity: int, rng: np.random.Generator) -> Floats:
    """Add noise whose amplitude falls with its frequency to the power 1.5."""
    rows, columns = np.fft.fftfreq(image.shape[0])[:, None], np.fft.fftfreq(image.shape[1])[None, :]
    falloff = np.maximum(np.hypot(rows, columns), 1 / max(image.shape)) ** -1.5
    falloff[0, 0] = 0
    noise = np.fft.ifft2(np.fft.fft2(rng.normal(size=image.shape), axes=(0, 1)) * falloff[..., None], axes=(0, 1)).real
    return to_uint8_range(image / 255 + (0.06, 0.08, 0.11, 0.14, 0.17)[severity - 1] * noise / noise.std())


def ripple(image: Pixels, severity: int, rng: np.random.Generator) -> Floats:
    """Displace pixels along a sine wave of random direction and phase."""
    side, angle = min(image.shape[:2]), rng.uniform(0, 2 * np.pi)
    y, x = _grid(image)
    phase = 2 * np.pi * rng.uniform(3, 6) * (y * np.sin(angle) + x * np.cos(angle)) / side + rng.uniform(0, 2 * np.pi)
    wave = side * (0.008, 0.014, 0.02, 0.028, 0.036)[severity - 1] * np.sin(phase)
    return _sample(image, y + wave * np.cos(angle), x - wave * np.sin(angle))


def pinch_and_twirl(image: Pixels, severity: int, rng: np.random.Generator) -> Floats:
    """Twist and pinch a disk around a random point; its border is unchanged."""
    strength = (0.25, 0.4, 0.55, 0.7, 0.9)[severity - 1]
    radius, center = 0.45 * min(image.shape[:2]), rng.uniform(0.35, 0.65, 2) * image.shape[:2]
    down, right = (axis - place for axis, place in zip(_grid(image), center, strict=True))
    inside = np.clip(1 - np.hypot(down, right) / radius, 0, 1)
    angle = rng.choice((-2.0, 2.0)) * strength * inside**2
    squeeze = 1 + rng.uniform(-0.5, 0.5) * strength * inside
    turned = np.sin(angle) * right + np.cos(angle) * down, np.cos(angle) * right - np.sin(angle) * down
    return _sample(image, center[0] + squeeze * turned[0], center[1] + squeeze * turned[1])


def circular_motion_blur(image: Pixels, severity: int) -> Floats:
    """Average copies rotated about the center."""
    y, x = _grid(image)
    middle = [(side - 1) / 2 for side in image.shape[:2]]
    most = np.radians((3, 5, 7, 9, 11)[severity - 1])
    total = np.zeros(image.shape)
    for angle in np.linspace(-most, most, 15):
        down, right = y - middle[0], x - middle[1]
        total += _sample(image, middle[0] + np.cos(angle) * down - np.sin(angle) * right,
                         middle[1] + np.sin(angle) * down + np.cos(angle) * right) / 15  # fmt: skip
    return total


def chromatic_aberration(image: Pixels, severity: int) -> Floats:
    """Magnify red and shrink blue about the center, as a cheap lens does."""
    y, x = _grid(image)
    middle = [(side - 1) / 2 for side in image.shape[:2]]
    scale = (0.03, 0.06, 0.09, 0.12, 0.16)[severity - 1]
    moved = [
        _sample(image, middle[0] + by * (y - middle[0]), middle[1] + by * (x - middle[1]))
        for by in (1 - scale, 1, 1 + scale)
    ]
    return np.stack([copy[..., channel] for channel, copy in enumerate(moved)], axis=-1)


def _grid(image: Pixels) -> tuple[Floats, Floats]:
    """Return the rows and columns of all pixels."""
    y, x = np.mgrid[: image.shape[0], : image.shape[1]]
    return y.astype(float), x.astype(float)


def _sample(image: Pixels, y: Floats, x: Floats) -> Floats:
    """Read an image at places between its pixels, linearly; outside, at the nearest border pixel."""
    read = require("scipy.ndimage").map_coordinates
    channels = (read(channel.astype(float), (y, x), order=1, mode="nearest") for channel in np.moveaxis(image, -1, 0))
    return np.stack(list(channels), axis=-1)
