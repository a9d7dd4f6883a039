"""The data of a report: stored rows, published numbers, and table columns; experiments that differ only in seeds share a column."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from ttaps.config import read_toml
from ttaps.errors import DataError
from ttaps.evaluation.frame import IDENTITY, ITEM, load_rows, load_traces
from ttaps.evaluation.store import Sources, Store
from ttaps.report.figures.style import SeriesStyle

RUN = ["fingerprint", "seed"]
"""Columns that tell the seeds of one table column apart: of training (another model) and of views."""
PUBLISHED_SETS = {"cifar10-c": "cifar10-c", "cifar100-c": "cifar100-c", "sample": "cifar10-c"}
"""Which published set, of severity 5, stands beside which of ours; the sample is images of CIFAR-10-C."""
PUBLISHED = Path(__file__).with_name("published.csv")
PUBLISHED_TYPES = {"data": str, "column": str, "row": str, "value": float, "std": float}
TEXTS = read_toml(Path(__file__).with_name("texts.toml"))


@dataclass(frozen=True, eq=False)
class Results:
    """Everything stored in some folders; the same experiment in several of them is merged."""

    folders: tuple[Path, ...]
    rows: pd.DataFrame  # A row per image and experiment, as :func:`ttaps.evaluation.frame.load_rows` returns them.
    models: dict[str, dict[str, Any]]
    """What is known of models, by fingerprint: objective, seed, network; of a model of another program nothing."""
    classes: dict[str, tuple[str, ...]]
    """The classes that labels are numbers of, by fingerprint."""
    sources: Sources
    """Where the images of data sets were."""

    @cached_property
    def traces(self) -> pd.DataFrame:
        """A row per image, experiment and step; read when first needed, for figures over steps."""
        return load_traces(self.folders)


def load_results(folders: Sequence[Path]) -> Results:
    """Read all experiments of some results folders; at least one image must have been evaluated."""
    models: dict[str, dict[str, Any]] = {}
    classes: dict[str, tuple[str, ...]] = {}
    sources: Sources = {}
    for folder in folders:
        with Store(folder, write=False) as store:
            models |= store.models()
            classes |= store.classes()
            sources |= store.sources()
    once = [name for name in (*IDENTITY, *ITEM) if name != "model"]  # a model that was renamed is the same model
    rows = load_rows(folders).drop_duplicates(once, ignore_index=True)
    return Results(tuple(folders), rows, models, classes, sources)


def load_published(data: str, severity: int | None) -> pd.DataFrame:
    """Return published accuracies in % (``value``, ``std``) by the paper's column and row; empty if none are published."""
    try:
        numbers = pd.read_csv(PUBLISHED, dtype=PUBLISHED_TYPES)[list(PUBLISHED_TYPES)]
        numbers = numbers.set_index(["data", "column", "row"], verify_integrity=True)
        if not numbers.fillna({"std": 0.0}).stack().between(0, 100).all() or numbers.index.to_frame().isna().any(
            axis=None
        ):
            raise ValueError("a name is missing, or a number is not between 0 and 100")
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{PUBLISHED} is damaged: {error}.\nInstall the package again.") from error
    known = PUBLISHED_SETS.get(data) if severity == 5 else None
    return numbers[numbers.index.get_level_values("data") == known].droplevel("data")


PAPER_COLUMNS = {
    ("ttt", "ttt"): "TTT", ("mt3", "mt3"): "MT3", ("baseline", "memo"): "MEMO", ("baseline", "source"): "Baseline",
    ("jt", "source"): "JT", ("jt", "ttaps"): "JT TTA", ("jt+ent", "source"): "JT+ENT", ("jt+ent", "ttaps"): "TTAPS",
}  # fmt: skip
"""The paper's name of the column that a model's objective and a method make, in the paper's order."""


@dataclass(eq=False)
class TableColumn:
    """One column of a table: a model and a method with its settings, over all seeds; ``rows`` are its images."""

    rows: pd.DataFrame
    training: str  # What its models have in common, besides K: how they were trained and what their network is.
    which: str  # Its models and K, where a table has several: ``jt-cifar10, K=30``.
    style: SeriesStyle = field(init=False)

    def __post_init__(self) -> None:
        about = self.rows.iloc[0][["spec", "method", "protocol", "objective", "num_prototypes"]]
        self.spec, self.method, self.protocol, self.objective, self.num_prototypes = about
        self.adapts = self.method != "source"  # it has a before and an after
        self.paper_name = PAPER_COLUMNS.get((self.objective, self.method), "")
        self.count_head = "n, all seeds" if len(self.rows.drop_duplicates(RUN)) > 1 else "n"
        among = f"({self.which})" if self.which else ""
        self.label = f"{self.spec} {among}".rstrip()
        below = f"{self.paper_name} {among}".strip()
        self.head = f"{self.spec}\n{below}".rstrip()  # the spec alone on its line: it can be pasted into a command

    def at(self, severity: int | None) -> pd.DataFrame:
        """Return its images at one severity or all."""
        return self.rows if severity is None else self.rows[self.rows["severity"] == severity]


def make_columns(rows: pd.DataFrame, models: Mapping[str, dict[str, Any]]) -> list[TableColumn]:
    """Group the rows of one data set into columns with distinct labels, in the paper's order; ``models`` is known by fingerprint."""
    known = _known_models(rows, models)
    columns, protocols = [], rows.groupby("spec")["protocol"].nunique()
    key = [rows["spec"], rows["protocol"], rows["fingerprint"].map(known["group"])]
    for (spec, protocol, _), group in rows.groupby(key, sort=False):
        # Without adaptation a seed of views changes nothing: keep the one with the most images.
        longest = group.groupby(RUN).size().groupby("fingerprint").idxmax()
        own = group[pd.MultiIndex.from_frame(group[RUN]).isin(longest) | (group["method"] != "source")]
        name, training = known.loc[own["fingerprint"].iat[0], ["name", "training"]]
        own = own.sort_values(["training_seed", *RUN, "corruption", "severity", "image"])
        which = ", ".join(filter(None, (name, protocol if protocols[spec] > 1 else "")))  # continual over other streams
        columns.append(TableColumn(own, training, which))
    order = [*PAPER_COLUMNS.values(), ""]
    columns.sort(key=lambda it: (order.index(it.paper_name), it.objective, it.spec, it.num_prototypes, it.label))
    return columns


def _known_models(rows: pd.DataFrame, models: Mapping[str, dict[str, Any]]) -> pd.DataFrame:
    """Return each model's training, its group (seeds of one training; two models with the same seed are two) and the group's name."""
    known = rows.drop_duplicates("fingerprint").set_index("fingerprint", drop=False)
    known["training"] = known.index  # one of which nothing is known is like no other
    for name in known.index.intersection([name for name in models if models[name]]):
        network = {key: value for key, value in models[name].get("model", {}).items() if key != "num_prototypes"}
        known.loc[name, "training"] = json.dumps({**models[name], "seed": None, "model": network}, sort_keys=True)
    known["group"] = known["training"] + known["num_prototypes"].astype(str)
    by_group = known.groupby("group")
    twice = by_group["training_seed"].transform("nunique") < by_group["model"].transform("size")
    known["group"] = known["group"].where(~twice, known["fingerprint"])
    groups = known.groupby("group", sort=False)
    first = groups.first()
    unnamed = (groups["model"].nunique() > 1) & (first["objective"] != "")
    names = first["model"].where(~unnamed, first["objective"])
    for extra in (first["objective"], "K=" + first["num_prototypes"].astype(str), first["fingerprint"]):
        differs = extra.groupby(names).transform("nunique") > 1  # between names that are the same
        names = names.where(~differs | (extra == ""), names + ", " + extra)
    known["name"] = known["group"].map(names) if len(names) > 1 else ""
    return known
