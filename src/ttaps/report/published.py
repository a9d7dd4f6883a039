"""The paper's Tables III and IV: accuracy in % at severity 5, to stand beside ours."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from ttaps.evaluate.summary import AVERAGE

LABELS = {
    "ttt": "TTT",
    "mt3": "MT3",
    "memo": "MEMO",
    "baseline": "Baseline",
    "jt": "JT",
    "jt+tta": "JT TTA",
    "jt+ent": "JT+ENT",
    "ttaps": "TTAPS",
}
"""The paper's names of its columns, in its order."""
SETS = {"cifar10-c": "cifar10-c", "cifar100-c": "cifar100-c", "sample": "cifar10-c"}
"""Which published set stands beside which of ours; the sample is pictures of CIFAR-10-C."""
SEVERITY = 5
ORIGIN = {
    "cifar10-c": "† published: Bartler et al., TTAPS, IJCNN 2022, Table III (TTT, MT3 and MEMO as quoted there). MT3 under brightness is "
    "86.2, not 68.2 as printed: only 86.2 gives the printed average, and MT3's own table has 86.23.",
    "cifar100-c": "† published: Bartler et al., TTAPS, IJCNN 2022, Table IV (MT3 as quoted there).",
}
"""Where published numbers come from, and what is corrected in them."""


@dataclass(frozen=True)
class Published:
    """One published accuracy in %."""

    accuracy: float
    std: float | None


def published_columns(data: str, severity: int) -> dict[str, dict[str, Published]]:
    """Return published accuracies for a data set at a severity, by method and corruption; nothing where none are published."""
    name = SETS.get(data)
    return {} if name is None or severity != SEVERITY else _read()[name]


@cache
def _read() -> dict[str, dict[str, dict[str, Published]]]:
    found: dict[str, dict[str, dict[str, Published]]] = {}
    text = (files("ttaps.report") / "published.csv").read_text("utf-8")
    for line in csv.DictReader(text.splitlines()):
        corruption = AVERAGE if line["corruption"] == "average" else line["corruption"]
        value = Published(float(line["accuracy"]), float(line["std"]) if line["std"] else None)
        found.setdefault(line["dataset"], {}).setdefault(line["method"], {})[corruption] = value
    return {data: {name: methods[name] for name in LABELS if name in methods} for data, methods in found.items()}
