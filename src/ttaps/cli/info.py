"""``ttaps info``."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated

import tyro

from ttaps.adaptation import serves
from ttaps.api import known_models, load
from ttaps.cli.options import parse, print_json


@dataclass(frozen=True)
class Info:
    """Say what a model is and what it can do; without a model, list those that have a name."""

    model: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")] = None
    """A model by name (cifar10; ttaps info lists them) or a run folder."""
    json: bool = False
    """Print for machines."""


def run(arguments: list[str]) -> None:
    """Print a model's card and numbers."""
    options = parse(Info, "info", arguments)
    if options.model is None:
        names = list(known_models())
        print_json(names) if options.json else print("\n".join(names))
        return
    model = load(options.model)
    facts = {
        "name": model.name,
        "fingerprint": model.fingerprint,
        "weights": sum(weight.numel() for weight in model.network.parameters()),
        "classes": list(model.classes),
        "methods": serves(model.network, model.objective),
        **model.info,
        "model": dataclasses.asdict(model.network.config),
    }
    if options.json:
        print_json(facts)
        return
    print(model.card)
    print("\n".join(f"{name:>20}: {_short(value)}" for name, value in facts.items()))


def _short(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {inner}" for name, inner in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
