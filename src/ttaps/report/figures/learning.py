"""Learning curves: validation accuracy and training cross-entropy over epochs, from the records in run folders."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ttaps.config import read_toml
from ttaps.errors import TtapsError
from ttaps.report.figures.style import FAINT, SPARE_COLORS, legend_above, series_style, styled, two_panels

METRICS, SETTINGS, MODEL = "metrics.jsonl", "train.toml", "config.json"
Points = list[tuple[float, float]]
FindStart = Callable[[str, str], Path | None]
"""Return the folder of the model with this name and fingerprint, or None where it is gone."""


@dataclass(frozen=True)
class LearningCurve:
    """One run: (epoch, %) of validation images right, and (epoch, nats) of the cross-entropy."""

    name: str
    objective: str
    validation: Points
    cross_entropy: Points
    resolutions: list[tuple[float, int]]
    """From which epoch on it was given images of how many pixels."""
    epochs: float
    """How many it had."""


def read_curve(name: str, folder: Path, find_start: FindStart = lambda name, fingerprint: None) -> LearningCurve:
    """Read the record of a run, and before it that of the model it started from, where ``find_start`` finds the very same one."""
    own, settings = _read(name, folder)
    if not settings.get("init_from") or not (folder / MODEL).exists():
        return own
    start = json.loads((folder / MODEL).read_text("utf-8")).get("init_from", {})
    try:
        before = find_start(settings["init_from"], start["fingerprint"]) if start else None
        return _joined(read_curve(name, before, find_start), own) if before else own
    except TtapsError:  # it is gone, or has no record
        return own


def _joined(before: LearningCurve, own: LearningCurve) -> LearningCurve:
    """Return a run behind the one that it started from."""
    done = before.epochs
    seen = [(epoch, pixels) for epoch, pixels in before.resolutions if epoch < done]
    later = [(done + epoch, pixels) for epoch, pixels in own.resolutions]
    return replace(
        own,
        validation=before.validation + [(done + epoch, value) for epoch, value in own.validation],
        cross_entropy=before.cross_entropy + [(done + epoch, value) for epoch, value in own.cross_entropy],
        resolutions=seen + later[later[0][1] == seen[-1][1] :],
        epochs=done + own.epochs,
    )


def _read(name: str, folder: Path) -> tuple[LearningCurve, dict[str, Any]]:
    """Read one record and its settings. Epochs are known at every logged step; those between are in proportion."""
    try:
        lines = (folder / METRICS).read_text("utf-8").splitlines()
        rows: list[dict[str, float]] = [json.loads(line) for line in lines if line.endswith("}")]
    except (OSError, ValueError) as error:
        raise TtapsError(f"{name} has no record of its training: {folder / METRICS} cannot be read ({error}).") from error
    logged = [row for row in rows if "epoch" in row]
    if not logged:
        raise TtapsError(f"{name} has no record of its training yet: {folder / METRICS} has no step in it.")
    settings = read_toml(folder / SETTINGS)
    pixels = settings.get("resolutions") or [settings["model"]["image_size"]]
    starts = [0.0, *(settings["epochs"] * until for until in settings.get("resolution_milestones", [1.0])[:-1])]
    epochs = logged[-1]["epoch"]
    per_step = epochs / logged[-1]["step"]
    curve = LearningCurve(
        name,
        settings["objective"],
        [(row["step"] * per_step, 100 * row["validation_accuracy"]) for row in rows if "validation_accuracy" in row],
        [(row["epoch"], row["ce"]) for row in logged if "ce" in row],
        list(zip(starts, pixels, strict=True)),
        epochs,
    )
    return curve, settings


@styled
def learning_figure(curves: Sequence[LearningCurve]) -> Any:
    """Draw runs in one figure: accuracy above, loss below, and a line where the resolution changes in all of them."""
    curves = since_parting(curves)
    words = "validation accuracy, %", "training cross-entropy", "epochs"
    figure, above, below = two_panels([curve.name for curve in curves], *words)
    for number, curve in enumerate(curves):
        same = sum(other.objective == curve.objective for other in curves[:number])
        style = series_style(curve.objective, same)
        color = style.color if curve.objective != "baseline" else SPARE_COLORS[1]
        line = {"color": color, "linestyle": style.dashes, "linewidth": 1.2}
        above.plot(*_columns(curve.validation), marker=style.marker, markersize=2.2, label=curve.name, **line)
        below.plot(*_columns(smoothed(curve.cross_entropy)), **line)
    for epoch, pixels in common_resolutions(curves):
        for axes in (above, below):
            axes.axvline(epoch, color=FAINT, linewidth=0.6, linestyle=":", zorder=0)
        text = {"transform": above.get_xaxis_transform(), "fontsize": 6, "va": "top", "color": FAINT}
        above.text(epoch, 1.0, f" {pixels} px", **text)
    legend_above(figure, above)
    return figure


def since_parting(curves: Sequence[LearningCurve]) -> Sequence[LearningCurve]:
    """Leave out what runs have in common, but for the end of it: as much as there is after they part."""
    together = zip(*(curve.validation for curve in curves), strict=False)
    common = [points[0][0] for points in itertools.takewhile(lambda points: len(set(points)) == 1, together)]
    if not common or all(len(curve.validation) == len(common) for curve in curves):  # nothing in common, or all
        return curves
    first = 2 * common[-1] - max(curve.epochs for curve in curves)
    return [_since(curve, first) for curve in curves] if first > common[0] else curves


def _since(curve: LearningCurve, first: float) -> LearningCurve:
    """Return a run from an epoch on."""
    before = [pixels for epoch, pixels in curve.resolutions if epoch < first]
    after = [(epoch, pixels) for epoch, pixels in curve.resolutions if epoch >= first]
    return replace(
        curve,
        validation=[(epoch, value) for epoch, value in curve.validation if epoch >= first],
        cross_entropy=[(epoch, value) for epoch, value in curve.cross_entropy if epoch >= first],
        resolutions=[(first, before[-1]), *after] if before else after,
    )


def common_resolutions(curves: Sequence[LearningCurve]) -> list[tuple[float, int]]:
    """Return the epochs from which all runs are given images of so many pixels; nothing where they differ, or never change."""
    each = {tuple(curve.resolutions) for curve in curves}
    same = list(each.pop()) if len(each) == 1 else []
    return same if len(same) > 1 else []


def smoothed(points: Points, most: int = 8) -> Points:
    """Return means over neighbors, for a batch's loss says little by itself; but leave some twenty points, or all there are."""
    window = max(1, min(most, len(points) // 20))
    parts = [points[at : at + window] for at in range(0, len(points), window)]
    return [(sum(x for x, _ in part) / len(part), sum(y for _, y in part) / len(part)) for part in parts]


def _columns(points: Points) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]
