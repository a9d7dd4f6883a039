"""``ttaps adapt``."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from ttaps.adaptation import Result, ensure_supported
from ttaps.api import adapt_prepared, content_key
from ttaps.cli import common
from ttaps.data import read_image
from ttaps.data.images import image_files
from ttaps.errors import DataError, UsageError
from ttaps.progress import bar, log_info
from ttaps.report.figures.images import MOST_ROWS, adaptation_figure
from ttaps.report.figures.style import check_figure
from ttaps.rng import derive_seed


def adapt(options: Any) -> None:
    """Adapt to every image, print the labels, and draw a figure if asked; ``options`` are those of Adapt and of its method."""
    if not options.images:
        raise UsageError("Give a model and at least one image, as in: ttaps adapt cifar10 ship.png")
    if options.figure:
        check_figure(options.figure)
    model, method = common.load_model(options.model, options), options.settings
    model.network.to(common.use(options.device, options.threads))
    ensure_supported(method, model.network, model.objective)
    paths, images, errors = _read_all(options.images, model.image_size)
    keys = [derive_seed(options.seed, content_key(image)) for image in images]
    results: list[Result] = []
    # As many at once as there are threads; all at once where one image leaves something to the next.
    size = len(images) if method.sequential else torch.get_num_threads()
    with bar() as progress:
        task = progress.add_task("Adapting", total=len(images), note="")
        for first in range(0, len(images), size):
            group = slice(first, first + size)
            results += adapt_prepared(model, images[group], method, keys[group])
            progress.update(task, completed=len(results))
    rows = [{"image": str(path), **result.to_dict()} for path, result in zip(paths, results, strict=True)]
    common.print_json(rows) if options.json else print("\n".join(map(_line, rows)))
    if options.figure:
        drawn = list(zip(images[:, None], keys, results, strict=True))[:MOST_ROWS]
        seen = [method.draw_views(image, key) if result.adapted else None for image, key, result in drawn]
        views = [images[:0] if some is None else some[:8] for some in seen]
        adaptation_figure(options.figure, [path.name for path in paths], list(images), views, results)
        some = f" It shows the first {len(drawn)} of {len(images)} images." if len(drawn) < len(images) else ""
        log_info(f"Wrote {options.figure}.{some}")
    if errors:
        raise DataError("\n".join(errors))


def _read_all(paths: Sequence[Path], size: int) -> tuple[list[Path], torch.Tensor, list[str]]:
    """Return the images, those in folders too, (N, 3, size, size), and what is wrong with files that cannot be read; at least one must be
    readable."""
    readable, images, errors = [], [], []
    for path in chain.from_iterable(image_files(path) if path.is_dir() else [path] for path in paths):
        try:
            pixels, note = read_image(path, size)
        except DataError as error:
            errors.append(str(error))
            continue
        if note:
            log_info(f"{path}: {note}.")
        readable.append(path)
        images.append(torch.from_numpy(pixels))
    if not images:
        raise DataError("\n".join(errors) or f"There is no image in {', '.join(map(str, paths))}.")
    return readable, torch.stack(images), errors


def _line(row: dict[str, Any]) -> str:
    diverged = row["label"] is None
    after = "no prediction: take smaller steps (--lr)" if diverged else f"{row['label']} {row['probability']:.1%}"
    before = f"before: {row['label_before']} {row['probability_before']:.1%}"
    shift = f"; shift {row['shift']:.0%}" if "shift" in row else ""  # clean validation images nearer to a prototype
    return f"{row['image']}: {after} ({before if row['adapted'] else 'not adapted'}{shift})"
