"""Views against slow, obvious versions made one image and one pixel at a time."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from ttaps.errors import UsageError
from ttaps.views import CropViews, SwavViews, swav
from ttaps.views.swav import Parameters

WEIGHTS = (0.299, 0.587, 0.114)
MANY = 20_000  # views drawn to check distributions; bounds are five standard errors
BOXES = [[0, 0, 32, 32], [3, 5, 20, 16], [0, 20, 12, 12], [31, 0, 1, 9], [6, 1, 25, 31]]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_images(n: int, size: int = 32, dtype: torch.dtype = torch.float32) -> Tensor:
    """Random images with saturated, gray, black and white pixels among them."""
    images = torch.rand(n, 3, size, size, generator=generator(9), dtype=dtype)
    images[:, :, 0] = images[:, :1, 0]
    images[:, :, 1, :4], images[:, :, 1, 4:8] = 0, 1
    images[:, 0, 2], images[:, 1, 3] = 0, 1
    return images


def joined(parts: Sequence[Parameters]) -> Parameters:
    """Join views that were drawn separately."""
    return Parameters(*(torch.cat([getattr(part, field.name) for part in parts]) for field in fields(Parameters)))


def jittered(factors: list[float], order: list[int], n: int = 1, size: int = 32) -> Parameters:
    return replace(
        Parameters.identity(n, size),
        jitter=torch.ones(n, dtype=torch.bool),
        factors=torch.tensor([factors]).repeat(n, 1),
        order=torch.tensor([order]).repeat(n, 1),
    )


def gray(image: Tensor) -> Tensor:
    return sum((weight * plane for weight, plane in zip(WEIGHTS, image, strict=True)), torch.zeros(()))


def slow_hue(image: Tensor, turns: float) -> Tensor:
    shifted = image.clone()
    for row in range(image.shape[1]):
        for column in range(image.shape[2]):
            hue, saturation, value = colorsys.rgb_to_hsv(*image[:, row, column].tolist())
            rgb = colorsys.hsv_to_rgb((hue + turns) % 1, saturation, value)
            shifted[:, row, column] = torch.tensor(rgb, dtype=image.dtype)
    return shifted


def slow_jitter(image: Tensor, factors: list[float], order: list[int]) -> Tensor:
    for kind in order:
        f = factors[kind]
        if kind == 0:
            image = f * image
        elif kind == 1:
            image = f * image + (1 - f) * gray(image).mean()
        elif kind == 2:
            image = f * image + (1 - f) * gray(image)
        else:
            image = slow_hue(image, f)
        image = image.clamp(0, 1)
    return image


def slow_blur(image: Tensor, sigma: float, kernel: int) -> Tensor:
    radius, size = kernel // 2, image.shape[-1]
    taps = [math.exp(-(x**2) / (2 * sigma**2)) for x in range(-radius, radius + 1)]
    blurred = torch.zeros_like(image)
    for row in range(size):
        for column in range(size):
            for i, down in enumerate(taps):
                for j, across in enumerate(taps):
                    y, x = abs(row + i - radius), abs(column + j - radius)
                    y, x = min(y, 2 * (size - 1) - y), min(x, 2 * (size - 1) - x)
                    blurred[:, row, column] += down * across / sum(taps) ** 2 * image[:, y, x]
    return blurred


def slow_view(image: Tensor, view: Parameters, size: int, kernel: int) -> Tensor:
    top, left, height, width = view.box[0].tolist()
    box = image[None, :, top : top + height, left : left + width]
    image = F.interpolate(box, size=(size, size), mode="bilinear", antialias=True)[0]
    if view.flip:
        image = image.flip(2)
    if view.jitter:
        image = slow_jitter(image, view.factors[0].tolist(), view.order[0].tolist())
    if view.grayscale:
        image = gray(image).expand(3, -1, -1)
    return slow_blur(image, view.sigma.item(), kernel) if view.sigma > 0 else image


@pytest.mark.parametrize(("size", "window"), [(16, 1), (24, 3), (32, 3), (40, 5), (64, 7)])
def test_whole_views_are_those_made_step_by_step(size: int, window: int) -> None:
    views, images = SwavViews(), random_images(2, dtype=torch.float64)
    drawn = views.sample(12, 32, generator())
    index = torch.arange(12) % 2
    made = views.apply(images, drawn, size, index)
    for i in range(12):
        slow = slow_view(images[i % 2], drawn[i : i + 1], size, window)
        torch.testing.assert_close(made[i], slow, atol=2e-5, rtol=0)  # weights are float32: 31 has 2e-6 between numbers


@pytest.mark.parametrize("size", [8, 16, 24, 32, 48])
def test_crop_is_pillows_crop_and_resize(size: int) -> None:
    image = (random_images(1) * 255).round().to(torch.uint8)
    pillow = Image.fromarray(image[0].permute(1, 2, 0).numpy())
    drawn = replace(Parameters.identity(len(BOXES), 32), box=torch.tensor(BOXES))
    for view, (top, left, height, width) in zip(CropViews().apply(image, drawn, size), BOXES, strict=True):
        box = pillow.crop((left, top, left + width, top + height))
        expected = np.asarray(box.resize((size, size), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
        # Pillow rounds after each of its two passes: half a level each, and a little for its fixed-point weights
        assert np.abs(view.numpy() * 255 - expected).max() <= 1.02


@pytest.mark.parametrize("size", [16, 32])
def test_flip_mirrors_the_crop(size: int) -> None:
    plain = replace(Parameters.identity(len(BOXES), 32), box=torch.tensor(BOXES))
    flipped = replace(plain, flip=torch.ones(len(BOXES), dtype=torch.bool))
    views, image = CropViews(), random_images(1)
    expected = views.apply(image, plain, size).flip(3)
    torch.testing.assert_close(views.apply(image, flipped, size), expected, atol=5e-6, rtol=0)


@pytest.mark.parametrize("turns", [-0.5, -0.2, -0.07, 0.0, 0.11, 0.2, 0.5])
def test_hue_is_that_of_colorsys(turns: float) -> None:
    image = random_images(1, dtype=torch.float64)
    made = SwavViews().apply(image, jittered([1, 1, 1, turns], [3, 0, 1, 2]))
    torch.testing.assert_close(made[0], slow_hue(image[0], turns), atol=1e-7, rtol=0)


def test_jitter_follows_each_of_the_24_orders_within_one_batch() -> None:
    factors, image = [1.7, 0.4, 1.6, 0.15], random_images(1, size=8, dtype=torch.float64)
    orders = torch.cartesian_prod(*[torch.arange(4)] * 4)
    orders = orders[orders.sort(1).values.eq(torch.arange(4)).all(1)]
    assert len(orders) == 24
    drawn = joined([jittered(factors, order, size=8) for order in orders.tolist()])
    made = SwavViews().apply(image, drawn)
    for view, order in zip(made, orders.tolist(), strict=True):
        torch.testing.assert_close(view, slow_jitter(image[0], factors, order), atol=1e-6, rtol=0)
    assert torch.pdist(made.flatten(1)).median() > 0.1  # the order matters: these are not all one image


@pytest.mark.parametrize("kernel", [1, 3, 7])
def test_blur_is_a_direct_convolution(kernel: int) -> None:
    sigmas, images = torch.tensor([0.1, 0.7, 2.0]), random_images(3, size=10, dtype=torch.float64)
    drawn = replace(Parameters.identity(3, 10), sigma=sigmas)
    for view, image, sigma in zip(SwavViews(blur_kernel=kernel).apply(images, drawn), images, sigmas, strict=True):
        torch.testing.assert_close(view, slow_blur(image, sigma.item(), kernel), atol=1e-6, rtol=0)


def test_identity_parameters_leave_the_image() -> None:
    images = random_images(5)
    for views in (SwavViews(), CropViews()):
        assert torch.equal(views.apply(images, Parameters.identity(5, 32)), images)


def test_bytes_are_their_255ths() -> None:
    image = torch.arange(3 * 16 * 16).view(1, 3, 16, 16).to(torch.uint8)
    drawn = SwavViews().sample(9, 16, generator())
    assert torch.equal(SwavViews().apply(image, drawn), SwavViews().apply(image.float() / 255, drawn))


def test_views_are_made_on_the_cpu_for_devices_that_may_lack_a_part() -> None:
    made = {name: str(swav.maker(torch.device(name))) for name in ("cpu", "cuda:1", "mps", "xpu")}
    assert made == {"cpu": "cpu", "cuda:1": "cuda:1", "mps": "cpu", "xpu": "cpu"}


def test_a_view_does_not_depend_on_the_rest_of_the_batch() -> None:
    views, images = SwavViews(), random_images(7)
    drawn, index = views.sample(200, 32, generator()), torch.randint(7, (200,), generator=generator(1))
    made = views.apply(images, drawn, index=index)
    for i in range(0, 200, 9):
        alone = views.apply(images[index[i], None], drawn[i : i + 1])[0]
        torch.testing.assert_close(made[i], alone, atol=1e-6, rtol=0)
    backwards = views.apply(images, drawn[torch.arange(199, -1, -1)], index=index.flip(0))
    torch.testing.assert_close(made, backwards.flip(0), atol=1e-6, rtol=0)


def test_a_view_depends_neither_on_its_block_nor_on_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    views, image, threads = SwavViews(), random_images(1), torch.get_num_threads()
    drawn = views.sample(300, 32, generator())
    made = views.apply(image, drawn)
    torch.set_num_threads(3 - min(threads, 2))
    try:
        assert torch.equal(views.apply(image, drawn), made)
    finally:
        torch.set_num_threads(threads)
    monkeypatch.setattr(swav, "BLOCK", 70)
    torch.testing.assert_close(views.apply(image, drawn), made, atol=1e-6, rtol=0)


def test_views_can_be_trained_on() -> None:
    made = SwavViews().apply(random_images(2), SwavViews().sample(2, 32, generator()))
    weight = torch.ones(3, 32, 32, requires_grad=True)
    (made * weight).sum().backward()  # made without autograd, but ordinary tensors
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad, made.sum(0))


def test_one_image_for_all_views_is_that_image_repeated() -> None:
    views, image = SwavViews(), random_images(1)
    drawn = views.sample(70, 32, generator())
    repeated = views.apply(image.expand(70, -1, -1, -1), drawn)
    torch.testing.assert_close(views.apply(image, drawn), repeated, atol=1e-6, rtol=0)


def test_views_stay_in_range() -> None:
    made = SwavViews().apply(random_images(1), SwavViews().sample(300, 32, generator()))
    assert made.min() >= 0
    assert made.max() <= 1


def test_the_same_seed_gives_the_same_views_and_parts_join() -> None:
    views, image = SwavViews(), random_images(1)
    drawn = views.sample(30, 32, generator(4))
    assert torch.equal(views.apply(image, drawn), views.apply(image, views.sample(30, 32, generator(4))))
    both = joined([drawn[:11], drawn[11:].to("cpu")])
    assert len(both) == 30
    assert torch.equal(views.apply(image, both), views.apply(image, drawn))
    more = views.sample(50, 32, generator(4))[:30]  # the first views do not depend on how many are drawn
    assert torch.equal(more.box, drawn.box)
    assert torch.equal(more.factors, drawn.factors)


def within(values: Tensor, mean: float, deviation: float) -> bool:
    """Whether the mean of independent values is within five standard errors of its expectation."""
    return abs(values.double().mean().item() - mean) < 5 * deviation / math.sqrt(len(values))


def test_probabilities_and_ranges_are_those_asked_for() -> None:
    drawn = SwavViews().sample(MANY, 32, generator())
    for chosen, p in ((drawn.flip, 0.5), (drawn.jitter, 0.8), (drawn.grayscale, 0.2), (drawn.sigma > 0, 0.5)):
        assert within(chosen, p, math.sqrt(p * (1 - p)))
    ranges = [(0.2, 1.8), (0.2, 1.8), (0.2, 1.8), (-0.2, 0.2)]
    for values, (low, high) in zip([*drawn.factors.T], ranges, strict=True):
        assert low - 1e-6 <= values.min() < values.max() <= high + 1e-6
        assert within(values, (low + high) / 2, (high - low) / math.sqrt(12))
    sigma = drawn.sigma[drawn.sigma > 0]
    assert 0.1 <= sigma.min() < sigma.max() <= 2.0
    assert within(sigma, 1.05, 1.9 / math.sqrt(12))
    orders = drawn.order @ torch.tensor([64, 16, 4, 1])
    for order in orders.unique():
        assert within(orders == order, 1 / 24, math.sqrt(23) / 24)
    assert len(orders.unique()) == 24


def test_factors_never_go_below_zero() -> None:
    factors = SwavViews(jitter_strength=2.0).sample(MANY, 32, generator()).factors
    assert factors[:, :3].min() >= 0
    assert within(factors[:, 0], 1.3, 2.6 / math.sqrt(12))


def test_boxes_have_the_areas_and_ratios_asked_for() -> None:
    size = 4096  # rounding to pixels is then negligible, and no try is refused below an area of 3/4
    box = SwavViews(scale=(0.14, 0.74)).sample(MANY, size, generator()).box.double()
    top, left, height, width = box.T
    assert within(height * width / size**2, 0.44, 0.6 / math.sqrt(12))
    spread = 2 * math.log(4 / 3) / math.sqrt(12)
    assert within((width / height).log(), 0, spread)
    assert within((width / height).log().square(), spread**2, spread**2 * math.sqrt(0.8))  # a uniform's kurtosis is 1.8
    for start, side in ((top, height), (left, width)):
        assert within(start / (size - side), 0.5, 1 / math.sqrt(12))


@pytest.mark.parametrize("views", [SwavViews(), CropViews()])
def test_boxes_lie_inside_the_image(views: SwavViews | CropViews) -> None:
    top, left, height, width = views.sample(MANY, 32, generator()).box.T
    assert min(top.min(), left.min()) == 0
    assert min(height.min(), width.min()) >= 1
    assert max((top + height).max(), (left + width).max()) == 32


def test_a_box_that_never_fits_falls_back_to_the_centre() -> None:
    wide = CropViews(scale=(0.9, 1.0), ratio=(2.0, 3.0)).sample(5, 32, generator())
    assert wide.box.tolist() == [[8, 0, 16, 32]] * 5
    tall = CropViews(scale=(0.9, 1.0), ratio=(0.25, 0.5)).sample(5, 32, generator())
    assert tall.box.tolist() == [[0, 8, 32, 16]] * 5


def test_the_supervised_crop_keeps_the_colors() -> None:
    drawn = CropViews().sample(50, 32, generator())
    assert not drawn.jitter.any()
    assert not drawn.grayscale.any()
    assert not drawn.sigma.any()
    color = torch.tensor([0.2, 0.5, 0.9]).view(1, 3, 1, 1).expand(1, 3, 32, 32)
    torch.testing.assert_close(CropViews().apply(color, drawn), color.expand(50, -1, -1, -1), atol=1e-6, rtol=0)


def test_no_views_of_no_parameters() -> None:
    assert SwavViews().apply(random_images(1), Parameters.identity(0, 32)).shape == (0, 3, 32, 32)


def test_wrong_input_is_refused_with_its_value() -> None:
    drawn = Parameters.identity(3, 32)
    with pytest.raises(UsageError, match=r"blur_kernel must be an odd number .* not 4"):
        SwavViews(blur_kernel=4)
    with pytest.raises(UsageError, match=r"blur_kernel is 65: .* 32 pixels"):
        SwavViews(blur_kernel=65).apply(random_images(3), drawn)
    with pytest.raises(UsageError, match=r"scale must be two rising numbers above 0 and at most 1, not 2.0 and 3.0"):
        SwavViews(scale=(2.0, 3.0))
    with pytest.raises(UsageError, match="flip_p must be a probability, from 0 to 1, not 7"):
        SwavViews(flip_p=7)
    with pytest.raises(UsageError, match=r"\(3, 32, 32\)"):
        SwavViews().apply(random_images(1)[0], drawn)
    with pytest.raises(UsageError, match="2 images for 3 views"):
        SwavViews().apply(random_images(2), drawn)
    with pytest.raises(UsageError, match="2 entries for 3 views"):
        SwavViews().apply(random_images(2), drawn, index=torch.zeros(2, dtype=torch.long))
