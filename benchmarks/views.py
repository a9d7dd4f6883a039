"""How much faster batched views are than the same views made one by one with Pillow.

    python benchmarks/views.py [--threads 2] [--rounds 15]

Both make 640 views of one 32-pixel image from the same parameters, taking turns so that a busy machine slows both;
the best round of each counts. Pillow has one thread, as in a data loader's worker, and its own blur, which has no
3-pixel window.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageFilter

from ttaps.views import Parameters, SwavViews

VIEWS, SIZE = 640, 32


def shift_hue(image: Image.Image, turns: float) -> Image.Image:
    hue, saturation, value = image.convert("HSV").split()
    shifted = (np.asarray(hue).astype(np.int16) + round(turns * 255)).astype(np.uint8)
    return Image.merge("HSV", (Image.fromarray(shifted), saturation, value)).convert("RGB")


def pillow_view(image: Image.Image, view: dict[str, list[Any]], i: int) -> torch.Tensor:
    top, left, height, width = view["box"][i]
    made = image.crop((left, top, left + width, top + height)).resize((SIZE, SIZE), Image.Resampling.BILINEAR)
    if view["flip"][i]:
        made = made.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if view["jitter"][i]:
        enhancers = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)
        for kind in view["order"][i]:
            factor = view["factors"][i][kind]
            made = shift_hue(made, factor) if kind == 3 else enhancers[kind](made).enhance(factor)
    if view["grayscale"][i]:
        made = made.convert("L").convert("RGB")
    if view["sigma"][i]:
        made = made.filter(ImageFilter.GaussianBlur(view["sigma"][i]))
    return torch.from_numpy(np.array(made)).permute(2, 0, 1).float().div_(255)


def pillow_views(image: torch.Tensor, drawn: Parameters) -> torch.Tensor:
    picture = Image.fromarray(image[0].permute(1, 2, 0).numpy())
    view = {name: tensor.tolist() for name, tensor in vars(drawn).items()}
    return torch.stack([pillow_view(picture, view, i) for i in range(len(drawn))])


def seconds(function: Callable[[], torch.Tensor]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="threads of torch")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    views, generator = SwavViews(), torch.Generator().manual_seed(0)
    image = torch.randint(256, (1, 3, SIZE, SIZE), dtype=torch.uint8, generator=generator)
    drawn = views.sample(VIEWS, SIZE, generator)
    times = [
        (seconds(lambda: pillow_views(image, drawn)), seconds(lambda: views.apply(image, drawn)))
        for _ in range(arguments.rounds)
    ]
    pillow, batched = (min(column) / VIEWS * 1e6 for column in zip(*times, strict=True))
    print(f"pillow, 1 thread:            {pillow:7.1f} µs per view")
    print(
        f"ttaps.views, {arguments.threads} thread(s):    {batched:7.1f} µs per view, {pillow / batched:.1f} times faster"
    )


if __name__ == "__main__":
    main()
