"""What a network is trained for: each objective draws the views it wants and returns its loss with the parts worth watching."""

from collections.abc import Callable

from torch import Tensor

from ttaps.model import Network
from ttaps.training.batch import Batch
from ttaps.training.config import LossConfig
from ttaps.training.objectives import baseline, joint, mt3, ttt

Objective = Callable[[Network, Batch, LossConfig, float], dict[str, Tensor]]

OBJECTIVES: dict[str, Objective] = {
    "baseline": baseline.loss,
    "jt": joint.jt,
    "jt+ent": joint.jt_ent,
    "ttt": ttt.loss,
    "mt3": mt3.loss,
}
