"""The base classes of all methods: a method is a frozen dataclass of its settings, derived from :class:`Method`.
To add a method: one file with a class that has a ``name`` and implements ``adapt_one``, a line in ``ttaps/methods.py``, one test."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from itertools import chain
from typing import ClassVar

import torch
from torch import Tensor, nn

from ttaps.adaptation.engine import CarriedState, Loss, Weights, gradient_steps, map_images
from ttaps.config import check_min, check_probability
from ttaps.methods import METHOD_TABLE
from ttaps.model import eval_mode

EPISODIC = "episodic"  # the protocol of a method that is reset after each image
FROM_ZERO = (
    "steps", "lr", "momentum", "weight_decay", "view_pool", "patience", "source_weight", "num_neighbors", "kl_weight",
    "shift_threshold", "rho", "entropy_margin", "redundancy_margin", "recovery_entropy", "fisher_weight",
)  # fmt: skip
FROM_ONE = ("batch_size", "num_views", "num_pairs", "num_supports", "max_iterations", "fisher_images")
PROBABILITIES = {"confidence_threshold", "frozen_share", "ema_decay", "restore_p", "augment_threshold"}
LEAST_VALUES = dict.fromkeys(FROM_ZERO, 0) | dict.fromkeys(FROM_ONE, 1)
"""Minimum values of settings; a setting means the same in every method."""


@dataclass(frozen=True)
class Method(ABC):
    """A method and its settings, which are the fields of the dataclass. It never changes a network."""

    name: ClassVar[str]
    paper: ClassVar[str] = ""  # who published it, and when
    adapts: ClassVar[str] = "nothing"  # part of a network
    # settings of some methods, with the values that apply to all others
    steps, batch_size, num_views, online, continual, keep_momentum = 0, 1, 0, False, False, False
    confidence_threshold, shift_threshold = 1.0, 0.0

    def __post_init__(self) -> None:
        names = {field.name for field in fields(self)}
        if self.continual and not self.online:
            object.__setattr__(self, "online", True)  # one experiment has one spec, however it was typed
        check_min(self, **{name: least for name, least in LEAST_VALUES.items() if name in names})
        check_probability(self, *names & PROBABILITIES)

    @property
    def trained_by(self) -> tuple[str, ...]:
        """Training objectives that it works with; empty: any network."""
        return METHOD_TABLE[self.name].trained_by if self.name in METHOD_TABLE else ()

    @property
    def lr(self) -> float | None:
        """Step size, if there are steps."""
        return None

    @property
    def carries(self) -> str:
        """What is kept from image to image, in words; empty if nothing."""
        kept = {"continual": self.continual, "online": self.online, "momentum leak": self.keep_momentum}
        return next((name for name, is_kept in kept.items() if is_kept), "")

    @property
    def protocol(self) -> str:
        """What an image's result depends on besides the image and its key; ``episodic``: nothing."""
        together = f"batches of {self.batch_size}" if self.batch_size > 1 else ""
        return ", ".join(filter(None, (self.carries, together))) or EPISODIC

    @property
    def sequential(self) -> bool:
        """Whether results depend on the order of the images, so they cannot be reordered or split over processes."""
        return self.protocol != EPISODIC

    def missing_requirement(self, network: nn.Module) -> str | None:
        """Describe what the method needs and a network lacks, or return None."""
        return None

    def check_settings(self, network: nn.Module) -> None:
        """Raise UsageError for settings that do not fit a network the method supports."""
        return

    def adapt(
        self, network: nn.Module, images: Tensor, keys: Sequence[int], state: CarriedState | None = None
    ) -> Tensor:
        """Return class probabilities before and after every step, (N, steps + 1, classes), for images (N, 3, H, W).
        An image's row depends only on the network, the image and its key, unless the method is ``sequential``; then
        ``state`` is what earlier images left behind, and it is updated. The network is not changed.
        A single image may have a ``state`` with an observer, which is called at every step (on a CPU)."""
        with eval_mode(network):
            apart = not self.carries and images.device.type != "cpu"
            if apart and (traces := self.adapt_batched(network, images, keys)) is not None:
                return traces
            shared = (state or CarriedState()) if self.carries or (state and state.observer) else None
            return map_images(partial(self.adapt_one, network), images, keys, self.batch_size, shared)

    @abstractmethod
    def adapt_one(self, network: nn.Module, image: Tensor, key: int, state: CarriedState) -> Tensor:
        """Adapt to one image (1, 3, H, W), or ``batch_size`` images together: the trace (1, steps + 1, classes)."""

    def adapt_batched(self, network: nn.Module, images: Tensor, keys: Sequence[int]) -> Tensor | None:
        """Adapt to several images independently in one batch, for GPUs, which need large ones; None if not possible."""
        return None

    def draw_views(self, image: Tensor, key: int) -> Tensor | None:
        """Return the views (V, 3, H, W) of an image (1, 3, H, W) at its first step, if there are any."""
        return None


@dataclass(frozen=True)
class GradientMethod(Method):
    """A method that takes gradient steps."""

    steps: int = 1
    """Gradient steps per image, or per batch."""
    lr: float = 0.1
    """Step size."""
    online: bool = False
    """Keep the weights from image to image: results depend on the order."""
    continual: bool = False
    """Keep them also across corruptions: ``online`` over the whole stream, never reset."""

    def run_steps(self, loss: Loss, predict: Callable[..., Tensor], source: Weights, state: CarriedState) -> Tensor:
        """Take the steps, and return the probabilities of the logits ``predict(weights)`` before and after each."""
        steps = gradient_steps(loss, source, self.steps, self.lr, state)
        return torch.stack([state.tell(predict(weights).softmax(-1)) for weights in chain([source], steps)], dim=1)
