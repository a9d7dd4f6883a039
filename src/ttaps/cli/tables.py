"""Tables of accuracies for the terminal and as JSON, shared by the commands that evaluate."""

from __future__ import annotations

from typing import Any

import pandas as pd

from ttaps.cli.options import table
from ttaps.report.render import BEFORE_AFTER_HEAD, INTERVAL, before_after_text, column_blocks, terminal_width


def accuracy_text(found: pd.DataFrame, source: bool = False) -> str:
    """Format an accuracy table: accuracy in % before and after with 95 % intervals, and the difference; without steps only one.

    Where a terminal is too narrow for all columns, the last ones come below the others.
    """
    several = found.index.get_level_values("severity")[:-1].nunique() > 1
    head = ["", "n", *(["accuracy", INTERVAL] if source else BEFORE_AFTER_HEAD)]
    rows = []
    for (corruption, severity), line in found.iterrows():
        name = f"{corruption} {severity}" if several and severity else corruption
        numbers = before_after_text(line)
        rows.append([name, f"{line['n']:.0f}", *(numbers[2:4] if source else numbers)])
    widths = [max(map(len, cells)) for cells in zip(head, *rows, strict=True)]
    blocks = column_blocks(head, widths, terminal_width())
    parts = [[[row[x] for x in block] for row in (head, *rows)] for block in blocks]
    return "\n\n".join(table(part[0], part[1:], rule_before_last=True) for part in parts)


def accuracy_records(found: pd.DataFrame) -> dict[str, Any]:
    """Return an accuracy table for JSON: ``lines``, and the ``average`` by itself."""
    *lines, average = found.reset_index().to_dict("records")
    return {"lines": lines, "average": {name: value for name, value in average.items() if name != "severity"}}
