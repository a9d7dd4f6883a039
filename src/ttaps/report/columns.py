"""Which experiments are one column of a table, and what it is called. Experiments that differ only in their seeds are one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from ttaps.report.figures.style import SeriesStyle, series_style
from ttaps.report.load import PAPER_NAMES, RUN

PAPER_COLUMNS = {
    ("baseline", "source"): "baseline",
    ("jt", "source"): "jt",
    ("jt", "ttaps"): "jt+tta",
    ("jt+ent", "source"): "jt+ent",
    ("jt+ent", "ttaps"): "ttaps",
    ("baseline", "memo"): "memo",
    ("ttt", "ttt"): "ttt",
    ("mt3", "mt3"): "mt3",
}
"""Which of the paper's columns a model's objective and a method make."""
Styles = dict[tuple[str, str], SeriesStyle]
Models = Mapping[str, dict[str, Any]]
"""What is known of models, by fingerprint."""


@dataclass(frozen=True, eq=False)
class TableColumn:
    """One column of a table: a model and a method with its settings, over all seeds."""

    spec: str
    """The method with its settings, as ``--methods`` takes it."""
    method: str
    protocol: str
    """What is reset between images."""
    objective: str
    """What the models were trained with; empty where that is not known."""
    num_prototypes: int
    """K; 0 where it is not known."""
    training: str
    """What its models have in common, besides K: how they were trained and what their network is."""
    rows: pd.DataFrame
    """Its images, of all seeds."""
    label: str = ""
    """The spec, with the model and K where a table has several: ``ttaps:tuned (jt-cifar10)``."""
    style: SeriesStyle = SeriesStyle()

    def at(self, severity: int | None) -> pd.DataFrame:
        """Return its images at one severity or all."""
        return self.rows if severity is None else self.rows[self.rows["severity"] == severity]

    @property
    def models(self) -> list[tuple[str, str]]:
        """Name and fingerprint of each model."""
        known = self.rows.drop_duplicates("fingerprint")
        return list(zip(known["model"], known["fingerprint"], strict=True))

    @property
    def several_seeds(self) -> bool:
        """Whether it has more than one seed, of training or of views."""
        return len(self.rows[RUN].drop_duplicates()) > 1

    @property
    def adapts(self) -> bool:
        """Whether it has a before and an after."""
        return self.method != "source"

    @property
    def paper_key(self) -> str:
        """Which of the paper's columns it is; empty where it is none of them."""
        return PAPER_COLUMNS.get((self.objective, self.method), "")

    @property
    def paper_name(self) -> str:
        """The paper's name of such a column; empty where it has none."""
        return PAPER_NAMES.get(self.paper_key, "")


def make_columns(rows: pd.DataFrame, models: Models, styles: Styles) -> list[TableColumn]:
    """Group the rows of one data set into columns with distinct labels, in the paper's order.

    ``styles`` are those of the report's columns so far; new ones are added, so that a label looks the same in every figure.
    """
    known = _known_models(rows, models)
    groups = rows.groupby([rows["spec"], rows["protocol"], rows["fingerprint"].map(known["group"])], sort=False)
    columns = sorted((_column(group, known) for _, group in groups), key=_place)
    labels = pd.Series([column.label for column in columns], dtype=str)
    labels = _told_apart(labels, pd.Series([column.protocol for column in columns], dtype=str))
    columns = [replace(column, label=label) for column, label in zip(columns, labels, strict=True)]
    return [replace(column, style=_style(column, styles)) for column in columns]


def _known_models(rows: pd.DataFrame, models: Models) -> pd.DataFrame:
    """Return each model's training, its group and the group's name, by fingerprint; the models of a group are seeds of one training.

    Two models with the same seed are two trainings, each a group of its own.
    """
    known = rows.drop_duplicates("fingerprint").set_index("fingerprint", drop=False)
    known["training"] = [_training(name, models.get(name, {})) for name in known.index]
    known["group"] = known["training"] + known["num_prototypes"].astype(str)
    twice = known.groupby("group")["training_seed"].transform("nunique") < known.groupby("group")["model"].transform("size")
    known["group"] = known["group"].where(~twice, known["fingerprint"])
    groups = known.groupby("group", sort=False)
    one_name = groups["model"].nunique() == 1
    names = groups["model"].first().where(one_name | (groups["objective"].first() == ""), groups["objective"].first())
    ks = "K=" + groups["num_prototypes"].first().astype(str)
    for extra in (groups["objective"].first(), ks, groups["fingerprint"].first().str[:6]):
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
    if first["method"] == "source":  # without adaptation a seed of views changes nothing: keep the one with the most images
        longest = rows.groupby(RUN).size().groupby("fingerprint").idxmax()
        rows = rows[pd.MultiIndex.from_frame(rows[RUN]).isin(longest)]
    rows = rows.sort_values(["training_seed", *RUN, "corruption", "severity", "image"])
    label = f"{first['spec']} ({model['name']})" if model["name"] else first["spec"]
    names = [str(first[name]) for name in ("spec", "method", "protocol", "objective")]
    return TableColumn(*names, int(first["num_prototypes"]), model["training"], rows, label)


def _style(column: TableColumn, styles: Styles) -> SeriesStyle:
    method = column.paper_key or column.method
    variant = sum(known == method for known, _ in styles)
    return styles.setdefault((method, column.label), series_style(method, variant))


def _place(column: TableColumn) -> tuple[Any, ...]:
    """Order columns as the paper does, and others after them."""
    order = list(PAPER_NAMES)
    place = order.index(column.paper_key) if column.paper_key else len(order)
    return place, column.objective, column.spec, column.num_prototypes, column.models
