"""``ttaps methods``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ttaps.adaptation import METHODS
from ttaps.adaptation.presets import PRESETS
from ttaps.api import load
from ttaps.bench.costs import costs
from ttaps.cli.options import JsonOption, parse, print_json, table, use_threads
from ttaps.data.sample import read_sample
from ttaps.errors import UsageError
from ttaps.progress import bar


@dataclass(frozen=True)
class Methods(JsonOption):
    """List the methods: what each needs, adapts and costs. The cost is measured on this machine, with one image and one thread.

    Example: ttaps methods --no-cost
    """

    cost: bool = True
    """Measure the cost per image relative to source, on networks of the model's shape."""
    model: str = "cifar10"
    """A model by name or a run folder: the shape of the networks."""
    rounds: int = 2
    """How often each method is timed."""


def run(arguments: list[str]) -> None:
    """Measure if asked, and print the table."""
    options = parse(Methods, "methods", arguments)
    if options.rounds < 1:
        raise UsageError(f"--rounds must be at least 1, not {options.rounds}.")
    measured = _measure(options.model, options.rounds) if options.cost else {}
    rows = [_describe(name, measured.get(name)) for name in METHODS]
    if options.json:
        print_json(rows)
        return
    cells = [["-" if row[key] is None else _short(row[key]) for key in list(row)[:-1]] for row in rows]
    head = ["method", "trained by", "adapts", "paper", "steps", "lr", "cost"]
    print(table(head, cells, left=4))
    named = [f"{name}:{preset}" for name in METHODS for preset in PRESETS.get(name, {})]
    print(f"\npresets: {', '.join(named)}")
    if measured:
        print("\ncost: time per image as a multiple of one prediction by the same network, measured on this machine")


def _measure(model: str, rounds: int) -> dict[str, float]:
    config = load(model).network.config
    use_threads(1)
    images = torch.from_numpy(read_sample("gaussian_noise").images)
    with bar() as progress:
        task = progress.add_task("Measuring", total=len(METHODS) - 1, note="")
        return costs(config, images, rounds, lambda: progress.advance(task))


def _describe(name: str, cost: float | None) -> dict[str, Any]:
    method = METHODS[name]()
    return {
        "name": name,
        "trained_by": list(method.trained_by) or ["any"],
        "adapts": method.adapts,
        "paper": method.paper or None,
        "steps": method.steps or None,
        "lr": method.lr,
        "cost": cost,
        "presets": list(PRESETS.get(name, {})),
    }


def _short(value: Any) -> str:
    if isinstance(value, list):
        return " or ".join(value)
    return f"{value:.3g}" if isinstance(value, float) else str(value)
