"""Notice a run that is going nowhere: SwAV stuck at ln K, dead prototypes, a loss that explodes or is not a number."""

from __future__ import annotations

import math
from collections import deque

from torch import Tensor

from ttaps.errors import TtapsError

WINDOW = 300  # steps that must look bad; a healthy start leaves ln K within 200 (docs/log.md)
TOUCH = 0.001  # nats from ln K that count as stuck; collapsed runs stay within 0.0001, lively ones pass by in 80 steps


class TrainingCollapsed(TtapsError):
    """A training run that cannot succeed any more, in plain words, with what to try."""


class Health:
    """Watches the parts of the loss step by step; ``look`` raises :class:`TrainingCollapsed`."""

    def __init__(self, prototypes: int, classes: int, window: int = WINDOW) -> None:
        self.prototypes = prototypes
        self.classes = classes
        self.window = window
        self.losses: deque[float] = deque(maxlen=10)
        self.swav: deque[float] = deque(maxlen=window)
        self.last_used: dict[int, int] = {}
        self.joint_steps = 0

    def look(self, step: int, parts: dict[str, Tensor], warm: bool) -> None:
        """Take in one step's parts; ``warm`` says that learning rate and joint loss are up, so that standing still means something."""
        self._diverged(step, parts["loss"].item(), joint="swav" in parts)
        if "swav" in parts and warm:
            self.joint_steps += 1
            self._collapsed(step, parts["swav"].item())
            self._dead(step, parts["used"])

    def _diverged(self, step: int, loss: float, joint: bool) -> None:
        remedy = "Try a lower learning rate (--optimizer.lr) or a longer warm-up (--optimizer.warmup-epochs)."
        if not math.isfinite(loss):
            raise TrainingCollapsed(f"The loss is {loss} at step {step}: training has diverged.\n{remedy}")
        self.losses.append(loss)
        chance = math.log(self.classes) + (2 * math.log(self.prototypes) if joint else 0)
        if len(self.losses) == 10 and min(self.losses) > 10 * chance:
            raise TrainingCollapsed(
                f"The loss exploded to {loss:.3g} at step {step}; knowing nothing would cost {chance:.3g}.\n{remedy}"
            )

    def _collapsed(self, step: int, swav: float) -> None:
        """With all z alike, codes are uniform and the loss of each direction sits at exactly ln K."""
        self.swav.append(swav)
        stuck = math.log(self.prototypes)
        near = sum(abs(value - stuck) < TOUCH for value in self.swav)
        if near > 0.9 * self.window:
            raise TrainingCollapsed(
                f"Collapsed: the SwAV loss has sat at ln K = {stuck:.3f} for {near} steps (now step {step}), because all images "
                f"look the same to the prototypes.\nTry --loss.joint-start-epoch 1 (cross-entropy first), --model.zero-init-residual, "
                f"--model.classifier-scale 10, --loss.epsilon 0.03 or --optimizer.name muon."
            )

    def _dead(self, step: int, used: Tensor) -> None:
        """Tell when hardly any prototype was nearest to any image for a long time."""
        for prototype in used.unique().tolist():
            self.last_used[prototype] = self.joint_steps
        patience = self.window + 10 * math.ceil(self.prototypes / len(used))
        if self.joint_steps < patience:
            return
        alive = sum(self.joint_steps - last < patience for last in self.last_used.values())
        if alive < 0.1 * self.prototypes:
            raise TrainingCollapsed(
                f"Dead prototypes: only {alive} of {self.prototypes} were nearest to any image in the last {patience} steps "
                f"(now step {step}).\nTry --loss.sinkhorn-iterations 3 or more, fewer prototypes (--model.num-prototypes), "
                "or a lower learning rate."
            )
