"""Tables of accuracies for the terminal and as JSON, shared by the commands that evaluate."""

from __future__ import annotations

from typing import Any

import pandas as pd

from ttaps.cli.options import table
from ttaps.evaluate.statistics import signed

HEAD = ["", "n", "before", "95 %", "after", "95 %", "difference", "95 %", "fixed", "broken", "p"]


def accuracy_text(found: pd.DataFrame, source: bool = False) -> str:
    """Format an accuracy table: accuracy in % before and after with 95 % intervals, and the difference; without steps only one."""
    several = found.index.get_level_values("severity")[:-1].nunique() > 1
    rows = []
    for (corruption, severity), line in found.iterrows():
        name = f"{corruption} {severity}" if several and severity else corruption
        before, after = (
            f"{line[end]:.1f} {line[f'{end}_low']:.1f}-{line[f'{end}_high']:.1f}".split() for end in ("before", "after")
        )
        interval = f"{signed(line['change_low'])} to {signed(line['change_high'])}"
        change = [signed(line["change"]), interval, f"{line['fixed']:.0f}", f"{line['broken']:.0f}", f"{line['p']:.2g}"]
        rows.append([name, f"{line['n']:.0f}", *(after if source else [*before, *after, *change])])
    return table(["", "n", "accuracy", "95 %"] if source else HEAD, rows, rule_before_last=True)


def accuracy_records(found: pd.DataFrame) -> dict[str, Any]:
    """Return an accuracy table for JSON: ``lines``, and the ``average`` by itself."""
    *lines, average = found.reset_index().to_dict("records")
    return {"lines": lines, "average": {name: value for name, value in average.items() if name != "severity"}}
