"""What adaptation returns: class probabilities before and after every step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from ttaps.errors import TtapsError, UsageError


@dataclass(frozen=True, eq=False)
class Result:
    """The answer for one image, or for several (all tensors then have a leading dimension; iterate to get them one by one)."""

    trace: Tensor
    """Class probabilities before adaptation and after every step, shape ([N,] steps + 1, classes)."""
    classes: tuple[str, ...]
    """Names of the classes."""

    @property
    def probabilities(self) -> Tensor:
        """Class probabilities after the last step."""
        return self.trace[..., -1, :]

    @property
    def source(self) -> Tensor:
        """Class probabilities of the model as it was trained."""
        return self.trace[..., 0, :]

    @property
    def label(self) -> str:
        """Name of the most probable class of a single image."""
        if self.trace.ndim != 2:
            raise UsageError("This result holds several images: use .labels, or iterate over it.")
        if self.probabilities.isnan().any():
            raise TtapsError("There is no prediction: the probabilities are not numbers. Take smaller steps (lr).")
        return self.classes[int(self.probabilities.argmax())]

    @property
    def labels(self) -> list[str]:
        """Names of the most probable classes."""
        return [one.label for one in self]

    def __len__(self) -> int:
        return len(self.trace) if self.trace.ndim == 3 else 1

    def __getitem__(self, index: int | slice) -> Result:
        if self.trace.ndim != 3:
            raise UsageError("This result holds one image: there is nothing to choose from.")
        return Result(self.trace[index], self.classes)

    def __iter__(self) -> Iterator[Result]:
        traces = self.trace if self.trace.ndim == 3 else self.trace[None]
        return (Result(trace, self.classes) for trace in traces)
