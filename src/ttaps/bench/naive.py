"""Adaptation as the authors' code does it, what ``ttaps bench`` compares with: written to be recognized, not to be fast."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageFilter
from torch import Tensor

from ttaps.adaptation import Ttaps
from ttaps.model import Network
from ttaps.model.split_network import adapted_names
from ttaps.rng import generator
from ttaps.views import Parameters


def naive(network: Network, image: Tensor, method: Ttaps, key: int) -> Tensor:
    """Each view by Pillow, the whole network forward and backward at every step, unused gradients dropped, weights reloaded."""
    saved = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    adapted = set(adapted_names(network, method.adapt_params))
    parameters = [weight for name, weight in network.named_parameters() if name in adapted]
    optimizer = torch.optim.SGD(parameters, method.lr, 0.9, weight_decay=1e-5)
    draw = generator(key, "naive")
    for _ in range(method.steps):
        views = pillow_views(image, method.views.sample(2 * method.num_pairs, image.shape[-1], draw))
        loss = method.loss(network.scores(network.project(views)))
        network.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        probabilities = network(image)[0].softmax(-1)
    network.load_state_dict(saved)
    return probabilities


def pillow_views(image: Tensor, drawn: Parameters) -> Tensor:
    """Make the views of one image (1, 3, H, W), uint8, one by one. Pillow's blur has no 3-pixel window; it costs about the same."""
    picture = Image.fromarray(image[0].permute(1, 2, 0).numpy())
    rows = {name: tensor.tolist() for name, tensor in vars(drawn).items()}
    return torch.stack([_view(picture, {name: values[i] for name, values in rows.items()}) for i in range(len(drawn))])


def _view(image: Image.Image, view: dict[str, Any]) -> Tensor:
    top, left, height, width = view["box"]
    made = image.crop((left, top, left + width, top + height)).resize(image.size, Image.Resampling.BILINEAR)
    if view["flip"]:
        made = made.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if view["jitter"]:
        enhancers = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)
        for kind in view["order"]:
            factor = view["factors"][kind]
            made = _shift_hue(made, factor) if kind == 3 else enhancers[kind](made).enhance(factor)
    if view["grayscale"]:
        made = made.convert("L").convert("RGB")
    if view["sigma"]:
        made = made.filter(ImageFilter.GaussianBlur(view["sigma"]))
    return torch.from_numpy(np.array(made)).permute(2, 0, 1).float().div_(255)


def _shift_hue(image: Image.Image, turns: float) -> Image.Image:
    hue, saturation, value = image.convert("HSV").split()
    shifted = (np.asarray(hue).astype(np.int16) + round(turns * 255)).astype(np.uint8)
    return Image.merge("HSV", (Image.fromarray(shifted), saturation, value)).convert("RGB")
