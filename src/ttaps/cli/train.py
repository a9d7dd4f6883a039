"""``ttaps train``."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import tyro

from ttaps.cli.options import NO_PREFIX, DataRootOption, DeviceOptions, parse, peek, pick_device, use_threads
from ttaps.errors import UsageError
from ttaps.progress import log_info
from ttaps.training.config import TrainConfig
from ttaps.training.presets import load_preset


@dataclass(frozen=True)
class Train(DeviceOptions, DataRootOption):
    """Train a model. It can be killed at any time; the same command resumes the run.

    Example: ttaps train --config smoke --out runs/smoke

    torchrun --nproc-per-node N -m ttaps train ... splits every batch over N processes, with the same result as one.
    Every setting can be overridden here; a run folder keeps all of them in train.toml.
    """

    out: Path
    """Run folder: the model, its card, its settings and its metrics."""
    config: str | None = None
    """A preset by name (smoke, paper/jt+ent, cpu/jt+ent-cifar10, ...) or a TOML file; its settings are the defaults below."""
    resume: bool = False
    """Resume the run in --out with its own settings; no --config needed, and one with other settings is refused."""
    fork_from: Path | None = None
    """Start from the state of the run in this folder; refused unless both take the same steps up to there."""
    settings: Annotated[TrainConfig, NO_PREFIX] = field(default_factory=TrainConfig)


def run(arguments: list[str]) -> None:
    """Train."""
    out, preset = peek(arguments, "--out"), peek(arguments, "--config")
    if "--resume" in arguments and out:
        own = Path(out) / "train.toml"
        if not own.exists():
            raise UsageError(f"There is nothing to resume in {out}: no train.toml. Start it with --config.")
        preset = preset or str(own)
    base = load_preset(preset) if preset else TrainConfig()
    options = parse(Train, "train", arguments, Train(out=Path(out) if out else tyro.MISSING, settings=base))

    from ttaps.data import data_root
    from ttaps.distributed import init_distributed
    from ttaps.training.data import training_images
    from ttaps.training.fork import fork
    from ttaps.training.run import Run

    use_threads(options.threads)
    settings, explicit = options.settings, options.resume or peek(arguments, "--model.num-classes") is not None
    split = training_images(settings.data, data_root(options.data_root), settings.model, any_classes=not explicit)
    classes = len(split.train.classes)
    if classes != settings.model.num_classes:
        log_info(f"{settings.data} has {classes} classes: model.num_classes is set to that.")
        settings = replace(settings, model=replace(settings.model, num_classes=classes))
    device = pick_device(options.device)
    with init_distributed(device) as ranks:
        if options.fork_from and ranks.first:
            fork(options.fork_from, settings, options.out, split)
        Run(settings, options.out, split, device, ranks).train()
    if ranks.first:
        print(options.out)
