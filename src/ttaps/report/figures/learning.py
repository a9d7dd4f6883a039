"""Learning curves: validation accuracy and training cross-entropy over epochs, from run folders."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import pandas as pd

from ttaps.config import read_toml
from ttaps.errors import TtapsError
from ttaps.report.figures.style import FAINT, SPARE_COLORS, legend_above, series_style, styled, two_panels

METRICS, SETTINGS, MODEL = "metrics.jsonl", "train.toml", "config.json"
ALWAYS = ("step", "epoch", "validation_accuracy", "ce")  # columns of metrics, also where a run has none of them yet
FindModel = Callable[[str, str], Path | None]  # by name and fingerprint; None where it is gone


@dataclass(frozen=True, eq=False)
class LearningCurve:
    """The learning curve of one run."""

    name: str
    objective: str
    points: pd.DataFrame
    """Rows with an ``epoch`` and one of: ``validation`` (% right), ``cross_entropy`` (nats), ``pixels`` (of images from then on)."""
    epochs: float

    def get(self, what: str) -> pd.DataFrame:
        """Return the points of one kind, by epoch and value."""
        return self.points.dropna(subset=[what])[["epoch", what]].set_axis(["epoch", "value"], axis=1)

    def resolutions(self) -> list[tuple[float, int]]:
        """Return the epochs at which the resolution changes."""
        pixels = self.get("pixels").drop_duplicates("epoch", keep="last")
        changes = pixels[pixels["value"] != pixels["value"].shift()]
        return [(epoch, int(value)) for epoch, value in changes.to_numpy()]


def read_curve(name: str, folder: Path, find_start: FindModel = lambda name, fingerprint: None) -> LearningCurve:
    """Read the metrics of a run, preceded by those of the model it started from, if ``find_start`` finds that exact one."""
    own, settings = _read(name, folder)
    model = folder / MODEL
    start = json.loads(model.read_text("utf-8")).get("init_from") if model.exists() else None
    try:
        found = find_start(settings["init_from"], start["fingerprint"]) if start and settings.get("init_from") else None
        before = read_curve(name, found, find_start) if found else None
    except TtapsError:  # it is gone, or has no record
        before = None
    if before is None:
        return own
    never = before.points["pixels"].notna() & (before.points["epoch"] >= before.epochs)  # it was stopped earlier
    later = own.points.assign(epoch=own.points["epoch"] + before.epochs)
    return replace(own, points=pd.concat([before.points[~never], later]), epochs=before.epochs + own.epochs)


def read_metrics(name: str, folder: Path) -> tuple[pd.DataFrame, float]:
    """Read what a run has logged, and the last epoch. Epochs are known at every logged step; those between are in proportion."""
    missing, path = f"{name} has no training metrics", folder / METRICS
    try:
        rows = pd.DataFrame([json.loads(line) for line in path.read_text("utf-8").splitlines() if line.endswith("}")])
        rows = rows.reindex(columns=[*dict.fromkeys([*ALWAYS, *rows])]).astype(float)
    except (OSError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise TtapsError(f"{missing}: {path} cannot be read ({error}).") from error
    logged = rows.dropna(subset=["epoch"])
    if logged.empty:
        raise TtapsError(
            f"{missing} yet: {path} has no step with its epoch, which runs log every 25 steps and at the end."
        )
    step, epochs = logged[["step", "epoch"]].iloc[-1]
    return rows.assign(epoch=rows["epoch"].fillna(rows["step"] * (epochs / step))), float(epochs)


def _read(name: str, folder: Path) -> tuple[LearningCurve, dict[str, Any]]:
    """Read one record and its settings."""
    rows, epochs = read_metrics(name, folder)
    settings = read_toml(folder / SETTINGS)
    schedule = settings.get("schedule", {})
    pixels = schedule.get("resolutions") or [settings["model"]["image_size"]]
    starts = [0.0, *(settings["epochs"] * until for until in schedule.get("resolution_milestones", [])[:-1])]
    points = pd.DataFrame({"epoch": rows["epoch"], "cross_entropy": rows["ce"]})
    points["validation"] = 100 * rows["validation_accuracy"]
    points = pd.concat([pd.DataFrame({"epoch": starts, "pixels": pixels}), points])
    return LearningCurve(name, settings["objective"], points, epochs), settings


@styled()
def learning_figure(curves: Sequence[LearningCurve]) -> Any:
    """Draw runs in one figure: accuracy above, loss below, and a line where the resolution changes in all of them."""
    curves = since_parting(curves)
    words = "validation accuracy, %", "training cross-entropy", "epochs"
    figure, above, below = two_panels([curve.name for curve in curves], *words)
    for number, curve in enumerate(curves):
        style = series_style(curve.objective, sum(other.objective == curve.objective for other in curves[:number]))
        color = style.color if curve.objective != "baseline" else SPARE_COLORS[1]
        line = {"color": color, "linestyle": style.dashes, "linewidth": 1.2}
        validation, loss = curve.get("validation"), smoothed(curve.get("cross_entropy"))
        above.plot(validation["epoch"], validation["value"], marker=style.marker, label=curve.name, **line)
        below.plot(loss["epoch"], loss["value"], **line)
    each = {tuple(curve.resolutions()) for curve in curves}
    for epoch, pixels in each.pop() if len(each) == 1 and max(map(len, each)) > 1 else ():
        for axes in (above, below):
            axes.axvline(epoch, color=FAINT, linewidth=0.6, linestyle=":", zorder=0)
        text = {"transform": above.get_xaxis_transform(), "fontsize": 6, "va": "top", "color": FAINT}
        above.text(epoch, 1.0, f" {pixels} px", **text)
    legend_above(figure, above)
    return figure


def since_parting(curves: Sequence[LearningCurve]) -> Sequence[LearningCurve]:
    """Leave out what runs have in common, except its end (as long as what follows the fork) and the resolution there."""
    each = [list(curve.get("validation").itertuples(index=False, name=None)) for curve in curves]
    common = list(takewhile(lambda points: len(set(points)) == 1, zip(*each, strict=False)))
    if not common or all(len(points) == len(common) for points in each):  # nothing in common, or all
        return curves
    first = 2 * common[-1][0][0] - max(curve.epochs for curve in curves)
    if first <= common[0][0][0]:
        return curves
    cut = []
    for curve in curves:
        late = curve.points["epoch"].clip(lower=first).where(curve.points["pixels"].notna(), curve.points["epoch"])
        cut.append(replace(curve, points=curve.points.assign(epoch=late)[late >= first]))
    return cut


def smoothed(points: pd.DataFrame, most: int = 8) -> pd.DataFrame:
    """Return means over neighbors, since a single batch's loss says little; keep about twenty points, or all there are."""
    window = max(1, min(most, len(points) // 20))
    return points.groupby([place // window for place in range(len(points))]).mean()
