"""AugMix against Pillow, one image at a time: every operation, and whole views, to the last bit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torch import Tensor

from ttaps.errors import UsageError
from ttaps.views.augmix import NOTHING, OPERATIONS, AugmixViews, Mixture, amount, operate

SIZE = 32
FILL = 128


def random_images() -> Tensor:
    """Return noise, smooth gradients, one flat image, and one that is mostly white."""
    g = torch.Generator().manual_seed(0)
    noise = torch.randint(0, 256, (8, 3, SIZE, SIZE), generator=g, dtype=torch.uint8)
    coarse = torch.rand(8, 3, 4, 4, generator=g) * torch.rand(8, 3, 1, 1, generator=g)
    smooth = torch.nn.functional.interpolate(coarse, (SIZE, SIZE), mode="bilinear").mul(255).to(torch.uint8)
    flat, white = torch.full((1, 3, SIZE, SIZE), 7, dtype=torch.uint8), noise[:1].clone()
    white[..., :25] = 255
    return torch.cat([noise, smooth, flat, white])


def to_pillow(image: Tensor) -> Image.Image:
    return Image.fromarray(image.permute(1, 2, 0).contiguous().numpy())


def to_tensor(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def moved(*matrix: float) -> Callable[[Image.Image], Image.Image]:
    return lambda image: image.transform(
        image.size, Image.Transform.AFFINE, matrix, resample=Image.Resampling.BILINEAR, fillcolor=FILL
    )


def with_pillow(image: Image.Image, operation: int, a: float) -> Image.Image:
    """Do one operation as the authors' code does."""
    functions: dict[str, Callable[[Image.Image], Image.Image]] = {
        "autocontrast": ImageOps.autocontrast,
        "equalize": ImageOps.equalize,
        "posterize": lambda image: ImageOps.posterize(image, int(a)),
        "solarize": lambda image: ImageOps.solarize(image, int(a)),
        "rotate": lambda image: image.rotate(a, resample=Image.Resampling.BILINEAR, fillcolor=FILL),
        "shear_x": moved(1, a, 0, 0, 1, 0),
        "shear_y": moved(1, 0, 0, a, 1, 0),
        "translate_x": moved(1, 0, a, 0, 1, 0),
        "translate_y": moved(1, 0, 0, 0, 1, a),
    }
    return functions[OPERATIONS[operation]](image)


@pytest.mark.parametrize("operation", range(9), ids=OPERATIONS)
def test_operation_is_pillows_to_the_last_bit(operation: int) -> None:
    images, g = random_images(), torch.Generator().manual_seed(operation)
    which = torch.full((len(images),), operation)
    level = 10 * torch.rand(len(images), generator=g, dtype=torch.float64)
    amounts = amount(which, level, torch.rand(len(images), generator=g) < 0.5, SIZE)
    got = images.clone()
    operate(got, which, amounts, (FILL, 0, 0))
    for image, own, a in zip(images, got, amounts.tolist(), strict=True):
        assert torch.equal(own, to_tensor(with_pillow(to_pillow(image), operation, a)))


def test_operations_do_not_mix_up_images() -> None:
    images, which = random_images()[:10], torch.tensor([NOTHING, 8, 1, 0, 4, 2, 3, 5, 6, 7])
    amounts = amount(which.clamp_min(0), torch.full((10,), 7.0, dtype=torch.float64), torch.arange(10) % 2 == 0, SIZE)
    got = images.clone()
    operate(got, which, amounts, (FILL, 0, 0))
    assert torch.equal(got[0], images[0])
    for row in range(1, 10):
        want = with_pillow(to_pillow(images[row]), int(which[row]), float(amounts[row]))
        assert torch.equal(got[row], to_tensor(want))


@pytest.mark.parametrize("severity", [1.0, 10.0])
def test_views_are_mixtures_of_chains_made_by_pillow(severity: float) -> None:
    views, image = AugmixViews(severity=severity), random_images()[10:11]
    drawn = views.sample(6, SIZE, torch.Generator().manual_seed(5))
    for view, row in zip(views.apply(image, drawn), range(6), strict=True):
        top, left = drawn.corner[row].tolist()
        padded = ImageOps.expand(to_pillow(image[0]), 4)
        plain = padded.crop((left, top, left + SIZE, top + SIZE))
        plain = ImageOps.mirror(plain) if drawn.flip[row] else plain
        mixed = torch.zeros(3, SIZE, SIZE)
        for chain in range(3):
            link = plain
            for operation, a in zip(drawn.operations[row, chain], drawn.amounts[row, chain], strict=True):
                link = link if operation == NOTHING else with_pillow(link, int(operation), float(a))
            mixed += drawn.weights[row, chain] * to_tensor(link) / 255
        want = drawn.keep[row] * to_tensor(plain) / 255 + (1 - drawn.keep[row]) * mixed
        torch.testing.assert_close(view, want, rtol=0, atol=1e-6)


def test_amounts_are_the_authors() -> None:
    """Severity 1: four bits, thresholds from 231, up to two degrees, shears below 0.03, one pixel at most."""
    drawn = AugmixViews().sample(3000, SIZE, torch.Generator().manual_seed(0))
    spans = {
        "posterize": (4, 4),
        "solarize": (231, 254),
        "rotate": (-2, 2),
        "translate_x": (-1, 1),
        "translate_y": (-1, 1),
    }
    for name, (low, high) in spans.items():
        amounts = drawn.amounts[drawn.operations == OPERATIONS.index(name)]
        assert (int(amounts.min()), int(amounts.max())) == (low, high)
        assert torch.equal(amounts, amounts.round())
    for name in ("shear_x", "shear_y"):
        shears = drawn.amounts[drawn.operations == OPERATIONS.index(name)]
        assert 0.003 <= shears.abs().min() < 0.0031
        assert 0.0299 < shears.abs().max() <= 0.03
        assert abs((shears < 0).double().mean() - 0.5) < 4 * 0.5 / math.sqrt(len(shears))


def test_draws_have_their_distributions() -> None:
    n = 6000
    drawn = AugmixViews().sample(n, SIZE, torch.Generator().manual_seed(1))

    def near(shares: Tensor, expected: float, count: int) -> bool:
        return bool((shares - expected).abs().max() < 4.5 * math.sqrt(expected * (1 - expected) / count))

    length = (drawn.operations != NOTHING).sum(-1).flatten()
    assert near(torch.bincount(length, minlength=4)[1:] / (3 * n), 1 / 3, 3 * n)
    used = drawn.operations[drawn.operations != NOTHING]
    assert near(torch.bincount(used, minlength=9) / len(used), 1 / 9, len(used))
    assert near(torch.stack([torch.bincount(c, minlength=9) for c in drawn.corner.T]) / n, 1 / 9, n)
    torch.testing.assert_close(drawn.weights.sum(1), torch.ones(n))
    for share in (0.1, 0.3, 0.6):  # of Dirichlet(1, 1, 1) one weight is below s with probability 1 - (1 - s)²
        assert near((drawn.weights < share).double().mean(0), 1 - (1 - share) ** 2, n)
        assert near((drawn.keep < share).double().mean(), share, n)


def test_operations_come_first_and_nothing_after() -> None:
    used = AugmixViews().sample(500, SIZE, torch.Generator().manual_seed(2)).operations != NOTHING
    assert used[..., 0].all()
    assert not (used[..., 1:] & ~used[..., :-1]).any()


def test_a_view_that_keeps_the_image_is_the_image() -> None:
    images, views = random_images(), AugmixViews(pad=0, flip_p=0.0)
    drawn = replace(views.sample(len(images), SIZE, torch.Generator()), keep=torch.ones(len(images)))
    assert torch.equal(views.apply(images, drawn), images / 255)
    assert torch.equal(views.apply(images / 255, drawn), images / 255)


def test_index_says_which_image_a_view_is_made_of() -> None:
    images, views = random_images(), AugmixViews()
    drawn = views.sample(4, SIZE, torch.Generator().manual_seed(3))
    index = torch.tensor([5, 5, 0, 11])
    got = views.apply(images, drawn, index)
    alone = [views.apply(images[i : i + 1], drawn[row : row + 1]) for row, i in enumerate(index.tolist())]
    assert torch.equal(got, torch.cat(alone))
    assert isinstance(drawn[:1], Mixture)


@pytest.mark.parametrize(
    ("name", "value"), [("severity", 0.0), ("severity", 11.0), ("width", 0), ("depth", 0), ("pad", -1)]
)
def test_wrong_settings_are_refused(name: str, value: float) -> None:
    with pytest.raises(UsageError, match=f"{name} must be at"):
        AugmixViews(**{name: value})  # type: ignore[arg-type]
