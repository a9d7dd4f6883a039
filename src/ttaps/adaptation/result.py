"""What adaptation returns: class probabilities before and after every step."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ttaps.errors import TtapsError, UsageError

FEW = 20  # minimum number of images to tell a collapse from chance


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """The result for one image, or for several (all tensors then have a leading dimension; iterate to get them one at a time)."""

    trace: Tensor  # class probabilities before adaptation and after every step, ([N,] steps + 1, classes)
    classes: tuple[str, ...]  # their names
    find_shift: Callable[[], Tensor] | None = None  # see ``shift``, (N,)

    @property
    def probabilities(self) -> Tensor:
        """Class probabilities after the last step."""
        return self.trace[..., -1, :]

    @property
    def before(self) -> Tensor:
        """Class probabilities before adaptation, by the trained model."""
        return self.trace[..., 0, :]

    @property
    def shift(self) -> Tensor | None:
        """Distance of each image from the training images: the share of the model's clean validation images that are nearer to a
        prototype, from 0 to 1. Computed on demand, by one more prediction; None if ``ttaps tune`` has not measured the model."""
        return self.find_shift() if self.find_shift else None

    @property
    def adapted(self) -> bool:
        """Whether the model adapted to a single image, instead of skipping it (by a threshold, or with no steps)."""
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
        """Return the result for a single image as plain values; the label is None if there is no prediction."""
        before, after = self._single()[0], self.probabilities
        return {
            "label": None if after.isnan().any() else self.label,
            "probability": float(after.max()),
            "label_before": self.classes[int(before.argmax())],
            "probability_before": float(before.max()),
            "adapted": self.adapted,
            "probabilities": dict(zip(self.classes, after.tolist(), strict=True)),
            "trace": self.trace.tolist(),
        } | ({} if (shift := self.shift) is None else {"shift": float(shift)})

    def __repr__(self) -> str:
        if self.trace.ndim != 2:
            return f"Result({len(self)} images, {self.trace.shape[-2] - 1} steps, {len(self.classes)} classes)"
        found = self.to_dict()
        before = f"before: {found['label_before']} {found['probability_before']:.1%}"
        return f"Result({found['label']} {found['probability']:.1%}, {before if found['adapted'] else 'not adapted'})"

    def __len__(self) -> int:
        return len(self.trace) if self.trace.ndim == 3 else 1

    def __getitem__(self, index: int | slice) -> "Result":
        if self.trace.ndim != 3:
            raise UsageError("This result holds one image: there is nothing to choose from.")
        find = self.find_shift
        return Result(self.trace[index], self.classes, (lambda: find()[index]) if find else None)

    def __iter__(self) -> Iterator["Result"]:
        return (self[index] for index in range(len(self))) if self.trace.ndim == 3 else iter([self])

    def _single(self) -> Tensor:
        if self.trace.ndim != 2:
            raise UsageError("This result holds several images: use .labels, or iterate over it.")
        return self.trace


def checked(traces: Tensor, model: str) -> Tensor:
    """Return traces (N, steps + 1, classes), unless the model predicts NaN before adaptation, for which no method is to blame."""
    if traces[:, 0].isnan().any():
        remedy = "Its weights are NaN or too large: use another checkpoint."
        raise TtapsError(f"Model '{model}' predicts NaN before any adaptation.\n{remedy}")
    return traces


def collapse(before: Sequence[int], after: Sequence[int]) -> str:
    """Describe, without knowing true labels, a collapse to a few labels; empty if there is none, or for few images.
    Collapse: the effective number of labels, exp of the entropy of their shares, falls to less than half."""
    counts = [Counter(labels) for labels in (before, after)]
    sizes = [math.exp(-sum(n / len(before) * math.log(n / len(before)) for n in one.values())) for one in counts]
    if len(before) < FEW or sizes[1] >= sizes[0] / 2:
        return ""
    label, most = counts[1].most_common(1)[0]
    shares = f"{most / len(after):.0%} of {len(after)} images have the same label ({counts[0][label] / len(before):.0%} before)"
    return f"{shares}: adaptation has collapsed, unless they are of one class"
