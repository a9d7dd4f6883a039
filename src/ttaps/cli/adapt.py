"""``ttaps adapt``."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro

from ttaps.adaptation import Method, Result, ensure_supported
from ttaps.adaptation.spec import parse_method
from ttaps.api import adapt_prepared, content_key, load
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
from ttaps.progress import bar, log_info
from ttaps.report.figures.images import MOST_ROWS, adaptation_figure
from ttaps.report.figures.style import check_figure
from ttaps.rng import derive_seed


@dataclass(frozen=True)
class Adapt(DeviceOptions, JsonOption):
    """Adapt a model to each image on its own and print its label before and after. The model is not changed.

    Example: ttaps adapt cifar10 cat.png --method ttaps:tuned --steps 4
    """

    model: ModelName
    """A model by name (cifar10; ttaps info lists them) or a run folder."""
    images: Annotated[
        tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="IMAGE...", help_behavior_hint="(required)")
    ]
    """Image files, of any size."""
    method: str = "ttaps:tuned"
    """How to adapt: a method, preset and settings, like ttaps:tuned[steps=6] (ttaps methods lists them); the options below are its own."""
    figure: Path | None = None
    """Draw what happened into this PNG, PDF or SVG file."""
    seed: int = 0
    """Seed of the views."""


def run(arguments: list[str]) -> None:
    """Adapt to every image, print the labels, and draw a figure if asked."""
    options = _parse(arguments)
    if not options.images:
        raise UsageError("Give a model and at least one image, as in: ttaps adapt cifar10 ship.png")
    if options.figure:
        check_figure(options.figure)
        make_room(options.figure)
    use_threads(options.threads)
    model, method = load(options.model), options.settings
    model.network.to(pick_device(options.device))
    ensure_supported(method, model.network, model.objective)
    paths, images, errors = _read_all(options.images, model.network.config.image_size)
    keys = [derive_seed(options.seed, content_key(image)) for image in images]
    results: list[Result] = []
    # As many at once as there are threads; all at once where one image leaves something to the next.
    size = len(images) if method.sequential else torch.get_num_threads()
    with bar() as progress:
        task = progress.add_task("Adapting", total=len(images), note="")
        for first in range(0, len(images), size):
            group = slice(first, first + size)
            results += adapt_prepared(model.network, images[group], method, keys[group], model.classes)
            progress.update(task, completed=len(results))
    _print(paths, results, options.json)
    if options.figure:
        drawn = list(zip(images, keys, results, strict=True))[:MOST_ROWS]
        views = [_some_views(method, *each) for each in drawn]
        adaptation_figure(options.figure, [path.name for path in paths], list(images), views, results)
        some = f" It shows the first {len(drawn)} of {len(images)} images." if len(drawn) < len(images) else ""
        log_info(f"Wrote {options.figure}.{some}")
    if errors:
        raise DataError("\n".join(map(str, errors)))


def _parse(arguments: list[str]) -> Any:
    """Parse the options of the command together with its method's, so that --help shows both with their defaults."""
    name = peek(arguments, "--method")
    method = parse_method(Adapt.method if name is None else name)
    settings = ("settings", Annotated[type(method), NO_PREFIX], field(default=method))
    kind: Any = make_dataclass("Adapt", [settings], bases=(Adapt,), frozen=True)
    kind.__doc__ = Adapt.__doc__
    return parse(kind, f"adapt --method {shlex.quote(name)}" if name else "adapt", arguments)


def _read_all(paths: Sequence[Path], size: int) -> tuple[list[Path], torch.Tensor, list[DataError]]:
    """Return the images, (N, 3, size, size), and what is wrong with files that cannot be read; at least one must be readable."""
    read: dict[int, torch.Tensor] = {}
    errors: list[DataError] = []
    for number, path in enumerate(paths):
        try:
            pixels, note = read_image(path, size)
        except DataError as error:
            errors.append(error)
            continue
        if note:
            log_info(f"{path}: {note}.")
        read[number] = torch.from_numpy(pixels)
    if not read:
        raise DataError("\n".join(map(str, errors)))
    return [paths[number] for number in read], torch.stack(list(read.values())), errors


def _some_views(method: Method, image: torch.Tensor, key: int, result: Result) -> torch.Tensor:
    """Return the first views that an adapted image saw; none if the method draws none."""
    views = method.draw_views(image[None], key) if result.adapted else None
    return image[None][:0] if views is None else views[:8]


def _print(paths: Sequence[Path], results: list[Result], as_json: bool) -> None:
    rows = [{"image": str(path), **result.to_dict()} for path, result in zip(paths, results, strict=True)]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        after = "no prediction, take smaller steps (--lr)"
        if row["label"] is not None:
            after = f"{row['label']} {row['probability']:.1%}"
        before = f"before: {row['label_before']} {row['probability_before']:.1%}"
        print(f"{row['image']}: {after} ({before if row['adapted'] else 'not adapted'})")
