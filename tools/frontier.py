"""What adaptation gains against what it costs: every method and preset of every model, from stored rows, as one figure and one table.

    python tools/frontier.py docs/figures/frontier.png docs/results/frontier.csv results/page/adapted results/page/hundred ...

The gain is the change in accuracy with its 95 % interval; the cost is the median time per image as a multiple of that of a plain
prediction (``source``) by the same model in the same folders. A line is on the frontier if no cheaper one of its model gains as much.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pandas as pd

from ttaps.evaluation.frame import load_rows
from ttaps.evaluation.statistics import measure
from ttaps.files import write_text
from ttaps.report.figures.style import METHOD_COLORS, new_figure, save_figure, styled

MARKERS = "osD^vPX*"
NUMBERS = ["n", "before", "after", "change", "change_low", "change_high", "cost"]


def frontier_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Return gain, cost and ``best`` (on the frontier) by model, spec and protocol; a model without rows of ``source`` is left out."""
    lines = []
    for model, own in rows.groupby("model"):
        plain = own.loc[own["spec"] == "source", "seconds"].median()
        for (spec, protocol), part in own.groupby(["spec", "protocol"]):
            cost = float(part["seconds"].median() / plain)
            lines.append({"model": model, "spec": spec, "protocol": protocol, **measure(part), "cost": cost})
    found = (
        pd.DataFrame(lines)
        .dropna(subset="cost")
        .sort_values(["model", "cost"])[["model", "spec", "protocol", *NUMBERS]]
    )
    reached = found.groupby("model")["change"].cummax().groupby(found["model"]).shift()
    return found.assign(best=~(found["change"] <= reached)).reset_index(drop=True)


@styled()
def frontier_figure(table: pd.DataFrame) -> Any:
    """Draw gain against cost; a color for each method, a marker for each model, a line through each model's frontier."""
    figure = new_figure(3.2, 6.4)
    axes = figure.subplots()
    axes.axhline(0, color="#999999", linewidth=0.8, zorder=0)
    for marker, (model, own) in zip(
        MARKERS * len(table), table[table["spec"] != "source"].groupby("model"), strict=False
    ):
        best = own[own["best"]]
        axes.plot(best["cost"], best["change"], color="#cccccc", linewidth=1, zorder=0)
        for line in own.itertuples():
            color = METHOD_COLORS.get(str(line.spec).split(":")[0].split("[")[0], "#444444")
            axes.vlines(line.cost, line.change_low, line.change_high, color=color, linewidth=0.8, alpha=0.5)
            axes.plot([line.cost], [line.change], marker, markersize=4, color=color)
            if line.best or len(own) < len(MARKERS):
                axes.annotate(str(line.spec), (line.cost, line.change), (4, 3), textcoords="offset points", fontsize=5)
        axes.plot([], [], marker, color="#444444", markersize=4, label=model)
    axes.set(xscale="log", xlabel="time per image / plain prediction", ylabel="change in accuracy, points")
    ticks = [tick for tick in (1, 2, 5, 10, 20, 50, 100, 200, 500) if tick <= table["cost"].max()]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.legend(fontsize=6)
    axes.grid()
    return figure


def main(figure: str, csv: str, *folders: str) -> None:
    """Write figure and table."""
    table = frontier_table(load_rows([Path(folder) for folder in folders]))
    save_figure(frontier_figure(table), Path(figure))
    write_text(Path(csv), table.round(2).to_csv(index=False))
    print(table.round(2).to_string(index=False))


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(
            "Name a figure, a CSV file and folders of results: python tools/frontier.py FIGURE.png TABLE.csv results/..."
        )
    main(*sys.argv[1:])
