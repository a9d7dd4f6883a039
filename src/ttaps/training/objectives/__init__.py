"""Training objectives: each draws the views it needs and returns its loss with the parts worth watching."""

from collections.abc import Callable

from torch import Tensor

from ttaps.model import Network
from ttaps.training.config import TrainConfig
from ttaps.training.data import Batch
from ttaps.training.objectives import baseline, joint, mt3, ttt

Objective = Callable[[Network, Batch, TrainConfig, float], dict[str, Tensor]]
"""The last argument is the weight of the whole loss against the cross-entropy alone, above 0 and up to 1."""

OBJECTIVES: dict[str, Objective] = {
    "baseline": baseline.loss,
    "jt": joint.jt,
    "jt+ent": joint.jt_ent,
    "ttt": ttt.loss,
    "mt3": mt3.loss,
}
