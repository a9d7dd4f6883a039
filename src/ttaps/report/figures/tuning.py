"""The figure of ``ttaps tune``: effect of each value of each setting."""

from typing import Any

import numpy as np
import pandas as pd

from ttaps.report.figures.style import FAINT, INK, METHOD_COLORS, new_figure, styled


@styled()
def tuning_figure(effects: pd.DataFrame) -> Any:
    """Draw, for every value of every setting, the best gain of each candidate that had it as a dot, and their mean as a line."""
    groups = list(effects.groupby(["method", "setting", "value"], sort=True))
    figure = new_figure(0.14 * len(groups) + 0.7, width=5.0)
    axes = figure.subplots()
    for place, ((method, _, _), own) in enumerate(groups):
        axes.scatter(own["gain"], np.full(len(own), place), s=5, color=METHOD_COLORS[method], alpha=0.5, linewidths=0)
        axes.vlines(own["gain"].mean(), place - 0.4, place + 0.4, color=INK, linewidth=1)
    for place in [place for place in range(1, len(groups)) if groups[place][0][:2] != groups[place - 1][0][:2]]:
        axes.axhline(place - 0.5, color=FAINT, linewidth=0.3)
    axes.axvline(0, color=FAINT, linewidth=0.8, zorder=0)
    axes.set_yticks(range(len(groups)), [f"{method}: {setting} = {value}" for (method, setting, value), _ in groups])
    axes.tick_params(axis="y", labelsize=5)
    axes.set(ylim=(len(groups) - 0.5, -0.5), xlabel="gain over the source model, points (mean over severities 0 to 5)")
    axes.grid(axis="x")
    return figure
