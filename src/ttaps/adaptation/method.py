"""The base classes of all methods: a method is a frozen dataclass of its settings, derived from :class:`Method`.

To add a method: one file with a class that has a ``name`` and implements ``adapt_one``, its class in ``METHODS``, one test.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import ClassVar

from torch import Tensor, nn

from ttaps.adaptation.engine import CarriedState, map_images
from ttaps.config import check_min, check_probability
from ttaps.model import eval_mode

EPISODIC = "episodic"
"""The protocol of a method that forgets everything after each image."""

LEAST_VALUES = {
    **dict.fromkeys(("steps", "lr", "momentum", "weight_decay", "view_pool"), 0),
    **dict.fromkeys(("patience", "source_weight"), 0),
    **dict.fromkeys(("batch_size", "num_views", "num_pairs"), 1),
}
"""Minimum values of settings; a setting means the same in every method that has it."""


@dataclass(frozen=True)
class Method(ABC):
    """A method and its settings, which are the fields of the dataclass. Nothing here changes a network."""

    name: ClassVar[str]
    paper: ClassVar[str] = ""
    """Who published it, and when."""
    adapts: ClassVar[str] = "nothing"
    """What is adapted to an image."""
    trained_by: ClassVar[tuple[str, ...]] = ()
    """Training objectives that it works with; empty: any network."""

    def __post_init__(self) -> None:
        names = {field.name for field in fields(self)}
        check_min(self, **{name: least for name, least in LEAST_VALUES.items() if name in names})
        check_probability(self, *names & {"confidence_threshold"})

    @property
    def steps(self) -> int:
        """Gradient steps per image."""
        return 0

    @property
    def lr(self) -> float | None:
        """Step size, where there are steps."""
        return None

    @property
    def batch_size(self) -> int:
        """Images adapted together, which then depend on each other."""
        return 1

    @property
    def carries(self) -> str:
        """What is kept from image to image, in words; empty for nothing."""
        return ""

    @property
    def protocol(self) -> str:
        """What an image's result depends on besides the image and its key: ``episodic`` is nothing."""
        together = f"batches of {self.batch_size}" if self.batch_size > 1 else ""
        return ", ".join(filter(None, (self.carries, together))) or EPISODIC

    @property
    def sequential(self) -> bool:
        """Whether results depend on the order of the images, so that the images cannot be split over processes or reordered."""
        return self.protocol != EPISODIC

    def missing_requirement(self, network: nn.Module) -> str | None:
        """Return in words what the method needs and a network does not have, or None."""
        return None

    def check_settings(self, network: nn.Module) -> None:
        """Raise UsageError for settings that do not fit a network that has all the method needs."""
        return

    def adapt(
        self, network: nn.Module, images: Tensor, keys: Sequence[int], state: CarriedState | None = None
    ) -> Tensor:
        """Return class probabilities before and after every step, (N, steps + 1, classes), for images (N, 3, H, W).

        An image's row is a function of the network, the image and its key only, unless the method is ``sequential``; then
        ``state`` is what the images before these left behind, and it is updated. The network is not changed.
        """
        with eval_mode(network):
            if not self.carries and images.device.type != "cpu" and self.can_batch(network):
                return self.adapt_batched(network, images, keys)
            shared = (state or CarriedState()) if self.carries else None
            return map_images(partial(self.adapt_one, network), images, keys, self.batch_size, shared)

    @abstractmethod
    def adapt_one(self, network: nn.Module, image: Tensor, key: int, state: CarriedState) -> Tensor:
        """Adapt to one image (1, 3, H, W), or ``batch_size`` images together: the trace (1, steps + 1, classes)."""

    def can_batch(self, network: nn.Module) -> bool:
        """Tell whether :meth:`adapt_batched` can be used, for GPUs, which need large batches."""
        return False

    def adapt_batched(self, network: nn.Module, images: Tensor, keys: Sequence[int]) -> Tensor:
        """Adapt to several images at once, each independently."""
        raise NotImplementedError

    def draw_views(self, image: Tensor, key: int) -> Tensor | None:
        """Return the views (V, 3, H, W) that an adapted image (1, 3, H, W) sees at its first step, if there are any."""
        return None


@dataclass(frozen=True)
class GradientMethod(Method):
    """A method that takes gradient steps."""

    steps: int = 1
    """Gradient steps per image."""
    lr: float = 0.1
    """Step size."""
    online: bool = False
    """Keep the weights from image to image: results depend on the order."""

    @property
    def carries(self) -> str:
        """What is kept from image to image, in words; empty for nothing."""
        return "online" if self.online else ""
