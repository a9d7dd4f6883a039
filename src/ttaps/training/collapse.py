"""Detect runs that can no longer succeed: SwAV stuck at ln K, dead prototypes, a loss that explodes or is NaN."""

import math
from collections import deque

from torch import Tensor

from ttaps.errors import TtapsError

WINDOW = 300  # steps after the warm-up that must look bad; starts that work leave ln K within 200
NEAR = 0.001  # nats from ln K that count as stuck; collapsed runs stay within 0.0001, others pass by within 80 steps


class TrainingCollapsed(TtapsError):
    """A training run that can no longer succeed, with what to try instead."""


class CollapseCheck:
    """Follows the parts of the loss step by step; ``update`` raises :class:`TrainingCollapsed`."""

    def __init__(self, prototypes: int, classes: int, window: int = WINDOW) -> None:
        self.prototypes, self.classes, self.window = prototypes, classes, window
        self.losses: deque[float] = deque(maxlen=10)
        self.swav: deque[float] = deque(maxlen=window)
        self.last_used: dict[int, int] = {}
        self.joint_steps = 0

    def update(self, step: int, parts: dict[str, Tensor], warm: bool) -> None:
        """Check one step's loss terms; SwAV is judged only when ``warm``: learning rate and joint loss are ramped up."""
        loss, joint = parts["loss"].item(), "swav" in parts
        remedy = "Try a lower learning rate (--optimizer.lr) or a longer warm-up (--schedule.warmup-epochs)."
        if not math.isfinite(loss):
            raise TrainingCollapsed(f"The loss is {loss} at step {step}: training has diverged.\n{remedy}")
        self.losses.append(loss)
        chance = math.log(self.classes) + (2 * math.log(self.prototypes) if joint else 0)
        if len(self.losses) == 10 and min(self.losses) > 10 * chance:
            exploded = f"The loss exploded to {loss:.3g} at step {step}; guessing at random would cost {chance:.3g}."
            raise TrainingCollapsed(f"{exploded}\n{remedy}")
        if joint and warm:
            self._check_swav(step, parts["swav"].item(), parts["used"])

    def _check_swav(self, step: int, swav: float, used: Tensor) -> None:
        self.swav.append(swav)
        chance = math.log(self.prototypes)  # exactly that where all z are alike, and so the codes uniform
        near = sum(abs(value - chance) < NEAR for value in self.swav)
        if near > 0.9 * self.window:
            raise TrainingCollapsed(
                f"Collapsed: the SwAV loss has been at ln K = {chance:.3f} for {near} steps (now step {step}), because all images "
                f"look the same to the prototypes.\nTry --schedule.joint-start-epoch 1 (cross-entropy first), "
                f"--model.zero-init-residual, --model.classifier-scale 10, --loss.epsilon 0.03 or --optimizer.name muon."
            )
        self.joint_steps += 1
        self.last_used |= dict.fromkeys(used.tolist(), self.joint_steps)
        patience = self.window + 10 * math.ceil(self.prototypes / len(used))
        alive = sum(self.joint_steps - last < patience for last in self.last_used.values())
        if self.joint_steps >= patience and alive < 0.1 * self.prototypes:
            raise TrainingCollapsed(
                f"Dead prototypes: only {alive} of {self.prototypes} were nearest to any image in the last {patience} steps "
                f"(now step {step}).\nTry --loss.sinkhorn-iterations 3 or more, fewer prototypes (--model.num-prototypes), "
                "or a lower learning rate."
            )
