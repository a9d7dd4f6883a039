"""``ttaps bench``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ttaps.cli.options import JsonOption, ThreadsOption, parse, print_json, table, use_threads
from ttaps.errors import TtapsError, UsageError
from ttaps.progress import bar

ACCURACY = "fast_vs_exact.json"  # beside a model; tools/fast_vs_exact.py writes it from an evaluation
MEANING = {
    "naive_over_exact": "time per image, the authors' way over ttaps",
    "naive_over_fast": "time per image, the authors' way over ttaps:fast",
    "exact_utilization": "operations ttaps needs / time / rate of matrix products",
    "train_utilization": "the same for a training step of jt+ent, with its views",
    "views_per_second_ratio": "batched views over the same views by Pillow",
}


@dataclass(frozen=True)
class Bench(ThreadsOption, JsonOption):
    """Time adaptation, views and training in turns on this machine, and print ratios: medians of rounds with their quartiles.

    Example: ttaps bench --threads 2 --rounds 3
    """

    model: str = "cifar10"
    """A model by name or a run folder."""
    rounds: int = 5
    """How many times each is timed."""


def run(arguments: list[str]) -> None:
    """Measure and print."""
    options = parse(Bench, "bench", arguments)
    if options.rounds < 1:
        raise UsageError(f"--rounds must be at least 1, not {options.rounds}.")

    from ttaps.bench.suite import Suite  # here: the help needs no torch, which takes seconds to import
    from ttaps.model.registry import folder_of

    use_threads(options.threads)
    suite = Suite(options.model)
    accuracy = stored_accuracy(folder_of(options.model), suite.fingerprint)
    with bar() as progress:
        task = progress.add_task("Measuring", total=options.rounds * len(suite.jobs), note="")
        measured = suite.measure(options.rounds, lambda: progress.advance(task))
    result = {**measured, "fast_minus_exact": accuracy}
    print_json(result) if options.json else print(as_text(result))


def stored_accuracy(folder: Path, fingerprint: str) -> dict[str, Any] | None:
    """Return the accuracy of ttaps:fast minus that of ttaps, stored beside a model; None if it is of other weights or settings."""
    from ttaps.adaptation.presets import PRESETS

    try:
        found = json.loads((folder / ACCURACY).read_text("utf-8"))
        current = (found["fingerprint"], found["fast"]) == (fingerprint, PRESETS["ttaps"]["fast"])
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise TtapsError(f"{folder / ACCURACY} is damaged ({error}).\nDelete it.") from error
    return found if current else None


def as_text(result: dict[str, Any]) -> str:
    """Return a result as tables."""
    ratios = [[name, text, f"{result[name]:.2f}", _span(result["quartiles"][name])] for name, text in MEANING.items()]
    seconds = result["seconds_per_image"]
    modes = [[mode, f"{found['median']:.3f}", _span(found["quartiles"], 3)] for mode, found in seconds.items()]
    speed = f"{result['multiply_gflops']:.0f} GFLOP/s by matrix products"
    head = f"{result['model']}, threads: {result['threads']}, rounds: {result['rounds']}, {speed}"
    return "\n\n".join(
        [
            head,
            table(["", "", "median", "quartiles"], ratios, left=2),
            table(["mode", "seconds per image", "quartiles"], modes),
            f"ttaps:fast was confident of {result['fast_skipped']:.0%} of its images and did not adapt to them.\n"
            + _accuracy(result["fast_minus_exact"]),
        ]
    )


def _accuracy(found: dict[str, Any] | None) -> str:
    if not found:
        return "Accuracy of ttaps:fast minus that of ttaps: not measured with this model."
    points = f"{found['points']:+.2f} points ({found['low']:+.2f} to {found['high']:+.2f}, 95 %)"
    return f"Accuracy of ttaps:fast minus that of ttaps: {points}, on {found['n']} images of {found['data']}."


def _span(quartiles: list[float], digits: int = 2) -> str:
    low, high = quartiles
    return f"{low:.{digits}f} to {high:.{digits}f}"
