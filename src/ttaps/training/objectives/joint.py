"""JT and JT+ENT: the paper's joint training, eq. (8): L_SwAV + γ1 L_CE + γ2 L_ent."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from ttaps.losses import prototype_entropy, sinkhorn_codes, swapped_prediction
from ttaps.model import Network
from ttaps.training.batch import Batch
from ttaps.training.config import LossConfig
from ttaps.training.objectives import baseline
from ttaps.views import SwavViews


def loss(network: Network, batch: Batch, config: LossConfig, joint: float, entropy: bool) -> dict[str, Tensor]:
    """Cross-entropy alone at ``joint`` = 0, the paper's loss at 1, a blend of the two between.

    At 0 only the supervised crop is drawn: one view instead of three.
    """
    if joint == 0:
        return baseline.loss(network, batch, config, joint)
    z_s, z_t, z_supervised = _projections(network, batch, config)
    scores_s, scores_t = network.scores(z_s), network.scores(z_t)
    codes_s, codes_t = (
        sinkhorn_codes(scores, config.epsilon, config.sinkhorn_iterations, batch.logsumexp)
        for scores in (scores_s, scores_t)
    )
    swav = swapped_prediction(scores_s, scores_t, codes_s, codes_t, config.tau)
    swav = swav / 2 if config.swap_reduction == "mean" else swav

    logits = network.classifier(z_supervised)
    labels = batch.labels.repeat(len(logits) // len(batch.labels))
    cross_entropy = F.cross_entropy(logits, labels, label_smoothing=config.label_smoothing)
    ent = prototype_entropy(network.classifier(network.prototypes))

    total = swav + config.gamma_ce * cross_entropy + (config.gamma_ent * ent if entropy else 0)
    return {
        "loss": joint * total + (1 - joint) * cross_entropy,
        "swav": swav.detach() if config.swap_reduction == "mean" else swav.detach() / 2,
        "ce": cross_entropy.detach(),
        "ent": ent.detach(),
        "accuracy": baseline.accuracy(logits, labels),
        "used": scores_s.detach().argmax(-1),
    }


jt = partial(loss, entropy=False)
jt_ent = partial(loss, entropy=True)


def _projections(network: Network, batch: Batch, config: LossConfig) -> tuple[Tensor, Tensor, Tensor]:
    """Return z of the two SwAV views and of what the cross-entropy sees, all in one pass through the network."""
    kind = SwavViews()
    second = baseline.with_prime(batch.views(kind, "t"), batch, config.prime_swav_share, "prime-t", kind.scale)
    views = [batch.views(kind, "s"), second]
    if config.ce_view != "views":
        views.append(baseline.crop(batch, config, config.ce_view))
    z = network.project(torch.cat(views)).split(len(batch.images))
    return z[0], z[1], torch.cat(z[:2]) if config.ce_view == "views" else z[2]
