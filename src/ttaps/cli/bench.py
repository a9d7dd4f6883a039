"""``ttaps bench``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ttaps.bench.fast_vs_exact import fast_minus_exact
from ttaps.bench.suite import FEW, MODES, Suite
from ttaps.cli.options import parse, print_json, table, use_threads
from ttaps.errors import UsageError
from ttaps.progress import bar

POINTS = "fast_minus_exact_points"
MEANING = {
    "naive_over_exact": "time per image, the authors' way over exact mode",
    "naive_over_fast": "time per image, the authors' way over ttaps:fast",
    POINTS: "accuracy of ttaps:fast minus exact mode's, 95 %",
    "exact_utilisation": "operations exact mode needs / time / multiply rate",
    "train_utilisation": "the same for a step of jt+ent, with its views",
    "views_per_second_ratio": "batched views over the same views by Pillow",
}


@dataclass(frozen=True)
class Bench:
    """Measure adaptation, views and training in turns on this machine, and print ratios: medians of rounds with their quartiles."""

    model: str = "cifar10"
    """A model by name or a run folder."""
    rounds: int = 5
    """How often each thing is timed."""
    results: Path | None = None
    """Results of ttaps and ttaps:fast with the same model, for fast_minus_exact_points; else those that came with the model."""
    threads: int | None = None
    """Threads torch may use; stated in the result."""
    json: bool = False
    """Print for machines."""


def run(arguments: list[str]) -> None:
    """Measure and print."""
    options = parse(Bench, "bench", arguments)
    if options.rounds < 1:
        raise UsageError(f"--rounds must be at least 1, not {options.rounds}.")
    use_threads(options.threads)
    suite = Suite(options.model)
    accuracy = fast_minus_exact(options.model, suite.fingerprint, options.results)
    with bar() as progress:
        task = progress.add_task("Measuring", total=options.rounds * len(suite.jobs), note="")
        measured = suite.measure(options.rounds, lambda: progress.advance(task))
    result = {**measured, POINTS: accuracy and accuracy["points"], "fast_minus_exact": accuracy}
    print_json(result) if options.json else print(as_text(result))


def as_text(result: dict[str, Any]) -> str:
    """Return a result as tables for people."""
    rounds, threads = result["rounds"], result["threads"]
    speed = f"{result['multiply_gflops']:.0f} GFLOP/s at most by matrix multiply"
    words = f"{result['model']}, {_many(threads, 'thread')}, {_many(rounds, 'round')} in turns, {speed}"
    return "\n\n".join([words, _ratios(result), _modes(result), _growth(result), _notes(result)])


def _ratios(result: dict[str, Any]) -> str:
    rows = []
    for name, meaning in MEANING.items():
        spread = _span(result["quartiles"][name]) if name != POINTS else _interval(result["fast_minus_exact"])
        number = "-" if result[name] is None else f"{result[name]:{'+' if name == POINTS else ''}.2f}"
        rows.append([name, meaning, number, spread])
    return table(["", "", "median", "quartiles"], rows, left=2)


def _modes(result: dict[str, Any]) -> str:
    rows = []
    for mode in MODES:
        seconds, memory = result["seconds_per_image"][mode], result["peak_memory_mb"][mode]
        rows.append([mode, f"{seconds['median']:.3f}", _span(seconds["quartiles"], 3), f"{memory:.0f}"])
    return table(["mode", "seconds per image", "quartiles", "peak memory, MB"], rows)


def _growth(result: dict[str, Any]) -> str:
    growth = result["time_per_image_relative_to_one"]
    rows = [[str(count), f"{found['median']:.2f}", _span(found["quartiles"])] for count, found in growth.items()]
    return table(["images", "time per image / that of one", "quartiles"], rows)


def _notes(result: dict[str, Any]) -> str:
    accuracy = result["fast_minus_exact"]
    where = "not measured for this model; --results reads it from an evaluation of ttaps and ttaps:fast"
    if accuracy:
        corruptions = _many(accuracy["corruptions"], "corruption")
        where = f"from a stored evaluation on {accuracy['n']} paired images of {accuracy['data']}, {corruptions}"
    return (
        f"{POINTS}: {where}.\n"
        f"naive_over_fast: fast mode was sure of {result['fast_left_alone']:.0%} of its images and left them alone.\n"
        f"Peak memory is that of one image, beyond a process that has only started. Growth is that of one step of {FEW} copies."
    )


def _many(count: int, thing: str) -> str:
    return f"{count} {thing}{'s' * (count != 1)}"


def _span(quartiles: list[float], digits: int = 2) -> str:
    low, high = quartiles
    return f"{low:.{digits}f} to {high:.{digits}f}"


def _interval(accuracy: dict[str, Any] | None) -> str:
    return f"{accuracy['low']:+.2f} to {accuracy['high']:+.2f}" if accuracy else "-"
