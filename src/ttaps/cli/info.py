"""``ttaps info``."""

from pathlib import Path
from typing import Any

from ttaps.cli import commands, common
from ttaps.errors import UsageError
from ttaps.model.registry import folder_of, known_models
from ttaps.progress import log_info


def info(options: commands.Info) -> None:
    """Print the cards and numbers of models, or the names of all."""
    if not options.models:
        if options.figure:
            raise UsageError("--figure draws learning curves: name a model or a run folder.")
        names = list(known_models())
        common.print_json(names) if options.json else print("\n".join(names))
        return
    if options.figure:
        from ttaps.report.figures import learning, style

        style.check_figure(options.figure)
        curves = [learning.read_curve(name, folder_of(name), find_model) for name in options.models]
        style.save_figure(learning.learning_figure(curves), options.figure)
        log_info(f"{options.figure} written.")
    cards, every = zip(*(describe(name, options) for name in options.models), strict=True)
    if options.json:
        common.print_json(every[0] if len(every) == 1 else every)
        return
    for card, facts in zip(cards, every, strict=True):
        print(card)
        print("\n".join(f"{name:>20}: {_short(value)}" for name, value in facts.items()))


def find_model(name: str, fingerprint: str) -> Path | None:
    """Return the folder of the model of this name, if it still has this fingerprint."""
    from ttaps.model.checkpoint import load_model

    folder = folder_of(name)
    return folder if load_model(folder).fingerprint == fingerprint else None


def describe(name: str, options: commands.Info) -> tuple[str, dict[str, Any]]:
    """Return a model's card and its other properties."""
    from ttaps.adaptation import supported_methods  # here: a list of names needs no torch

    model = common.load_model(name, options)
    methods = supported_methods(model.network, model.objective)
    return model.card, {**model.to_dict(), "methods": methods}


def _short(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {inner}" for name, inner in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
