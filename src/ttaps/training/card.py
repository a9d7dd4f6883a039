"""The model card: what a person must know before using a model."""

from __future__ import annotations

import dataclasses
from typing import Any

from ttaps.config import flat
from ttaps.training.config import TrainConfig
from ttaps.training.folder import ONLY_WATCHED

ELSEWHERE = ("objective", "data", "seed", "init_from", "model.num_classes")  # the card's first lines have them


def model_card(config: TrainConfig, info: dict[str, Any], images: int) -> str:
    """Write the README of a model folder."""
    model = config.model
    finished = "finished" if info["step"] >= info["steps"] else f"unfinished: step {info['step']} of {info['steps']}"
    accuracy = info.get("validation_accuracy")
    measured = f"{100 * accuracy:.2f} % of the validation images" if accuracy is not None else "not measured yet"
    paper = flat(dataclasses.asdict(TrainConfig()))
    changed = [
        f"- `{name}` = `{value}`"
        for name, value in flat(dataclasses.asdict(config)).items()
        if value != paper[name] and name not in (*ELSEWHERE, *ONLY_WATCHED)
    ]
    start = info.get("init_from")
    started = (
        [f"It started from the weights of `{start['model']}` ({start['fingerprint']}), {start['hours']:g} hours."]
        if start
        else []
    )
    return "\n".join(
        [
            f"# {config.objective} on {info['data']}, seed {config.seed}",
            "",
            f"ResNet-{model.depth}, {model.width} filters, {model.norm} norm, "
            f"{model.num_prototypes} prototypes, {model.num_classes} classes.",
            f"Trained with `ttaps train` on {images:,} images for {config.epochs:g} epochs ({finished}):",
            f"{info['hours']:g} hours on {info['hardware']}.",
            *started,
            f"Classified right: {measured} (clean).",
            "",
            "Settings that differ from the paper's for JT+ENT:",
            *(changed or ["- none"]),
            "",
            "All settings are in `train.toml`; the same file as `--config` trains this model again.",
            "",
        ]
    )
