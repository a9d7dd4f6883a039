"""Fill the tables of documents from stored evaluations (tools/results.sh makes them), so that no table is copied by hand.

    python tools/fill_tables.py results/page docs/results.md README.md

A table stands between <!-- table: KIND PART [HEADING] --> and <!-- end -->. KIND ``changes`` has a line for every experiment stored in
results/page/PART; ``report`` is the table that `ttaps report results/page/PART` prints under a heading that begins with HEADING;
``pairs`` has the lines A → B of its table of differences that HEADING names (A → B; C → D). PART may be several, joined by +.
A table whose PART is not stored here stays as it is, and is named.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ttaps.evaluate import Store, summarize
from ttaps.evaluate.settings import settings_name
from ttaps.evaluate.store import Experiment
from ttaps.evaluate.summary import Accuracy, Difference, signed
from ttaps.files import write_text
from ttaps.report.formats import markdown
from ttaps.report.outcomes import read_runs
from ttaps.report.tables import make_tables

BLOCK = re.compile(r"(<!-- table: (\w+) ([\w+]+)(?: ([^\n]+?))? -->\n).*?(<!-- end -->)", re.DOTALL)
HEADED = re.compile(r"\*\*(.+?)\*\*\n\n((?:\|.*\n)+)")


def changes(folders: Sequence[Path], _heading: str) -> str:
    """Every experiment before and after adaptation, the best first; what an image costs as a multiple of a plain prediction."""
    found = []
    for folder in folders:
        with Store(folder, write=False) as store:
            for number, experiment in store.experiments().items():
                seconds = float(np.median([row.seconds for row in store.rows(number)]))
                found.append((experiment, summarize(store, number).average, seconds))
    plain = {experiment.fingerprint: seconds for experiment, _, seconds in found if experiment.method == "source"}
    found.sort(key=lambda entry: (entry[0].model, -entry[1].after.percent))
    rows = []
    for experiment, line, seconds in found:
        one = plain.get(experiment.fingerprint)
        change, cost = line.difference, f"{seconds / one:.0f}" if one else ""
        row = [experiment.model, named(experiment), str(line.n), accuracy(line.after)]
        moved = [difference(change), str(change.fixed), str(change.broken)]
        rows.append([*row, *(["", "", ""] if experiment.method == "source" else moved), cost])
    head = ["model", "method", "n", "accuracy, %", "change, points", "fixed", "broken", "cost"]
    return table(head, rows, left=2)


def report(folders: Sequence[Path], heading: str) -> str:
    """One table of ``ttaps report``."""
    printed = markdown(make_tables(read_runs(folders), "accuracy", published=True))
    for title, body in HEADED.findall(printed):
        if title.startswith(heading):
            return str(body)
    raise SystemExit(
        f"{', '.join(map(str, folders))}: no table '{heading}': {', '.join(title for title, _ in HEADED.findall(printed))}."
    )


def pairs(folders: Sequence[Path], wanted: str) -> str:
    """Some lines of the table of differences, in the order they are asked for."""
    head, rule, *lines = report(folders, "Differences").splitlines(keepends=True)
    found = {line.split("|")[1].strip(): line for line in lines}
    names = [name.strip() for name in wanted.split(";")]
    if missing := set(names) - set(found):
        raise SystemExit(f"No line {', '.join(sorted(missing))} among {', '.join(found)}.")
    return "".join([head, rule, *(found[name] for name in names)])


def named(experiment: Experiment) -> str:
    """Name a method with what differs from its usual settings."""
    words = settings_name(experiment).replace("epsilon", "ε").replace("tau", "τ")
    return f"{experiment.method} {words}".strip()


def accuracy(value: Accuracy) -> str:
    """Write an accuracy with its 95 % interval."""
    return f"{value.percent:.1f} ({value.low:.1f} to {value.high:.1f})"


def difference(value: Difference) -> str:
    """Write a paired difference with its 95 % interval."""
    return f"{signed(value.points)} ({value.interval})"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> str:
    """Write a Markdown table whose first ``left`` columns are words."""
    rule = ["---"] * left + ["--:"] * (len(head) - left)
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, rule, *rows))


KINDS = {"changes": changes, "report": report, "pairs": pairs}


def filled(text: str, results: Path) -> str:
    """Return a document with its tables made anew."""

    def made(match: re.Match[str]) -> str:
        folders = [results / part for part in match[3].split("+")]
        if missing := [str(folder) for folder in folders if not folder.is_dir()]:
            print(f"left as it is, for want of {', '.join(missing)}: {match[1].strip()}", file=sys.stderr)
            return match[0]
        return match[1] + KINDS[match[2]](folders, match[4] or "") + match[5]

    return BLOCK.sub(made, text)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("Name a folder of results and documents: python tools/fill_tables.py results/page docs/results.md")
    for name in sys.argv[2:]:
        write_text(Path(name), filled(Path(name).read_text("utf-8"), Path(sys.argv[1])))
        print(name)
