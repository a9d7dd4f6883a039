"""``ttaps info``."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from ttaps.cli.options import JsonOption, parse, print_json
from ttaps.errors import UsageError
from ttaps.progress import log_info

if TYPE_CHECKING:
    from ttaps.model.checkpoint import Model


@dataclass(frozen=True)
class Info(JsonOption):
    """Describe a model: its card, its numbers and the methods it supports. Without a model, list the names of all models.

    Example: ttaps info cifar10
    """

    models: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[MODEL...]")] = ()
    """Models by name (cifar10; ttaps info lists them) or run folders; an unfinished run is a model from its first checkpoint on."""
    figure: Path | None = None
    """Draw the learning curves of these models into this .png, .pdf or .svg file."""


def run(arguments: list[str]) -> None:
    """Print the cards and numbers of models."""
    options = parse(Info, "info", arguments)

    from ttaps.api import load  # here: the help needs no torch, which takes seconds to import
    from ttaps.model.registry import folder_of, known_models
    from ttaps.report.figures.learning import learning_figure, read_curve
    from ttaps.report.figures.style import check_figure, save_figure

    if not options.models:
        if options.figure:
            raise UsageError("--figure draws how a model learned: name a model or a run folder.")
        names = list(known_models())
        print_json(names) if options.json else print("\n".join(names))
        return
    if options.figure:
        check_figure(options.figure)
        curves = [read_curve(name, folder_of(name), find_model) for name in options.models]
        save_figure(learning_figure(curves), options.figure)
        log_info(f"{options.figure} written.")
    models = [load(name) for name in options.models]
    if options.json:
        print_json(facts(models[0]) if len(models) == 1 else [facts(model) for model in models])
        return
    for model in models:
        print(model.card)
        print("\n".join(f"{name:>20}: {_short(value)}" for name, value in facts(model).items()))


def find_model(name: str, fingerprint: str) -> Path | None:
    """Return the folder of the model of this name, if it is still the one with this fingerprint."""
    from ttaps.model.checkpoint import load_model
    from ttaps.model.registry import folder_of

    folder = folder_of(name)
    return folder if load_model(folder).fingerprint == fingerprint else None


def facts(model: Model) -> dict[str, Any]:
    """Return everything there is to know about a model."""
    from ttaps.adaptation import supported_methods

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
