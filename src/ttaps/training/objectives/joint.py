"""JT and JT+ENT: the paper's joint training, eq. (8): L_SwAV + γ1 L_CE + γ2 L_ent."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from ttaps.losses import prototype_entropy, sinkhorn_codes, swapped_prediction
from ttaps.model import Network
from ttaps.training.config import AugmentationConfig, TrainConfig
from ttaps.training.data import Batch
from ttaps.training.objectives import baseline
from ttaps.views import SwavViews


def loss(network: Network, batch: Batch, config: TrainConfig, joint: float, entropy: bool) -> dict[str, Tensor]:
    """Return the paper's loss at ``joint`` = 1, and its blend with the cross-entropy alone below that."""
    weights = config.loss
    z_s, z_t, z_ce = _projections(network, batch, config.augmentation)
    scores_s, scores_t = network.scores(z_s), network.scores(z_t)
    codes_s, codes_t = (
        sinkhorn_codes(scores, weights.epsilon, weights.sinkhorn_iterations, batch.logsumexp)
        for scores in (scores_s, scores_t)
    )
    swav = swapped_prediction(scores_s, scores_t, codes_s, codes_t, weights.tau)
    swav = swav / 2 if weights.swap_reduction == "mean" else swav

    logits = network.classifier(z_ce)
    labels = batch.labels.repeat(len(logits) // len(batch.labels))
    cross_entropy = F.cross_entropy(logits, labels, label_smoothing=weights.label_smoothing)
    ent = prototype_entropy(network.classifier(network.prototypes))

    total = swav + weights.gamma_ce * cross_entropy + (weights.gamma_ent * ent if entropy else 0)
    return {
        "loss": joint * total + (1 - joint) * cross_entropy,
        "swav": swav.detach() if weights.swap_reduction == "mean" else swav.detach() / 2,
        "ce": cross_entropy.detach(),
        "ent": ent.detach(),
        "accuracy": baseline.accuracy(logits, labels),
        "used": scores_s.detach().argmax(-1),
    }


jt = partial(loss, entropy=False)
jt_ent = partial(loss, entropy=True)


def _projections(network: Network, batch: Batch, config: AugmentationConfig) -> tuple[Tensor, Tensor, Tensor]:
    """Return z of the two SwAV views and of the input of the cross-entropy, all in one pass through the network."""
    kind = SwavViews()
    second = baseline.with_prime(batch.views(kind, "t"), batch, config.prime_swav_share, "prime-t", kind.scale)
    views = [batch.views(kind, "s"), second]
    if config.ce_view != "views":
        views.append(baseline.crop(batch, config, config.ce_view))
    z = network.project(torch.cat(views)).split(len(batch.images))
    return z[0], z[1], torch.cat(z[:2]) if config.ce_view == "views" else z[2]
