"""What a report is about: the stored rows of some folders, what is known of their models, and the published numbers beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from ttaps.evaluate.frame import IDENTITY, ITEM, load_rows, load_traces
from ttaps.evaluate.store import Store

RUN = ["fingerprint", "seed"]
"""Columns that tell the seeds of one table column apart: of training (another model) and of views."""
PUBLISHED = Path(__file__).with_name("published.csv")
PUBLISHED_SETS = {"cifar10-c": "cifar10-c", "cifar100-c": "cifar100-c", "sample": "cifar10-c"}
"""Which published set stands beside which of ours; the sample is images of CIFAR-10-C."""
PUBLISHED_SEVERITY = 5
CITATIONS = {
    "cifar10-c": "† published: Bartler et al., TTAPS, IJCNN 2022, Table III (TTT, MT3 and MEMO as quoted there). MT3 under brightness is "
    "86.2, not 68.2 as printed: only 86.2 gives the printed average, and MT3's own table has 86.23.",
    "cifar100-c": "† published: Bartler et al., TTAPS, IJCNN 2022, Table IV (MT3 as quoted there).",
}
"""Where published numbers come from, and what is corrected in them."""


@dataclass(frozen=True, eq=False)
class Results:
    """Everything stored in some folders; the same experiment in several of them is one."""

    folders: tuple[Path, ...]
    rows: pd.DataFrame
    """A row per image and experiment, as :func:`ttaps.evaluate.frame.load_rows` returns them."""
    models: dict[str, dict[str, Any]]
    """What is known of models, by fingerprint: objective, seed, network; of a model of another program nothing."""

    @cached_property
    def traces(self) -> pd.DataFrame:
        """A row per image, experiment and step; read when first needed, for figures over steps."""
        return load_traces(self.folders)


def load_results(folders: Sequence[Path]) -> Results:
    """Read all experiments of some results folders; at least one image must have been evaluated."""
    models: dict[str, dict[str, Any]] = {}
    for folder in folders:
        with Store(folder, write=False) as store:
            models |= store.models()
    rows = load_rows(folders)
    once = [name for name in (*IDENTITY, *ITEM) if name != "model"]  # a model that was renamed is the same model
    return Results(tuple(folders), rows.drop_duplicates(once, ignore_index=True), models)


def load_published(data: str, severity: int | None) -> pd.DataFrame:
    """Return published accuracies in % (``value``, ``std``) by the paper's column and row; empty where none are published."""
    numbers = pd.read_csv(PUBLISHED)
    known = PUBLISHED_SETS.get(data) if severity == PUBLISHED_SEVERITY else None
    return numbers[numbers["data"] == known].set_index(["column", "row"])[["value", "std"]]
