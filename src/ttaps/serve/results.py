"""A results folder for the page: tables, filtered rows, and the images where the data lies on this machine."""

from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import pandas as pd
from torch import Tensor

from ttaps.data import NAMES
from ttaps.errors import DataError, UsageError
from ttaps.evaluation.benchmark import VALIDATION, open_benchmark
from ttaps.evaluation.frame import read_rows, with_names
from ttaps.evaluation.plan import Item
from ttaps.evaluation.statistics import AVERAGE, accuracy_table
from ttaps.evaluation.store import Store
from ttaps.serve.schema import Outcome, ResultImage, RowFilter

OPENED = (*NAMES, *VALIDATION)  # by name, never by a path that a row may say
SHOWN = ["experiment", "corruption", "severity", "image", "file", "label", "before", "after"]
SHOWN += ["confidence_before", "confidence_after", "outcome", "has_image"]


def outcome_of(label: str | None, before: str, after: str | None) -> Outcome | None:
    """Say what adaptation did to a label; None where the true one is not known."""
    if label is None:
        return None
    if before == after:
        return "unchanged"
    return "broken" if before == label else "fixed" if after == label else "changed"


class ResultsFolder:
    """Everything in a results folder, read when it is first asked for."""

    def __init__(self, folder: Path, data_root: Path | None = None) -> None:
        self.folder, self.open = folder, lru_cache(4)(open_benchmark)
        self.data_root = data_root
        with Store(folder, write=False) as store:
            self.experiments = store.experiments()

    @cached_property
    def rows(self) -> pd.DataFrame:
        """A row per image, with the names of its labels and what adaptation did to them."""
        with Store(self.folder, write=False) as store:
            rows = read_rows(store)
        rows = with_names(rows, self.folder)
        for column in ("label", "before", "after"):
            numbers = rows[column].astype(str).replace("-1", "none")  # -1: there was no prediction
            rows[column] = rows[f"{column}_name"].where(rows[f"{column}_name"] != "", numbers)
        rows["outcome"] = list(map(outcome_of, rows["label"], rows["before"], rows["after"]))
        return rows.assign(has_image=rows["data"].isin(OPENED))

    @cached_property
    def summary(self) -> dict[str, Any]:
        """All experiments, and their accuracy under every corruption."""
        experiments: list[dict[str, Any]] = []
        table: list[dict[str, Any]] = []
        for number, rows in self.rows.groupby("experiment"):
            lines = accuracy_table(rows).reset_index()
            lines = lines[["corruption", "severity", "n", "before", "after", "fixed", "broken"]].to_dict("records")
            table += [{"experiment": int(number), **line} for line in lines if line["corruption"] != AVERAGE]
            facts = {name: rows[name].iloc[0] for name in ("spec", "model", "data", "seed", "protocol")}
            last = lines[-1]
            accuracy = {"accuracy_before": last["before"], "accuracy_after": last["after"], "n": last["n"]}
            experiments.append({"id": int(number), **facts, **accuracy})
        plain = pd.DataFrame(experiments).astype(object).to_dict("records")
        return {"folder": str(self.folder), "report": None, "experiments": plain, "table": table}

    def select(self, wanted: RowFilter) -> dict[str, Any]:
        """Return some of the rows that have these values, and how many there are."""
        rows = self.rows
        for name, value in wanted.model_dump(exclude={"offset", "limit"}, exclude_none=True).items():
            rows = rows[rows[name] == value]
        some = rows.iloc[wanted.offset : wanted.offset + wanted.limit]
        return {"total": len(rows), "rows": some[SHOWN].astype(object).to_dict("records")}

    def image(self, wanted: ResultImage) -> tuple[Tensor, str, str]:
        """Return an image (1, 3, H, W), the name of its class, and the name of its data set."""
        found = self.experiments.get(wanted.experiment)
        if found is None:
            raise UsageError(f"There is no experiment {wanted.experiment} in {self.folder}.")
        if found.data not in OPENED:
            raise DataError(f"{found.data} is not a data set that is known by its name: its images cannot be shown.")
        item = Item(wanted.corruption, wanted.severity, wanted.image)
        chosen: dict[str, Any] = (
            {"corruptions": (item.corruption,), "severities": (item.severity,)} if item.severity else {}
        )
        data = self.open(found.data, self.data_root, **chosen)
        if data.digest != found.digest:
            raise DataError(f"{found.data} is another data set now than when it was evaluated.")
        if item.image >= len(data.labels):
            raise UsageError(f"{found.data} has {len(data.labels)} images, there is none with number {item.image}.")
        return data.read([item]), data.classes[int(data.labels[item.image])], found.data
