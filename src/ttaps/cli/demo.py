"""``ttaps demo``."""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from ttaps.adaptation.spec import parse_method
from ttaps.api import load
from ttaps.cli.evaluate import accuracy_table, settings_line
from ttaps.cli.options import DeviceOptions, JsonOption, make_room, parse, pick_device, print_json, use_threads
from ttaps.errors import UsageError
from ttaps.evaluate import Benchmark, Row, Store, Summary, evaluate, open_benchmark, summarize, to_json
from ttaps.model.checkpoint import Model
from ttaps.report.figures.images import Tile, demo_figure
from ttaps.report.figures.style import check_figure

METHOD = "ttaps:tuned"
IMAGES = 15  # under each corruption, a number and not a time: everybody sees the same.
PICTURES = 5  # of them in the figure


@dataclass(frozen=True)
class Demo(DeviceOptions, JsonOption):
    """Adapt the model inside the package to the corrupted pictures inside it: a table of accuracy before and after, and a figure."""

    images: int = IMAGES
    """Pictures under each corruption, at most 200."""
    out: Path = Path("ttaps-demo.png")
    """The figure: PNG, PDF or SVG."""
    model: str = "cifar10"
    """A model of CIFAR-10: by name, or a run folder."""


def run(arguments: list[str]) -> None:
    """Adapt to some pictures under every corruption of the sample, and show what came of it."""
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
    summary, rows = measure(model, data, options.images)
    seconds = time.monotonic() - began
    draw(options.out, model, data, summary, rows)
    if options.json:
        facts = {"model": model.name, "card": introduction(model), "seconds": round(seconds, 1)}
        print_json({**facts, "figure": str(options.out), "summary": json.loads(to_json([summary]))[0]})
        return
    print(f"Model {model.name} ({model.fingerprint}): {introduction(model)}")
    print(f"Real CIFAR-10 test pictures at severity 5, each by itself.\nMethod: {settings(summary)}.\n")
    print(accuracy_table(summary))
    print(f"\n{verdict(summary)} It took {seconds:.0f} s. Pictures with their labels: {options.out}")


def measure(model: Model, data: Benchmark, images: int) -> tuple[Summary, list[Row]]:
    """Adapt to the first pictures of a fair order under every corruption."""
    with tempfile.TemporaryDirectory() as scratch:
        (number,) = evaluate(model, data, [parse_method(METHOD)], folder=Path(scratch), limit=images)
        with Store(Path(scratch), write=False) as store:
            return summarize(store, number), list(store.rows(number))


def introduction(model: Model) -> str:
    """Return what a model's card says first: what it is, how it was trained, how good it is."""
    return " ".join(". ".join(model.card.split("\n\n")[:2]).lstrip("# ").split())


def settings(summary: Summary) -> str:
    """Say which settings were used."""
    return f"{METHOD}, that is {settings_line(summary.experiments[0])}, all else as in the paper"


def verdict(summary: Summary) -> str:
    """Say what the numbers say, and no more."""
    change = summary.average.difference
    if not change.fixed and not change.broken:
        return f"Adaptation put none of {summary.average.n} labels right, and none wrong."
    sure = "more than chance explains" if change.significant else "no more than chance explains"
    return f"Adaptation put {change.fixed} of {summary.average.n} labels right and {change.broken} wrong: {sure} (p = {change.p:.2g})."


def draw(path: Path, model: Model, data: Benchmark, summary: Summary, rows: list[Row]) -> None:
    """Draw some pictures of every corruption with their labels: first those whose label changed, for better or worse."""
    ordered = sorted(rows, key=lambda row: row.predictions[0] == row.predictions[-1])
    tiles = {
        line.corruption: [tile(data, row) for row in ordered if row.corruption == line.corruption][:PICTURES]
        for line in summary.lines
    }
    n = summary.lines[0].n
    title = f"TTAPS on {n} real picture{'s' * (n != 1)} under each of {len(tiles)} corruptions"
    caption = (
        "Beside each picture: its true label (bold), the label before and the label after adaptation.",
        "Pictures whose label changed come first, for better or worse; all pictures count in the numbers.",
        f"Model {model.name} ({model.fingerprint}); severity 5; method {METHOD}.",
    )
    demo_figure(path, tiles, (*summary.lines, summary.average), title, caption)


def tile(data: Benchmark, row: Row) -> Tile:
    """Return a picture with its labels; one that has none any more (not a number) says so."""
    before, after = (
        data.classes[label] if label >= 0 else "none" for label in (row.predictions[0], row.predictions[-1])
    )
    return Tile(data.pixels(row.item), data.classes[row.label], before, after)
