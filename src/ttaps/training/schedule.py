"""What changes over a run: learning rate, resolution, and the weight of the joint loss. All are functions of the step alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ttaps.training.config import TrainConfig

DECAYS: dict[str, Callable[[float], float]] = {
    "cosine": lambda left: (1 - math.cos(math.pi * left)) / 2,
    "linear": lambda left: left,
    "step": lambda left: 0.1 ** ((left <= 1 / 2) + (left <= 1 / 6)),
    "constant": lambda left: 1.0,
}
"""The factor on the learning rate where so much (1 to 0) of the run is left."""


@dataclass(frozen=True)
class Schedule:
    """A config laid out over the steps of a run."""

    config: TrainConfig
    epoch_steps: int

    @property
    def steps(self) -> int:
        """How many steps the run has."""
        return max(1, round(self.config.epochs * self.epoch_steps))

    def epoch(self, step: int) -> float:
        """Passes over the data before ``step``."""
        return step / self.epoch_steps

    def lr_factor(self, step: int) -> float:
        """Factor on the base learning rate: linear warm-up, a level stretch, then the decay."""
        warmup = min(self.config.optimizer.warmup_epochs * self.epoch_steps, self.steps)
        if step < warmup:
            return min(1.0, (step + 1) / warmup)
        start = min(max(warmup, self.config.optimizer.lr_hold_epochs * self.epoch_steps), self.steps)
        left = min(1.0, 1 - (step - start) / max(1, self.steps - start))
        return DECAYS[self.config.optimizer.lr_schedule](left)

    def size(self, step: int) -> int:
        """Resolution in pixels."""
        done = step / self.steps
        sizes = self.config.resolutions or (self.config.model.image_size,)
        return next(size for size, until in zip(sizes, self.config.resolution_milestones, strict=True) if done < until)

    def joint_weight(self, step: int) -> float:
        """How far the cross-entropy alone (0, and all there is of ``baseline``) has turned into the objective's whole loss (1)."""
        loss = self.config.loss
        since = self.epoch(step) - loss.joint_start_epoch
        if self.config.objective == "baseline" or since < 0:
            return 0.0
        return min(1.0, (since + 1 / self.epoch_steps) / loss.joint_ramp_epochs) if loss.joint_ramp_epochs > 0 else 1.0

    def joint_begins(self, step: int) -> bool:
        """Whether this is the first step that is not the cross-entropy alone."""
        return self.joint_weight(step) > 0 and self.joint_weight(step - 1) == 0

    def warm(self, step: int) -> bool:
        """Whether warm-up is over and the joint loss has come up, so that a loss that stands still means something.

        Within the warm-up it does not: the paper's own training sits at ln K until the learning rate reaches about 0.3.
        """
        return self.epoch(step) >= self.config.optimizer.warmup_epochs and self.joint_weight(step) > 0.1

    def prototypes_frozen(self, step: int) -> bool:
        """Whether the prototypes rest while the network gets going."""
        loss = self.config.loss
        return self.epoch(step) < loss.joint_start_epoch + loss.freeze_prototypes_epochs
