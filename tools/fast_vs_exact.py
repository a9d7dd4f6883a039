"""What fast mode costs in accuracy, from a stored evaluation of both modes.

ttaps evaluate MODEL --data cifar10-c --methods ttaps,ttaps:fast --out RESULTS
python tools/fast_vs_exact.py MODEL RESULTS
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ttaps.api import load
from ttaps.errors import TtapsError
from ttaps.evaluation.frame import load_rows
from ttaps.evaluation.statistics import compare_table


def fast_minus_exact(results: Path, fingerprint: str) -> dict[str, Any] | None:
    """Return the paired difference in points on the data set and seed with the most corrupted images that both modes have."""
    rows = load_rows([results])
    rows = rows[(rows["fingerprint"] == fingerprint) & (rows["severity"] > 0)]
    found: list[dict[str, Any]] = []
    for (data, _, seed), part in rows.groupby(["data", "digest", "seed"]):
        exact, fast = (part[part["spec"] == spec] for spec in ("ttaps", "ttaps:fast"))
        table = compare_table(exact, fast) if len(exact) and len(fast) else None
        if table is not None and len(table):
            average = table.iloc[-1]
            numbers = {
                name: float(average[f"change{end}"])
                for name, end in (("points", ""), ("low", "_low"), ("high", "_high"))
            }
            counts = {name: int(average[name]) for name in ("n", "fixed", "broken")}
            facts = {"data": str(data), "corruptions": len(table) - 1, "seed": int(seed)}
            found.append({**facts, **counts, **numbers, "p": float(average["p"])})
    return max(found, key=lambda one: one["n"], default=None)


def main(model: str, results: str) -> None:
    """Print the difference for a model."""
    found = fast_minus_exact(Path(results), load(model).fingerprint)
    if found is None:
        raise TtapsError(f"{results} holds no images evaluated by both ttaps and ttaps:fast with the model {model}.")
    points = f"{found['points']:+.2f} points ({found['low']:+.2f} to {found['high']:+.2f}, 95 %)"
    print(f"Accuracy of ttaps:fast minus that of ttaps: {points}, on {found['n']} images of {found['data']}.")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("Name a model and a folder of results: python tools/fast_vs_exact.py MODEL RESULTS")
    try:
        main(*sys.argv[1:])
    except TtapsError as error:
        sys.exit(str(error))
