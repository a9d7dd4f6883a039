"""What changes over a run: learning rate, resolution, and the weight of the joint loss. All depend only on the step."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from ttaps.training.config import TrainConfig

# Factor on the learning rate, given the share of the decay that is left (1 to 0).
DECAYS: dict[str, Callable[[float], float]] = {
    "cosine": lambda left: (1 - math.cos(math.pi * left)) / 2,
    "linear": lambda left: left,
    "step": lambda left: 0.1 ** ((left <= 1 / 2) + (left <= 1 / 6)),
    "constant": lambda left: 1.0,
}


@dataclass(frozen=True)
class Schedule:
    """A config laid out over the steps of a run."""

    config: TrainConfig
    epoch_steps: int

    @classmethod
    def of(cls, config: TrainConfig, images: int) -> Self:
        """Return the schedule of a run on this many training images."""
        return cls(config, max(1, images // config.batch_size))  # an incomplete last batch is dropped

    @property
    def steps(self) -> int:
        """Number of steps of the run."""
        return max(1, round(self.config.epochs * self.epoch_steps))

    def lr_factor(self, step: int) -> float:
        """Factor on the base learning rate: linear warm-up, constant phase, then decay."""
        schedule = self.config.schedule
        warmup = min(schedule.warmup_epochs * self.epoch_steps, self.steps)
        if step < warmup:
            return min(1.0, (step + 1) / warmup)
        hold, decay = schedule.lr_hold_epochs * self.epoch_steps, schedule.lr_decay_epochs * self.epoch_steps
        start = min(max(warmup, self.steps - decay if decay else hold), self.steps)
        left = min(1.0, 1 - (step - start) / max(1, self.steps - start))
        return DECAYS[schedule.lr_schedule](left)

    def size(self, step: int) -> int:
        """Resolution in pixels."""
        done, schedule = step / self.steps, self.config.schedule
        sizes = schedule.resolutions or (self.config.model.image_size,)
        return next(size for size, until in zip(sizes, schedule.resolution_milestones, strict=True) if done < until)

    def joint_weight(self, step: int) -> float:
        """Weight of the objective's whole loss (1) against the cross-entropy alone (0, always that of ``baseline``)."""
        since = step / self.epoch_steps - self.config.schedule.joint_start_epoch
        if self.config.objective == "baseline" or since < 0:
            return 0.0
        ramp = self.config.schedule.joint_ramp_epochs
        return min(1.0, (since + 1 / self.epoch_steps) / ramp) if ramp > 0 else 1.0

    def joint_begins(self, step: int) -> bool:
        """Whether this is the first step that is not the cross-entropy alone."""
        return self.joint_weight(step) > 0 and self.joint_weight(step - 1) == 0

    def warm(self, step: int) -> bool:
        """Whether the warm-up and the ramp of the joint loss are over, so that a loss at ln K means a collapse."""
        # During the warm-up it does not: the paper's own training stays at ln K until the learning rate reaches about 0.3.
        return step / self.epoch_steps >= self.config.schedule.warmup_epochs and self.joint_weight(step) > 0.1

    def prototypes_frozen(self, step: int) -> bool:
        """Whether the prototypes are frozen while the network starts to learn."""
        schedule = self.config.schedule
        return step / self.epoch_steps < schedule.joint_start_epoch + schedule.freeze_prototypes_epochs
