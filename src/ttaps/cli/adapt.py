"""``ttaps adapt``."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro

from ttaps.adaptation import Method, Result, ensure_supported
from ttaps.adaptation.spec import parse_method
from ttaps.api import adapt, content_key, load
from ttaps.cli.options import (
    NO_PREFIX,
    DeviceOptions,
    JsonOption,
    ModelName,
    make_room,
    parse,
    peek,
    pick_device,
    print_json,
    use_threads,
)
from ttaps.data import read_image
from ttaps.errors import DataError, UsageError
from ttaps.model.checkpoint import Model
from ttaps.progress import bar, log_info
from ttaps.report.figures.images import adaptation_figure
from ttaps.report.figures.style import check_figure
from ttaps.rng import derive_seed


@dataclass(frozen=True)
class Adapt(DeviceOptions, JsonOption):
    """Adapt a model to each picture by itself and print its label before and after. The model is not changed."""

    model: ModelName
    """A model by name (cifar10; ttaps info lists them) or a run folder."""
    images: Annotated[
        tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="IMAGE...", help_behavior_hint="(required)")
    ]
    """Picture files, of any size."""
    method: str = "ttaps:tuned"
    """How to adapt (source, tent, memo, ttaps, ttaps:tuned, ...: see ttaps methods); its own settings are the options below."""
    figure: Path | None = None
    """Write a picture of what happened: PNG, PDF or SVG."""
    seed: int = 0
    """Seed of the views."""


def run(arguments: list[str]) -> None:
    """Adapt to every picture, one at a time."""
    name = peek(arguments, "--method")
    method = parse_method(name or Adapt.method)
    # The options of the command are its own and its method's, so that --help shows both with their defaults.
    settings = ("settings", Annotated[type(method), NO_PREFIX], field(default=method))
    kind: Any = make_dataclass("Adapt", [settings], bases=(Adapt,), frozen=True)
    kind.__doc__ = Adapt.__doc__
    options = parse(kind, f"adapt --method {shlex.quote(name)}" if name else "adapt", arguments)
    if not options.images:
        raise UsageError("Give at least one picture.")
    if options.figure:
        check_figure(options.figure)
        make_room(options.figure)
    use_threads(options.threads)
    model = load(options.model)
    model.network.to(pick_device(options.device))
    ensure_supported(options.settings, model.network, model.objective)
    read, complaints = _read_all(options.images, model.network.config.image_size)
    paths, pictures = [path for path, _ in read], [picture for _, picture in read]
    results = _adapt_all(model, pictures, options.settings, options.seed)
    _print(paths, results, options.json)
    if options.figure:
        views = [_some_views(options.settings, picture, options.seed) for picture in pictures]
        adaptation_figure(options.figure, [path.name for path in paths], pictures, views, results)
        log_info(f"Wrote {options.figure}.")
    if complaints:
        raise DataError("\n".join(map(str, complaints)))


def _read_all(paths: Sequence[Path], size: int) -> tuple[list[tuple[Path, torch.Tensor]], list[DataError]]:
    """Return the pictures, and what is wrong with those that cannot be read; one at least must be."""
    pictures: list[tuple[Path, torch.Tensor]] = []
    complaints: list[DataError] = []
    for path in paths:
        try:
            pixels, note = read_image(path, size)
        except DataError as error:
            complaints.append(error)
            continue
        if note:
            log_info(f"{path}: {note}.")
        pictures.append((path, torch.from_numpy(pixels)))
    if not pictures:
        raise DataError("\n".join(map(str, complaints)))
    return pictures, complaints


def _adapt_all(model: Model, pictures: list[torch.Tensor], method: Method, seed: int) -> list[Result]:
    with bar() as progress:
        task = progress.add_task("Adapting", total=len(pictures), note="")
        results: list[Result] = []
        # Side by side, one thread each; all at once where one picture leaves something to the next.
        size = len(pictures) if method.sequential else torch.get_num_threads()
        for group in batched(pictures, size):
            results += adapt(model, group, method, seed=seed)
            progress.advance(task, len(group))
    return results


def batched(items: list[torch.Tensor], size: int) -> Iterator[list[torch.Tensor]]:
    """Yield groups of ``size`` items; itertools has this from Python 3.12 on."""
    return (items[first : first + size] for first in range(0, len(items), size))


def _some_views(method: Method, picture: torch.Tensor, seed: int) -> torch.Tensor:
    """Return the first views of a picture that the method saw; none where it makes none."""
    views = method.draw_views(picture[None], derive_seed(seed, content_key(picture)))
    return picture[None][:0] if views is None else views[:8]


def _print(paths: Sequence[Path], results: list[Result], as_json: bool) -> None:
    rows = [
        {
            "image": str(path),
            "label": None if result.probabilities.isnan().any() else result.label,
            "probability": float(result.probabilities.max()),
            "label_before": result.classes[int(result.source.argmax())],
            "probability_before": float(result.source.max()),
            "adapted": bool((result.trace != result.source).any()),
            "probabilities": dict(zip(result.classes, result.probabilities.tolist(), strict=True)),
            "trace": result.trace.tolist(),
        }
        for path, result in zip(paths, results, strict=True)
    ]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        after = "no prediction, take smaller steps (--lr)"
        if row["label"] is not None:
            after = f"{row['label']} {row['probability']:.1%}"
        before = f"before: {row['label_before']} {row['probability_before']:.1%}"
        print(f"{row['image']}: {after} ({before if row['adapted'] else 'left as it was'})")
