"""``ttaps bench``."""

from __future__ import annotations

from dataclasses import dataclass

from ttaps.bench.suite import GROWTH
from ttaps.bench.suite import run as measure
from ttaps.cli.options import parse, print_json, use_threads
from ttaps.errors import UsageError
from ttaps.progress import bar

MEANING = {
    "naive_over_exact": "time of the authors' way over exact mode, per image",
    "naive_over_fast": "time of the authors' way over the settings 'fast', per image",
    "exact_utilisation": "operations exact mode needs, over time, over the matrix-multiply rate",
    "views_per_second_ratio": "batched views over the same views by Pillow",
    "train_utilisation": "the same utilisation for a training step of jt+ent, views included",
}


@dataclass(frozen=True)
class Bench:
    """Measure adaptation, views and training in turns on this machine, and print ratios."""

    model: str = "cifar10"
    """An embedded model or a run folder."""
    rounds: int = 5
    """How often each thing is timed."""
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
    with bar() as progress:
        task = progress.add_task("Measuring", total=options.rounds * (7 + len(GROWTH)), note="")
        result = measure(options.model, options.rounds, lambda: progress.advance(task))
    if options.json:
        print_json(result)
        return
    for name, meaning in MEANING.items():
        print(f"{name:<24} {result[name]:7.2f}   {meaning}")
    for mode, seconds in result["seconds_per_image"].items():
        memory = result["peak_memory_mb"][mode]
        print(
            f"{mode:<24} {seconds['median']:7.2f} s per image (quartiles {seconds['spread']:.0%} apart), {memory:.0f} MB at its peak"
        )
    growth = ", ".join(f"{count}: {seconds:.2f} s" for count, seconds in result["seconds_of_one_step"].items())
    print(f"one step on 1 to 64 images: {growth}")
    print(
        f"{result['threads']} threads, {result['rounds']} rounds, {result['multiply_gflops']:.0f} GFLOP/s by matrix multiply"
    )
