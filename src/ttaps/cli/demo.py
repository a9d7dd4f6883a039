"""``ttaps demo``."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from ttaps.adaptation.spec import parse_method
from ttaps.api import load
from ttaps.cli.options import DeviceOptions, JsonOption, make_room, parse, pick_device, print_json, use_threads
from ttaps.cli.tables import accuracy_records, accuracy_text
from ttaps.errors import UsageError
from ttaps.evaluate.benchmark import Benchmark, open_benchmark
from ttaps.evaluate.frame import load_rows
from ttaps.evaluate.run import evaluate
from ttaps.evaluate.statistics import AVERAGE, accuracy_table, significant
from ttaps.model.checkpoint import Model
from ttaps.report.figures.flips import make_tile
from ttaps.report.figures.images import demo_figure
from ttaps.report.figures.style import check_figure

METHOD = "ttaps:tuned"
IMAGES = 200  # all there are, under each of nine corruptions: 80 s of CPU time, under a minute on two idle cores
SHOWN = 5  # of them in the figure


@dataclass(frozen=True)
class Demo(DeviceOptions, JsonOption):
    """Adapt the embedded model to the embedded corrupted images: a table of accuracy before and after, and a figure.

    Example: ttaps demo
    """

    images: int = IMAGES
    """Images under each corruption, at most 200."""
    out: Path = Path("ttaps-demo.png")
    """The figure: PNG, PDF or SVG."""
    model: str = "cifar10"
    """A model of CIFAR-10: by name, or a run folder."""


def run(arguments: list[str]) -> None:
    """Adapt to some images under every corruption of the sample, and show what came of it."""
    options = parse(Demo, "demo", arguments)
    check_figure(options.out)
    make_room(options.out)
    if not 1 <= options.images <= 200:
        raise UsageError(f"--images must be from 1 to 200, which is all there are, not {options.images}.")
    use_threads(options.threads)
    model = load(options.model)
    model.network.to(pick_device(options.device))
    data = open_benchmark("sample")
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        evaluate(model, data, [parse_method(METHOD)], folder=folder, images_per_corruption=options.images)
        rows = load_rows([folder])
    seconds = time.monotonic() - began
    found = accuracy_table(rows)
    draw(options.out, model, data, rows, found)
    if options.json:
        facts = {"model": model.name, "card": introduction(model), "method": METHOD, "seconds": round(seconds, 1)}
        print_json({**facts, "figure": str(options.out), **accuracy_records(found)})
        return
    print(f"Model {model.name} ({model.fingerprint}): {introduction(model)}")
    print(f"Method {METHOD}, on real CIFAR-10 test images at severity 5, one at a time.\n")
    print(accuracy_text(found))
    print(f"\n{verdict(found)} It took {seconds:.0f} s. Images with their labels: {options.out}")


def introduction(model: Model) -> str:
    """Return what a model's card says first: what it is, how it was trained, how good it is."""
    return " ".join(". ".join(model.card.split("\n\n")[:2]).lstrip("# ").split())


def verdict(found: pd.DataFrame) -> str:
    """Say what the numbers say, and no more."""
    average = found.loc[AVERAGE].iloc[0]
    n, fixed, broken = (int(average[name]) for name in ("n", "fixed", "broken"))
    if not fixed and not broken:
        return f"Adaptation changed none of {n} predictions from right to wrong or back."
    sure = "more than chance explains" if significant(average) else "no more than chance explains"
    return f"Adaptation fixed {fixed} of {n} predictions and broke {broken}: {sure} (p = {average['p']:.2g})."


def draw(path: Path, model: Model, data: Benchmark, rows: pd.DataFrame, found: pd.DataFrame) -> None:
    """Draw some images of every corruption with their labels: first those whose label changed, for better or worse."""
    changed_first = rows.assign(same=rows["before"] == rows["after"]).sort_values("same", kind="stable")
    shown = {name: changed_first[changed_first["corruption"] == name].head(SHOWN) for name, _ in found.index[:-1]}
    tiles = {name: [make_tile(data, row) for _, row in part.iterrows()] for name, part in shown.items()}
    n = int(found["n"].iloc[0])
    title = f"TTAPS on {n} real image{'s' * (n != 1)} under each of {len(tiles)} corruptions"
    caption = (
        "Beside each image: its true label (bold), the label before and the label after adaptation.",
        "Images whose label changed come first, for better or worse; all images count in the numbers.",
        f"Model {model.name} ({model.fingerprint}); severity 5; method {METHOD}.",
    )
    demo_figure(path, tiles, found, title, caption)
