"""What adaptation returns: class probabilities before and after every step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ttaps.errors import TtapsError, UsageError


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """The result for one image, or for several (all tensors then have a leading dimension; iterate to get them one at a time)."""

    trace: Tensor
    """Class probabilities before adaptation and after every step, shape ([N,] steps + 1, classes)."""
    classes: tuple[str, ...]
    """Names of the classes."""

    @property
    def probabilities(self) -> Tensor:
        """Class probabilities after the last step."""
        return self.trace[..., -1, :]

    @property
    def before(self) -> Tensor:
        """Class probabilities before adaptation, of the model as it was trained."""
        return self.trace[..., 0, :]

    @property
    def adapted(self) -> bool:
        """Whether a single image was adapted, not left unchanged (by ``confidence_threshold``, or with no steps)."""
        trace = self._single()
        return bool((trace != trace[0]).any())

    @property
    def label(self) -> str:
        """Name of the most probable class of a single image."""
        if self._single()[-1].isnan().any():
            raise TtapsError("There is no prediction: the probabilities are NaN. Take smaller steps (lr).")
        return self.classes[int(self.probabilities.argmax())]

    @property
    def labels(self) -> list[str]:
        """Names of the most probable classes."""
        return [one.label for one in self]

    def to_dict(self) -> dict[str, Any]:
        """Return the result for a single image as plain values; the label is None where there is no prediction."""
        before, after = self._single()[0], self.probabilities
        return {
            "label": None if after.isnan().any() else self.label,
            "probability": float(after.max()),
            "label_before": self.classes[int(before.argmax())],
            "probability_before": float(before.max()),
            "adapted": self.adapted,
            "probabilities": dict(zip(self.classes, after.tolist(), strict=True)),
            "trace": self.trace.tolist(),
        }

    def __repr__(self) -> str:
        if self.trace.ndim != 2:
            return f"Result({len(self)} images, {self.trace.shape[-2] - 1} steps, {len(self.classes)} classes)"
        found = self.to_dict()
        before = f"before: {found['label_before']} {found['probability_before']:.1%}"
        return f"Result({found['label']} {found['probability']:.1%}, {before if found['adapted'] else 'not adapted'})"

    def __len__(self) -> int:
        return len(self.trace) if self.trace.ndim == 3 else 1

    def __getitem__(self, index: int | slice) -> Result:
        if self.trace.ndim != 3:
            raise UsageError("This result holds one image: there is nothing to choose from.")
        return Result(self.trace[index], self.classes)

    def __iter__(self) -> Iterator[Result]:
        traces = self.trace if self.trace.ndim == 3 else self.trace[None]
        return (Result(trace, self.classes) for trace in traces)

    def _single(self) -> Tensor:
        if self.trace.ndim != 2:
            raise UsageError("This result holds several images: use .labels, or iterate over it.")
        return self.trace
