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
from typing import Any

from ttaps.evaluation.frame import load_rows
from ttaps.evaluation.statistics import measure, signed
from ttaps.files import write_text
from ttaps.report.columns import load_results
from ttaps.report.render import markdown
from ttaps.report.tables import make_tables

BLOCK = re.compile(r"(<!-- table: (\w+) ([\w+]+)(?: ([^\n]+?))? -->\n).*?(<!-- end -->)", re.DOTALL)
HEADED = re.compile(r"\*\*(.+?)\*\*\n\n((?:\|.*\n)+)")
HEAD = ["model", "method", "n", "accuracy, %", "change, points", "fixed", "broken", "cost"]


def changes(folders: Sequence[Path], _heading: str) -> str:
    """Every experiment before and after adaptation, the best first; what an image costs as a multiple of a plain prediction."""
    found: list[dict[str, Any]] = []
    for (model, fingerprint, spec, _seed), rows in load_rows(folders).groupby(["model", "fingerprint", "spec", "seed"]):
        found.append({"model": model, "fingerprint": fingerprint, "spec": spec, "seconds": rows["seconds"].median()})
        found[-1] |= measure(rows)
    plain = {line["fingerprint"]: line["seconds"] for line in found if line["spec"] == "source"}
    lines = []
    for line in sorted(found, key=lambda line: (line["model"], -line["after"])):
        cost = f"{line['seconds'] / plain[line['fingerprint']]:.0f}" if line["fingerprint"] in plain else ""
        after = f"{line['after']:.1f} ({line['after_low']:.1f} to {line['after_high']:.1f})"
        change = f"{signed(line['change'])} ({signed(line['change_low'])} to {signed(line['change_high'])})"
        moved = [change, str(line["fixed"]), str(line["broken"])] if line["spec"] != "source" else ["", "", ""]
        lines.append([line["model"], line["spec"], str(line["n"]), after, *moved, cost])
    rule = ["---"] * 2 + ["--:"] * (len(HEAD) - 2)
    return "".join(f"| {' | '.join(line)} |\n" for line in (HEAD, rule, *lines))


def report(folders: Sequence[Path], heading: str) -> str:
    """One table of ``ttaps report``."""
    printed = HEADED.findall(markdown(make_tables(load_results(folders))))
    for title, body in printed:
        if title.startswith(heading):
            return str(body)
    titles = ", ".join(title for title, _ in printed)
    raise SystemExit(f"{', '.join(map(str, folders))}: no table '{heading}' among {titles}.")


def pairs(folders: Sequence[Path], wanted: str) -> str:
    """Some lines of the table of differences, in the order they are asked for."""
    head, rule, *lines = report(folders, "Differences").splitlines(keepends=True)
    found = {line.split("|")[1].strip(): line for line in lines}
    names = [name.strip() for name in wanted.split(";")]
    if missing := set(names) - set(found):
        raise SystemExit(f"No line {', '.join(sorted(missing))} among {', '.join(found)}.")
    return "".join([head, rule, *(found[name] for name in names)])


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
