"""How trainings went: validation accuracy and training cross-entropy over epochs, from the run folders' own records."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ttaps.config import from_dict, read_toml
from ttaps.errors import TtapsError
from ttaps.model.checkpoint import load_model
from ttaps.model.registry import folder_of
from ttaps.report.style import FAINT, SPARE_COLOURS, label_above, look, two_panels, write
from ttaps.training.config import TrainConfig
from ttaps.training.run_dir import METRICS

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Learning:
    """One run: (epoch, %) of validation images right, (epoch, nats) of the cross-entropy, and what it was told."""

    name: str
    config: TrainConfig
    validation: Points
    cross_entropy: Points
    sizes: list[tuple[float, int]]
    """From which epoch on it saw pictures of how many pixels."""
    epochs: float
    """How many it had."""


def read_learning(name: str, folder: Path) -> Learning:
    """Read what a run wrote down while it trained, and before it the run of the very model that it started from, if that has a record."""
    own = _read(name, folder)
    try:
        start = load_model(folder).info.get("init_from", {}) if own.config.init_from else {}
        before = folder_of(own.config.init_from) if start else None
        if before and load_model(before).fingerprint == start["fingerprint"]:
            return _joined(read_learning(name, before), own)
    except TtapsError:  # it is gone
        pass
    return own


def _joined(before: Learning, own: Learning) -> Learning:
    """Put a run behind the one that it started from; what it was told is its own."""
    done = before.epochs
    seen = [(epoch, pixels) for epoch, pixels in before.sizes if epoch < done]
    validation, cross_entropy = (
        first + [(done + epoch, value) for epoch, value in second]
        for first, second in ((before.validation, own.validation), (before.cross_entropy, own.cross_entropy))
    )
    sizes = [(done + epoch, pixels) for epoch, pixels in own.sizes]
    goes_on = sizes[0][1] == seen[-1][1]
    sizes = seen + sizes[1 if goes_on else 0 :]
    return Learning(own.name, own.config, validation, cross_entropy, sizes, done + own.epochs)


def _read(name: str, folder: Path) -> Learning:
    """Read one record. Epochs are known at every logged step, so those between are in proportion."""
    try:
        lines = (folder / METRICS).read_text("utf-8").splitlines()
        rows: list[dict[str, float]] = [json.loads(line) for line in lines if line.endswith("}")]
    except (OSError, ValueError) as error:
        raise TtapsError(
            f"{name} has no record of its training: {folder / METRICS} cannot be read ({error})."
        ) from error
    logged = [row for row in rows if "epoch" in row]
    if not logged:
        raise TtapsError(f"{name} has no record of its training yet: {folder / METRICS} has no step in it.")
    per_step = logged[-1]["epoch"] / logged[-1]["step"]
    seen = [(row["step"] * per_step, 100 * row["validation_accuracy"]) for row in rows if "validation_accuracy" in row]
    config = from_dict(TrainConfig, read_toml(folder / "train.toml"), where=str(folder))
    losses = [(row["epoch"], row["ce"]) for row in logged if "ce" in row]
    starts = [0.0, *(config.epochs * until for until in config.resolution_milestones[:-1])]
    pixels = list(zip(starts, config.resolutions or (config.model.image_size,), strict=True))
    return Learning(name, config, seen, losses, pixels, logged[-1]["epoch"])


def learning_figure(runs: Sequence[Learning]) -> Any:
    """Draw runs in one picture: accuracy above, loss below; where the resolution changes in all of them there is a line."""
    runs = since_parting(runs)
    words = "validation accuracy, %", "training cross-entropy", "epochs"
    figure, above, below = two_panels([run.name for run in runs], *words)
    for number, run in enumerate(runs):
        same = sum(other.config.objective == run.config.objective for other in runs[:number])
        style = look(run.config.objective, same)
        color = style.color if run.config.objective != "baseline" else SPARE_COLOURS[1]
        marked = {"color": color, "linestyle": style.dashes, "linewidth": 1.2}
        above.plot(*_columns(run.validation), marker=style.marker, markersize=2.2, label=run.name, **marked)
        below.plot(*_columns(smoothed(run.cross_entropy)), **marked)
    for epoch, pixels in sizes(runs):
        for axes in (above, below):
            axes.axvline(epoch, color=FAINT, linewidth=0.6, linestyle=":", zorder=0)
        write(
            above, epoch, 1.0, f" {pixels} px", transform=above.get_xaxis_transform(), fontsize=6, va="top", color=FAINT
        )
    label_above(above)
    return figure


def since_parting(runs: Sequence[Learning]) -> Sequence[Learning]:
    """Leave out what runs have in common, but for the end of it: as much as there is after they part."""
    side_by_side = zip(*(run.validation for run in runs), strict=False)
    common = [points[0][0] for points in itertools.takewhile(lambda points: len(set(points)) == 1, side_by_side)]
    if not common or all(len(run.validation) == len(common) for run in runs):  # nothing in common, or all
        return runs
    left = 2 * common[-1] - max(run.epochs for run in runs)
    return [_since(run, left) for run in runs] if left > common[0] else runs


def _since(run: Learning, left: float) -> Learning:
    """Return a run from an epoch on."""
    validation, cross_entropy = (
        [(epoch, value) for epoch, value in points if epoch >= left] for points in (run.validation, run.cross_entropy)
    )
    before = [pixels for epoch, pixels in run.sizes if epoch < left]
    sizes = [(left, before[-1])] * bool(before) + [(epoch, pixels) for epoch, pixels in run.sizes if epoch >= left]
    return replace(run, validation=validation, cross_entropy=cross_entropy, sizes=sizes)


def sizes(runs: Sequence[Learning]) -> list[tuple[float, int]]:
    """Return the epochs from which all runs see pictures of so many pixels; nothing where they differ, or never change."""
    each = {tuple(run.sizes) for run in runs}
    same = list(each.pop()) if len(each) == 1 else []
    return same if len(same) > 1 else []


def smoothed(points: Points, most: int = 8) -> Points:
    """Return means over some neighbours, for a batch's loss says little by itself; but leave some twenty points, or all there are."""
    window = max(1, min(most, len(points) // 20))
    parts = [points[at : at + window] for at in range(0, len(points), window)]
    return [(sum(x for x, _ in part) / len(part), sum(y for _, y in part) / len(part)) for part in parts]


def _columns(points: Points) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]
