"""Adaptation of one image as the authors' code does it: what the engine is compared with. Written to be recognised, not to be fast."""

from __future__ import annotations

import torch
from torch import Tensor

from ttaps.adaptation import Ttaps
from ttaps.bench.pillow import pillow_views
from ttaps.model import Network
from ttaps.model.split_network import adapted_names
from ttaps.rng import generator


def naive(network: Network, image: Tensor, method: Ttaps, key: int) -> Tensor:
    """Each view by Pillow, the whole network forward and backward at every step, gradients outside the scope dropped, weights reloaded."""
    saved = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    scope = set(adapted_names(network, method.adapt_params))
    optimizer = torch.optim.SGD(
        (w for n, w in network.named_parameters() if n in scope), method.lr, 0.9, weight_decay=1e-5
    )
    draw = generator(key, "naive")
    for _ in range(method.steps):
        views = pillow_views(image, method.views.sample(2 * method.num_pairs, image.shape[-1], draw))
        loss = method.loss(network.scores(network.project(views)))
        network.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        probabilities: Tensor = network(image)[0].softmax(-1)
    network.load_state_dict(saved)
    return probabilities
