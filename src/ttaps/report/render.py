"""Tables for people and programs: Markdown, LaTeX, terminal, CSV, JSON, all with the same numbers, rounded only here.

A report has :class:`Table`; ``ttaps evaluate`` and ``ttaps demo`` print an accuracy table of each experiment."""

import json
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import isnan
from typing import Any, NamedTuple

import pandas as pd
from rich.console import Console
from rich.text import Text

from ttaps.evaluation.frame import IDENTITY
from ttaps.evaluation.statistics import AVERAGE, STATISTICS, accuracy_table, signed
from ttaps.progress import INTERVAL, table_blocks, text_table
from ttaps.report.columns import TEXTS
from ttaps.report.tables import Table, column_protocol, protocol

CHANGE_HEAD = ("difference", INTERVAL, "fixed", "broken", "p")
BEFORE_AFTER_HEAD = ("before", INTERVAL, "after", INTERVAL, *CHANGE_HEAD)
TEX = {sign: f"\\{sign}" for sign in "&%$#_{}"}
TEX |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
TEX |= {"±": r"$\pm$", "→": r"$\to$", "†": r"$^\dagger$", "²": "$^2$", "\n": r"\\"}
CSV_COLUMNS = [
    *("data", "severity", "corruption", "column", "spec", "paper_column", "against", "origin", "metric"),
    *("value", "std", "low", "high", "best", "n", "p", "fixed", "broken", "protocol"),
]
"""A line is a number (``against`` is empty) or a paired difference against ``before`` or another column."""
Identity = dict[str, Any]
Tables = Sequence[tuple[Identity, pd.DataFrame]]  # of experiments: what each is, and its accuracy table
SCORE_FORMS = {"error": "%.1f", "nll": "%.3f", "brier": "%.3f", "ece": "%.1f"}
DIFFERENCE = {"change": "value", "change_low": "low", "change_high": "high"}


class TextTable(NamedTuple):
    """A table of text cells, the same for every format; ``bold`` has row and column of the best, ``average`` is the last row."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    bold: frozenset[tuple[int, int]] = frozenset()
    average: bool = False
    notes: tuple[str, ...] = ()

    def marked(self, bold: str, escape: Callable[[str], str] = str) -> list[list[str]]:
        """Return the rows as a format writes them; ``bold`` has a %s for the best value."""
        rows = [[escape(cell) for cell in row] for row in self.rows]
        for y, x in self.bold:
            rows[y][x] = bold % rows[y][x]
        return rows


def text_tables(table: Table) -> list[TextTable]:
    """Return all parts of a table: numbers, intervals, and which differences are significant."""
    average = AVERAGE in table.rows
    intervals = table.numbers.apply(lambda line: f"{line.after_low:.1f}-{line.after_high:.1f}", axis=1)
    body = tuple((row, *(intervals.get((column.label, row), "-") for column in table.columns)) for row in table.rows)
    head = ("", *(column.head for column in table.columns))
    found = [main_table(table), TextTable(f"95 % intervals of the {table.metric}, in %", head, body, average=average)]
    for column in table.adapting:
        lines = table.of(column).itertuples()
        body = tuple((str(line.Index), f"{line.n:.0f}", *before_after_text(line)) for line in lines)
        title = f"{column.label}: {table.metric} before and after adaptation, in %"
        found.append(TextTable(title, ("", column.count_head, *BEFORE_AFTER_HEAD), body, average=average))
    if len(table.comparisons):
        pairs = table.comparisons.groupby(["first", "second"], sort=False).tail(1)  # over all rows that both have
        body = tuple((f"{i[0]} → {i[1]}", f"{line.n:.0f}", *change_text(line)) for i, line in pairs.iterrows())
        over = f"averaged over {'corruptions' if table.severity else 'severities'}, " if average else ""
        title = f"Differences between columns: {table.metric}, {over}on the images both have, in points"
        count_head = max((column.count_head for column in table.columns), key=len)  # "all seeds" if one has several
        found.append(TextTable(title, ("from → to", count_head, *CHANGE_HEAD), body))
    return [*found, calibration_table(table)]


def calibration_table(table: Table) -> TextTable:
    """Return a row for each column of a table, over all its rows: how its errors and its probabilities changed."""
    body = []
    for column in table.columns:
        line, ends = table.of(column).iloc[-1], ("before", "after") if column.adapts else ("after",)
        cells = [
            " → ".join("-" if isnan(line[f"{score}_{end}"]) else form % line[f"{score}_{end}"] for end in ends)
            for score, form in SCORE_FORMS.items()
        ]
        relative = "-" if isnan(line["mce"]) or not column.adapts else f"{line['mce']:.1f}"
        body.append((column.label, cells[0], relative, *cells[1:]))
    over = ", averaged over corruptions" if AVERAGE in table.rows else ""
    head = ("", "error %", "mCE %", "NLL", "Brier", "ECE %")
    return TextTable(f"Calibration{over}", head, tuple(body), notes=(TEXTS["calibration"],))


def main_table(table: Table) -> TextTable:
    """Return the paper's layout: ours, then the published columns; the best of each block is bold."""
    every = pd.concat([table.numbers[["value", "std", "best"]], table.published.rename("{}†".format, level="column")])
    names = list(every.index.unique("column"))
    texts = every["value"].map("{:.1f}".format) + every["std"].map(" ± {:.2f}".format, na_action="ignore").fillna("")
    if AVERAGE in table.rows:
        texts[[(label, AVERAGE) for label in table.partial]] += "*"
    images = table.numbers.groupby("row").agg({"n_min": "min", "n_max": "max"}).loc[list(table.rows)]
    counts = [f"{low}" if low == high else f"{low}-{high}" for low, high in images.to_numpy()]
    lines = zip(table.rows, counts, strict=True)
    body = tuple((row, n, *(texts.get((name, row), "-") for name in names)) for row, n in lines)
    best = every.index[every["best"].astype(bool)]
    bold = frozenset((table.rows.index(row), names.index(name) + 2) for name, row in best)
    by = f"{table.data}, by severity" if table.severity is None else table.images
    head = ("", "n", *(column.head for column in table.columns), *names[len(table.columns) :])
    return TextTable(f"{by}: {table.metric} in %", head, body, bold, AVERAGE in table.rows, tuple(protocol(table)))


def before_after_text(line: Any) -> list[str]:
    """Return accuracy before and after adaptation with its intervals, and the difference."""
    before = [f"{line.before:.1f}", f"{line.before_low:.1f}-{line.before_high:.1f}"]
    return [*before, f"{line.after:.1f}", f"{line.after_low:.1f}-{line.after_high:.1f}", *change_text(line)]


def change_text(line: Any) -> list[str]:
    """Return a difference, its interval, how many labels were fixed and broken, and p."""
    interval = f"{signed(line.change_low)} to {signed(line.change_high)}"
    return [signed(line.change), interval, f"{line.fixed:.0f}", f"{line.broken:.0f}", f"{line.p:.2g}"]


def print_tables(tables: Sequence[Table], form: str = "auto") -> None:
    """Print tables as ``md``, ``tex``, ``csv`` or ``text``; ``auto`` is text on a terminal, else Markdown."""
    if form == "text" or (form == "auto" and sys.stdout.isatty()):
        room = terminal_width()
        console = Console(width=room, highlight=False)
        for text in (text for table in tables for text in text_tables(table)):
            blocks = table_blocks(text.head, text.rows, room, rule_before_last=text.average, bold=text.bold)
            notes = (Text(f"- {note}", style="dim") for note in text.notes)
            console.print(Text(text.title, style="italic"), *blocks, *notes, "", sep="\n")
    else:
        print({"tex": latex, "csv": to_csv}.get(form, markdown)(tables), end="")


def markdown(tables: Iterable[Table]) -> str:
    """Return tables in Markdown, aligned for reading as plain text."""
    found = []
    for text in (text for table in tables for text in text_tables(table)):
        columns = []
        for x, cells in enumerate(zip(text.head, *text.marked("**%s**"), strict=True)):
            escaped = [cell.replace("|", "\\|").replace("\n", "<br>") for cell in cells]
            width = max(3, *map(len, escaped))
            escaped.insert(1, f"{'-' * (width - 1)}:" if x else "-" * width)
            columns.append([cell.rjust(width) if x else cell.ljust(width) for cell in escaped])
        lines = [f"| {' | '.join(line)} |" for line in zip(*columns, strict=True)]
        notes = ["", *(f"- {note}" for note in text.notes)] if text.notes else []
        found.append("\n".join([f"**{text.title}**", "", *lines, *notes]))
    return "\n\n".join(found) + "\n"


def latex(tables: Iterable[Table]) -> str:
    """Return tables in LaTeX, for the package ``booktabs``."""
    found = []
    for text in (text for table in tables for text in text_tables(table)):
        head = [rf"\shortstack{{{tex(cell)}}}" if "\n" in cell else tex(cell) for cell in text.head]
        rows = [rf"{' & '.join(row)} \\" for row in (head, *text.marked(r"\textbf{%s}", tex))]
        rows.insert(1, r"\midrule")
        if text.average:
            rows.insert(-1, r"\midrule")
        begin = [r"\begin{table*}", r"\centering", rf"\caption{{{tex(text.title)}}}"]
        begin += [rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", r"\toprule"]
        notes = [f"\n{{\\footnotesize {tex(note)}\\par}}" for note in text.notes]
        found.append("\n".join([*begin, *rows, r"\bottomrule", r"\end{tabular}", *notes, r"\end{table*}"]))
    return "\n\n".join(found) + "\n"


def tex(text: str) -> str:
    """Return text escaped for LaTeX."""
    return "".join(TEX.get(sign, sign) for sign in text)


def terminal_width() -> int:
    """Return the maximum number of characters per line; unlimited for files."""
    return shutil.get_terminal_size(fallback=(10_000, 0)).columns


def to_csv(tables: Sequence[Table]) -> str:
    """Return all numbers and differences as one tidy table, each line with its protocol."""
    found = []
    for table in tables:
        ours = table.numbers.drop(columns="n").rename(columns={"after_low": "low", "after_high": "high", "n_min": "n"})
        ours = ours[["value", "std", "low", "high", "best", "n"]].reset_index()
        ours["protocol"] = ours["column"].map({one.label: column_protocol(one, table) for one in table.columns})
        printed = table.published.reset_index().assign(origin="published", protocol="published")
        changes = table.numbers.loc[[column.label for column in table.adapting], STATISTICS].assign(against="before")
        pairs = table.comparisons.reset_index().rename(columns={"first": "against", "second": "column"})
        differences = pd.concat([changes.reset_index(), pairs]).rename(columns=DIFFERENCE)
        scores = pd.concat(_score_lines(table)).dropna(subset="value")
        lines = pd.concat([ours, printed, differences, scores]).rename(columns={"row": "corruption"})
        lines = lines.fillna({"origin": "ours"})
        lines["spec"] = lines["column"].map({column.label: column.spec for column in table.columns})
        lines["paper_column"] = lines["column"].map({column.label: column.paper_name for column in table.columns})
        severity = "all" if table.severity is None else table.severity
        found.append(lines.assign(data=table.data, severity=severity).fillna({"metric": table.metric}))
    whole = pd.concat(found)
    numbers, counts = ["value", "std", "low", "high"], ["best", "n", "fixed", "broken"]
    whole[numbers] = whole[numbers].astype(float).round(4) + 0.0  # never -0.0
    whole["p"] = whole["p"].map("{:.3g}".format, na_action="ignore")
    whole[counts] = whole[counts].astype("Int64")
    return whole.reindex(columns=CSV_COLUMNS).to_csv(index=False, lineterminator="\n")


def _score_lines(table: Table) -> Iterator[pd.DataFrame]:
    """Yield scores after adaptation, and their differences and the mean corruption error (mCE) against before it."""
    changed = table.numbers.loc[[column.label for column in table.adapting]]
    for score in ("nll", "brier", "ece"):
        yield table.numbers[f"{score}_after"].rename("value").reset_index().assign(metric=score)
        difference = changed[f"{score}_after"] - changed[f"{score}_before"]
        yield difference.rename("value").reset_index().assign(metric=score, against="before")
    yield changed["mce"].rename("value").reset_index().assign(metric="mce", against="before")


def to_records(tables: Sequence[Table]) -> list[dict[str, Any]]:
    """Return tables as plain values for JSON; numbers, published ones and comparisons are lists of records."""
    names = ["model", "fingerprint", "objective", "training_seed", "num_prototypes", "spec", "protocol", "seed"]
    found = []
    for table in tables:
        record: dict[str, Any] = {name: getattr(table, name) for name in ("data", "digest", "severity", "metric")}
        record |= {"rows": list(table.rows), "protocol": protocol(table), "columns": []}
        for column in table.columns:
            about = {"label": column.label, "spec": column.spec, "paper_column": column.paper_name}
            experiments = column.rows[names].drop_duplicates().to_dict("records")
            record["columns"].append({**about, "protocol": column_protocol(column, table), "experiments": experiments})
        for name in ("numbers", "published", "comparisons"):
            frame = getattr(table, name).reset_index()
            record[name] = json.loads(frame.to_json(orient="records", double_precision=15))
        found.append(record)
    return found


def experiment_tables(rows: pd.DataFrame) -> Tables:
    """Return the description and accuracy table of each experiment, in the order of the rows."""
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
    """Describe a table's experiment; the method can be pasted into --methods."""
    levels = sorted({severity for _, severity in table.index[:-1] if severity})
    severity = f", severity {', '.join(map(str, levels))}" if levels else ""
    model = f"model {identity['model']} ({identity['fingerprint']})"
    order = "" if identity["protocol"] == "episodic" else f", {identity['protocol']} (the order of images counts)"
    return f"{identity['spec']}\non {identity['data']}{severity}, {model}, seed {identity['seed']}{order}"


def accuracy_text(found: pd.DataFrame, source: bool = False) -> str:
    """Format accuracy in % before and after (``source``: only one) with intervals; columns for which there is no room come below."""
    several = found.index.get_level_values("severity")[:-1].nunique() > 1
    head, rows = ["accuracy", INTERVAL] if source else BEFORE_AFTER_HEAD, []
    for (corruption, severity), line in found.iterrows():
        name = f"{corruption} {severity}" if several and severity else corruption
        numbers = before_after_text(line)
        rows.append((name, f"{line['n']:.0f}", *(numbers[2:4] if source else numbers)))
    return text_table(["", "n", *head], rows, terminal_width(), rule_before_last=True)


def accuracy_records(found: pd.DataFrame) -> dict[str, Any]:
    """Return an accuracy table for JSON: ``lines``, and the ``average`` by itself."""
    *lines, average = found.reset_index().to_dict("records")
    return {"lines": lines, "average": {name: value for name, value in average.items() if name != "severity"}}
