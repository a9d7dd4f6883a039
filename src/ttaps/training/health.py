"""Notice a run that is going nowhere: SwAV stuck at ln K, dead prototypes, a loss that explodes or is not a number."""

from __future__ import annotations

import math
from collections import deque

from torch import Tensor

from ttaps.errors import TtapsError

WINDOW = 300  # steps that must look bad; a healthy start leaves ln K within 200 (docs/log.md)
TOUCH = 0.004  # how near ln K counts as stuck, in nats; a collapsed run stays within 0.001


class Trouble(TtapsError):
    """A training run that cannot succeed any more, in plain words, with what to try."""


class Health:
    """Watches the parts of the loss step by step; ``look`` raises :class:`Trouble`."""

    def __init__(self, prototypes: int, classes: int, window: int = WINDOW) -> None:
        self.prototypes = prototypes
        self.classes = classes
        self.window = window
        self.losses: deque[float] = deque(maxlen=window)
        self.swav: deque[float] = deque(maxlen=window)
        self.last_used: dict[int, int] = {}
        self.joint_steps = 0

    def look(self, step: int, parts: dict[str, Tensor], warm: bool) -> None:
        """Take in one step's parts; ``warm`` says that learning rate and joint loss are up, so that standing still means something."""
        loss = parts["loss"].item()
        self._diverged(step, loss)
        if "swav" in parts and warm:
            self.joint_steps += 1
            self._collapsed(step, parts["swav"].item())
            self._dead(step, parts["used"])

    def _diverged(self, step: int, loss: float) -> None:
        remedy = "Try a lower learning rate or a longer warm-up."
        if not math.isfinite(loss):
            raise Trouble(f"The loss is {loss} at step {step}: training has diverged.\n{remedy}")
        usual = sorted(self.losses)[len(self.losses) // 2] if self.losses else loss
        self.losses.append(loss)
        chance = math.log(self.prototypes) * 2 + math.log(self.classes)  # the loss of a network that knows nothing
        if min(list(self.losses)[-10:]) > 10 * max(usual, chance):
            raise Trouble(f"The loss exploded to {loss:.3g} at step {step} (it was about {usual:.3g}).\n{remedy}")

    def _collapsed(self, step: int, swav: float) -> None:
        """With all z alike, codes are uniform and the loss of each direction sits at exactly ln K."""
        self.swav.append(swav)
        stuck = math.log(self.prototypes)
        if len(self.swav) == self.window and max(abs(value - stuck) for value in self.swav) < TOUCH:
            raise Trouble(
                f"Collapsed: the SwAV loss has sat at ln K = {stuck:.3f} for {self.window} steps (now step {step}), because all images "
                f"look the same to the prototypes.\nTry --loss.joint-from 1 (cross-entropy first), --model.zero-init, "
                f"--model.classifier-scale 10, --loss.epsilon 0.03 or --optimiser.name muon."
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
            raise Trouble(
                f"Dead prototypes: only {alive} of {self.prototypes} were nearest to any image in the last {patience} steps "
                f"(now step {step}).\nTry fewer prototypes (--model.prototypes), a larger --loss.epsilon, or a lower learning rate."
            )
