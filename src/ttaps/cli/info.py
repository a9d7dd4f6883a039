"""``ttaps info``."""

from dataclasses import fields
from pathlib import Path
from typing import Any

from ttaps.cli import commands, common
from ttaps.cli.commands import OwnNetworkOptions
from ttaps.errors import UsageError
from ttaps.methods import METHOD_TABLE
from ttaps.model.config import ModelConfig
from ttaps.model.folder import describe_intact, noted_fingerprint
from ttaps.model.registry import folder_of, is_reference, known_models
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
    cards, every = zip(*(describe_one(name, options) for name in options.models), strict=True)
    if options.json:
        common.print_json(every[0] if len(every) == 1 else every)
        return
    for card, facts in zip(cards, every, strict=True):
        print(card)
        print("\n".join(f"{name:>20}: {_short(value)}" for name, value in facts.items()))


def find_model(name: str, fingerprint: str) -> Path | None:
    """Return the folder of the model of this name, if it is still the one with this fingerprint."""
    folder = folder_of(name)
    return folder if noted_fingerprint(folder) == fingerprint else None


def describe_one(name: str, options: commands.Info) -> tuple[str, dict[str, Any]]:
    """Return a model's card, and everything else there is to know about it; with torch only if its folder does not say all of it."""
    own = is_reference(name) or any(getattr(options, one.name) != one.default for one in fields(OwnNetworkOptions))
    if not own and (intact := describe_intact(folder_of(name))):
        card, facts = intact
        return card, {**facts, "methods": methods_of(ModelConfig(**facts["model"]), facts.get("objective", ""))}
    from ttaps.adaptation import supported_methods

    model = common.load_model(name, options)
    return model.card, {**model.to_dict(), "methods": supported_methods(model.network, model.objective)}


def methods_of(config: ModelConfig, objective: str) -> list[str]:
    """Return what ``supported_methods`` does for our own network, without one."""
    parts = {"", config.norm, *config.heads}
    return [
        name
        for name, entry in METHOD_TABLE.items()
        if entry.part in parts and (not objective or not entry.trained_by or objective in entry.trained_by)
    ]


def _short(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {inner}" for name, inner in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
