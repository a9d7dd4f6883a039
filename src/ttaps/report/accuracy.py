"""Accuracy before and after adaptation, experiment by experiment: what ``ttaps evaluate`` and ``ttaps demo`` print."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from ttaps.evaluation.frame import IDENTITY
from ttaps.evaluation.statistics import accuracy_table
from ttaps.progress import text_table
from ttaps.report import render

Identity = dict[str, Any]
Tables = Sequence[tuple[Identity, pd.DataFrame]]


def experiment_tables(rows: pd.DataFrame) -> Tables:
    """Return what each experiment among the rows is, and its accuracy table, in the order of the rows."""
    parts = rows.groupby("experiment", sort=False)
    return [(part[IDENTITY].to_dict("records")[0], accuracy_table(part)) for _, part in parts]


def tables_text(tables: Tables) -> str:
    """Format the tables of experiments, and the spread over the seeds of each method that has several."""
    texts = [f"{heading(*one)}\n{accuracy_text(one[1], one[0]['method'] == 'source')}" for one in tables]
    averages = pd.Series([table["after"].iloc[-1] for _, table in tables], [one["spec"] for one, _ in tables], float)
    seeds = averages.groupby(level=0, sort=False).agg(["count", "mean", "std"])
    for spec, count, mean, std in seeds[seeds["count"] > 1].itertuples():
        several = f"{spec}, {count} seeds: {mean:.1f} ± {std:.1f} % after adaptation"
        texts.append(f"{spec}: {mean:.1f} %, whatever the seed of the views" if spec == "source" else several)
    return "\n\n".join(texts)


def heading(identity: Identity, table: pd.DataFrame) -> str:
    """Say which experiment a table is of; the method can be pasted into --methods."""
    levels = sorted({severity for _, severity in table.index[:-1] if severity})
    severity = f", severity {', '.join(map(str, levels))}" if levels else ""
    model = f"model {identity['model']} ({identity['fingerprint']})"
    order = "" if identity["protocol"] == "episodic" else f", {identity['protocol']} (the order of images counts)"
    return f"{identity['spec']}\non {identity['data']}{severity}, {model}, seed {identity['seed']}{order}"


def accuracy_text(found: pd.DataFrame, source: bool = False) -> str:
    """Format accuracy in % before and after (``source``: only one) with intervals; columns for which there is no room come below."""
    several = found.index.get_level_values("severity")[:-1].nunique() > 1
    rows = [["", "n", *(["accuracy", render.INTERVAL] if source else render.BEFORE_AFTER_HEAD)]]
    for (corruption, severity), line in found.iterrows():
        name = f"{corruption} {severity}" if several and severity else corruption
        numbers = render.before_after_text(line)
        rows.append([name, f"{line['n']:.0f}", *(numbers[2:4] if source else numbers)])
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    blocks = render.column_blocks(rows[0], widths, render.terminal_width())
    parts = [[[row[x] for x in block] for row in rows] for block in blocks]
    return "\n\n".join(text_table(part[0], part[1:], rule_before_last=True) for part in parts)


def accuracy_records(found: pd.DataFrame) -> dict[str, Any]:
    """Return an accuracy table for JSON: ``lines``, and the ``average`` by itself."""
    *lines, average = found.reset_index().to_dict("records")
    return {"lines": lines, "average": {name: value for name, value in average.items() if name != "severity"}}
