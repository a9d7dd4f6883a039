"""Which experiments are one column of a table, and what it is called. Experiments that differ only in their seeds are one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from ttaps.report.figures.style import PLAIN, SeriesStyle, series_style
from ttaps.report.load import RUN

PAPER_COLUMNS = {
    ("ttt", "ttt"): "TTT",
    ("mt3", "mt3"): "MT3",
    ("baseline", "memo"): "MEMO",
    ("baseline", "source"): "Baseline",
    ("jt", "source"): "JT",
    ("jt", "ttaps"): "JT TTA",
    ("jt+ent", "source"): "JT+ENT",
    ("jt+ent", "ttaps"): "TTAPS",
}
"""The paper's name of the column that a model's objective and a method make, in the paper's order."""
Styles = dict[tuple[str, str], SeriesStyle]


@dataclass(frozen=True, eq=False)
class TableColumn:
    """One column of a table: a model and a method with its settings, over all seeds."""

    spec: str
    """The method with its settings, as ``--methods`` takes it."""
    method: str
    protocol: str
    """What is kept from image to image; ``episodic`` is nothing."""
    objective: str
    """What the models were trained with; empty where that is not known."""
    num_prototypes: int
    """K; 0 where it is not known."""
    training: str
    """What its models have in common, besides K: how they were trained and what their network is."""
    rows: pd.DataFrame
    """Its images, of all seeds."""
    label: str
    """The spec, with the model and K where a table has several: ``ttaps:tuned (jt-cifar10)``."""
    style: SeriesStyle = PLAIN

    def at(self, severity: int | None) -> pd.DataFrame:
        """Return its images at one severity or all."""
        return self.rows if severity is None else self.rows[self.rows["severity"] == severity]

    @property
    def adapts(self) -> bool:
        """Whether it has a before and an after."""
        return self.method != "source"

    @property
    def paper_name(self) -> str:
        """The paper's name of such a column; empty where it has none."""
        return PAPER_COLUMNS.get((self.objective, self.method), "")


def make_columns(rows: pd.DataFrame, models: Mapping[str, dict[str, Any]], styles: Styles) -> list[TableColumn]:
    """Group the rows of one data set into columns with distinct labels, in the paper's order.

    ``models`` is what is known of models, by fingerprint. ``styles`` are those of the report's columns so far; new ones are added, so
    that a label looks the same in every figure.
    """
    known = _known_models(rows, models)
    groups = rows.groupby([rows["spec"], rows["fingerprint"].map(known["group"])], sort=False)
    columns = sorted((_column(group, known) for _, group in groups), key=_place)
    return [replace(column, style=_style(column, styles)) for column in columns]


def _known_models(rows: pd.DataFrame, models: Mapping[str, dict[str, Any]]) -> pd.DataFrame:
    """Return each model's training, its group and the group's name, by fingerprint; the models of a group are seeds of one training.

    Two models with the same seed are two trainings, each a group of its own.
    """
    known = rows.drop_duplicates("fingerprint").set_index("fingerprint", drop=False)
    known["training"] = [_training(name, models.get(name, {})) for name in known.index]
    known["group"] = known["training"] + known["num_prototypes"].astype(str)
    by_group = known.groupby("group")
    twice = by_group["training_seed"].transform("nunique") < by_group["model"].transform("size")
    known["group"] = known["group"].where(~twice, known["fingerprint"])
    groups = known.groupby("group", sort=False)
    first = groups.first()
    unnamed = (groups["model"].nunique() > 1) & (first["objective"] != "")
    names = first["model"].where(~unnamed, first["objective"])
    for extra in (
        first["objective"],
        "K=" + first["num_prototypes"].astype(str),
        groups["fingerprint"].first(),
    ):
        names = _told_apart(names, extra)
    known["name"] = known["group"].map(names) if len(names) > 1 else ""
    return known


def _training(fingerprint: str, facts: Mapping[str, Any]) -> str:
    """Return what is known of a model besides its seed and K; one of which nothing is known is like no other."""
    if not facts:
        return fingerprint
    network = {name: value for name, value in facts.get("model", {}).items() if name != "num_prototypes"}
    return json.dumps({**facts, "seed": None, "model": network}, sort_keys=True)


def _told_apart(names: pd.Series[str], extra: pd.Series[str]) -> pd.Series[str]:
    """Add something to names that are the same, where it differs between them."""
    differs = extra.groupby(names).transform("nunique") > 1
    return names.where(~differs | (extra == ""), names + ", " + extra)


def _column(rows: pd.DataFrame, known: pd.DataFrame) -> TableColumn:
    first = rows.iloc[0]
    model = known.loc[first["fingerprint"]]
    if first["method"] == "source":
        # Without adaptation a seed of views changes nothing: keep the one with the most images.
        longest = rows.groupby(RUN).size().groupby("fingerprint").idxmax()
        rows = rows[pd.MultiIndex.from_frame(rows[RUN]).isin(longest)]
    rows = rows.sort_values(["training_seed", *RUN, "corruption", "severity", "image"])
    label = f"{first['spec']} ({model['name']})" if model["name"] else first["spec"]
    about: dict[str, Any] = {
        name: first[name] for name in ("spec", "method", "protocol", "objective", "num_prototypes")
    }
    return TableColumn(**about, training=model["training"], rows=rows, label=label)


def _style(column: TableColumn, styles: Styles) -> SeriesStyle:
    method = (column.paper_name or column.method).lower()
    variant = sum(known == method for known, _ in styles)
    return styles.setdefault((method, column.label), series_style(method, variant))


def _place(column: TableColumn) -> tuple[Any, ...]:
    """Order columns as the paper does, and others after them."""
    order = [*PAPER_COLUMNS.values(), ""]
    return order.index(column.paper_name), column.objective, column.spec, column.num_prototypes, column.label
