"""Lines with their uncertainty: accuracy against gradient steps (the paper's figure 3) and against severity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from ttaps.evaluate.statistics import AVERAGE, CONDITION, measure
from ttaps.report.columns import TableColumn
from ttaps.report.figures.style import FAINT, SeriesStyle, legend_above, styled, two_panels
from ttaps.report.load import RUN
from ttaps.report.tables import SEVERITY, Table, in_metric

MANY = 4  # lines: with more of them bands hide each other, and only the last point has its interval
Series = Mapping[str, tuple[SeriesStyle, pd.DataFrame]]
"""By label: how a line is drawn, and the statistics of its points by place."""


def step_changes(rows: pd.DataFrame, traces: pd.DataFrame) -> pd.DataFrame:
    """Return, by step from 0 on, accuracy before adaptation and after that step, averaged over corruptions and seeds."""
    key = [*RUN, "spec", "protocol", *CONDITION, "image"]
    own = traces.merge(rows[key])
    first = own.loc[own["step"] == 0, [*key, "correct"]].rename(columns={"correct": "correct_before"})
    pairs = own.rename(columns={"correct": "correct_after"}).merge(first, on=key)
    found = pd.DataFrame({step: measure(part) for step, part in pairs.groupby("step")}).T
    found.loc[0, ["change_low", "change_high"]] = 0.0  # nothing has changed before the first step
    return found


def steps_figure(series: Series) -> Any:
    """Draw accuracy over gradient steps, and its paired change since step 0."""
    most = max(int(numbers.index[-1]) for _, numbers in series.values())
    return lines_figure(series, "gradient steps", range(0, most + 1, max(1, most // 10)))


def severity_figure(table: Table) -> Any:
    """Draw accuracy at each severity of a table by severity, and its paired change; of very many columns those that adapt."""
    shown = table.columns if len(table.columns) <= 2 * MANY else table.adapting or table.columns
    series = {}
    for column in shown:
        numbers = table.numbers.loc[column.label].drop(index=AVERAGE)
        numbers = in_metric(numbers, table.metric)  # an error of an error is an accuracy
        numbers = numbers.set_axis([int(name.removeprefix(SEVERITY)) for name in numbers.index])
        series[column.label] = column.style, numbers if column.adapts else numbers.assign(change=float("nan"))
    places = sorted({place for _, numbers in series.values() for place in numbers.index})
    return lines_figure(series, "severity", places)


@styled
def lines_figure(series: Series, x_label: str, ticks: Sequence[int]) -> Any:
    """Draw accuracies above, and below them what adaptation changed, paired; bands are 95 % intervals.

    The change has the narrower band: most images keep their label, and only those that do not can make a difference.
    """
    figure, above, below = two_panels(list(series), "accuracy, %", "change, points", x_label)
    for number, (label, (style, numbers)) in enumerate(series.items()):
        beside = number / len(series) if len(series) > MANY else None
        _line(above, label, style, numbers[["after", "after_low", "after_high"]], beside)
        _line(below, label, style, numbers[["change", "change_low", "change_high"]].dropna(), beside)
    below.axhline(0, color=FAINT, linewidth=0.8, zorder=0)
    below.set_xticks(list(ticks))
    legend_above(figure, above)
    return figure


def by_prototypes(columns: Sequence[TableColumn]) -> list[list[TableColumn]]:
    """Return groups of columns that differ in K only, from small to large."""
    groups: dict[tuple[str, str, str], list[TableColumn]] = {}
    for column in columns:
        groups.setdefault((column.training, column.spec, column.protocol), []).append(column)
    several = [group for group in groups.values() if len({column.num_prototypes for column in group}) > 1]
    return [sorted(group, key=lambda column: column.num_prototypes) for group in several]


def _line(axes: Any, label: str, style: SeriesStyle, values: pd.DataFrame, beside: float | None) -> None:
    """Draw a line with its band; or, where ``beside`` is given, with the interval of its last point only, that far to the right."""
    if values.empty:
        return
    middle, low, high = (values[name].to_numpy() for name in values)
    last = values.index[-1]
    if beside is None:
        axes.fill_between(values.index, low, high, color=style.color, alpha=0.15, linewidth=0)
    else:
        x = last + max(last, 4) * (0.02 + 0.08 * beside)
        axes.plot([x, x], [low[-1], high[-1]], color=style.color, linewidth=1.1)
    axes.plot(values.index, middle, color=style.color, linestyle=style.dashes, marker=style.marker, label=label)
