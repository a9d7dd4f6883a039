"""From stored predictions to a choice: all numbers of steps, thresholds and rules of all candidates, by one objective."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ttaps.adaptation import Method
from ttaps.evaluation.plan import Item
from ttaps.tuning.space import SHIFTS, THRESHOLDS

GUARD = 0.1  # points that clean images may lose
NEAR = 0.05  # points that a choice may be below the best, if it costs less


@dataclass(frozen=True, eq=False)
class Seen:
    """The images used for a choice, and the source model's predictions."""

    items: Sequence[Item]
    labels: NDArray[np.int64]
    confidence: NDArray[np.float64]  # of the source model
    distance: NDArray[np.float64]  # to the nearest prototype
    quantiles: NDArray[np.float64]  # of that of clean images

    @cached_property
    def conditions(self) -> list[NDArray[Any]]:
        """The corruption and the severity of each image."""
        corruption, severity, _ = zip(*self.items, strict=True)
        return [np.array(corruption), np.array(severity)]

    @property
    def clean(self) -> NDArray[np.bool_]:
        """Which images are clean."""
        return self.conditions[1] == 0

    def taken(self, threshold: float, distance: float) -> NDArray[np.bool_]:
        """Tell which images adapt with these thresholds of confidence and shift."""
        return (self.confidence < threshold) & (self.distance >= distance)


@dataclass(frozen=True)
class Option:
    """Settings and their effect on the images seen."""

    method: Method
    candidate: int  # which it belongs to
    gain: float  # points of accuracy, the mean over corruptions and severities 0 to 5
    low: float  # that less a standard error over corruptions: what may be expected under others
    clean: float  # of clean images
    share: float  # of images that are adapted
    work: float  # grows with the cost

    @property
    def guarded(self) -> bool:
        """Whether clean images lose no more than allowed."""
        return self.clean >= -GUARD - 1e-9


def options(method: Method, candidate: int, predictions: NDArray[np.int64], seen: Seen) -> Iterator[Option]:
    """Yield a variant with every number of steps and every threshold; ``predictions`` are (images, steps + 1)."""
    right = predictions == seen.labels[:, None]
    change = 100 * (right.astype(float) - right[:, :1])
    for threshold, share in product(THRESHOLDS, SHIFTS if method.steps else SHIFTS[:1]):
        distance = round(float(np.quantile(seen.quantiles, share)), 4) if share else 0.0
        taken = seen.taken(threshold, distance)
        part, effect = float(taken.mean()), pd.DataFrame(change * taken[:, None])  # (images, steps + 1)
        of_conditions = effect.groupby(seen.conditions).mean()
        gains = of_conditions.groupby(level=0).mean()  # of corruptions: each severity, 0 included, counts equally
        low = gains.mean() - gains.sem().fillna(0.0)
        clean = effect[seen.clean].mean().fillna(0.0)
        for step in range(1, change.shape[1]):
            own: dict[str, Any] = {"confidence_threshold": threshold}
            own |= {"steps": step, "shift_threshold": distance} if method.steps else {}
            numbers = float(gains[step].mean()), float(low[step]), float(clean[step])
            yield Option(replace(method, **own), candidate, *numbers, part, part * (method.num_views or 1 + step))


def best(found: Sequence[Option]) -> Option:
    """Return the option with the highest ``low`` that does not harm clean images, or a cheaper one that is nearly as good.
    If all harm them, return the one that harms them least."""
    kept = [option for option in found if option.guarded]
    if not kept:
        return max(found, key=lambda option: (option.clean, option.low))
    top = max(option.low for option in kept)
    return min((one for one in kept if one.low >= top - NEAR - 1e-9), key=lambda one: (one.work, -one.low))


def ranked(found: Sequence[Option]) -> list[Option]:
    """Return the best option of every candidate, best first."""
    own: dict[int, list[Option]] = {}
    for option in found:
        own.setdefault(option.candidate, []).append(option)
    return sorted(map(best, own.values()), key=lambda one: (one.guarded, one.low), reverse=True)


def fit_temperature(probabilities: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    """Return the temperature T, in steps of 0.05, that minimizes the negative log-likelihood of softmax(ln p / T)."""
    if not len(labels):
        return 1.0
    logs = np.log(probabilities.clip(1e-30))
    grid = np.arange(0.3, 5.0001, 0.05)

    def loss(temperature: float) -> float:
        scaled = logs / temperature
        return float(np.mean(np.log(np.exp(scaled).sum(1)) - scaled[np.arange(len(labels)), labels]))

    return round(float(min(grid, key=loss)), 2)
