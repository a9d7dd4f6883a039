"""``ttaps info``."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from ttaps.adaptation import supported_methods
from ttaps.api import load
from ttaps.cli.options import parse, print_json
from ttaps.errors import UsageError
from ttaps.model.checkpoint import Model
from ttaps.model.registry import folder_of, known_models
from ttaps.progress import log_info
from ttaps.report.learning import learning_figure, read_learning
from ttaps.report.style import check_figure, save_figure


@dataclass(frozen=True)
class Info:
    """Say what a model is and what it can do; without a model, list those that have a name."""

    models: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[MODEL...]")] = ()
    """Models by name (cifar10; ttaps info lists them) or run folders; an unfinished run is a model from its first checkpoint on."""
    figure: Path | None = None
    """Draw how these models learnt, over epochs, into this .png, .pdf or .svg file."""
    json: bool = False
    """Print for machines: an object, or with several models a list of them."""


def run(arguments: list[str]) -> None:
    """Print the cards and numbers of models."""
    options = parse(Info, "info", arguments)
    if not options.models:
        if options.figure:
            raise UsageError("--figure draws how a model learnt: name a model or a run folder.")
        names = list(known_models())
        print_json(names) if options.json else print("\n".join(names))
        return
    if options.figure:
        check_figure(options.figure)
        runs = [read_learning(name, folder_of(name)) for name in options.models]
        save_figure(learning_figure(runs), options.figure)
        log_info(f"{options.figure} written.")
    models = [load(name) for name in options.models]
    if options.json:
        print_json(facts(models[0]) if len(models) == 1 else [facts(model) for model in models])
        return
    for model in models:
        print(model.card)
        print("\n".join(f"{name:>20}: {_short(value)}" for name, value in facts(model).items()))


def facts(model: Model) -> dict[str, Any]:
    """Return what there is to know of a model."""
    return {
        "name": model.name,
        "fingerprint": model.fingerprint,
        "weights": sum(weight.numel() for weight in model.network.parameters()),
        "classes": list(model.classes),
        "methods": supported_methods(model.network, model.objective),
        **model.info,
        "model": dataclasses.asdict(model.network.config),
    }


def _short(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {inner}" for name, inner in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
