"""``ttaps evaluate``, ``ttaps demo`` and ``ttaps tune``: accuracy before and after adaptation."""

import time
from pathlib import Path
from typing import Any

import pandas as pd

from ttaps import experiments
from ttaps.adaptation.spec import parse_methods
from ttaps.api import load
from ttaps.cli import commands, common
from ttaps.errors import UsageError
from ttaps.evaluation import statistics
from ttaps.evaluation.benchmark import open_benchmark
from ttaps.model.checkpoint import Model
from ttaps.model.registry import folder_of
from ttaps.progress import log_info, process_rank
from ttaps.report.figures import charts, images, style
from ttaps.report.render import accuracy_records, accuracy_text
from ttaps.tuning import tune as tuning

DEMO_METHOD = "ttaps:tuned"
PASSED_ON = ("corruptions", "images_per_corruption", "protocol", "batch_size", "data_root", "shard", "projections")
SHOWN = 5  # images of each corruption in the figure of the demo


def evaluate(options: commands.Evaluate) -> None:
    """Evaluate, then print the results."""
    seeds, device = common.numbers(options.seeds, "--seeds"), common.use(options.device, options.threads)
    model = common.load_model(options.model, options)
    methods = parse_methods(options.methods, options.set, model.presets)
    severities = common.severities(options.severity)
    out = options.out or Path("results") / f"{model.name}-{Path(options.data).resolve().name}"
    chosen: dict[str, Any] = {"severities": severities, "seeds": seeds, "out": out, "device": device}
    chosen |= {name: getattr(options, name) for name in PASSED_ON}
    found = experiments.evaluate(model, options.data, methods, **chosen)
    if process_rank():
        return
    common.print_json(found.to_dict()) if options.json else print(found)
    total = sum(found.seconds.values())
    shares = ", ".join(f"{name} {part / total:.1%}" for name, part in found.seconds.items())
    spent = f" {total:,.1f} s: {shares}." if found.seconds["adapting"] else ""
    log_info(f"Every image's result is in {found.folder}.{spent}")


def demo(options: commands.Demo) -> None:
    """Adapt to some images under every corruption of the sample, and show the results."""
    style.check_figure(options.out)
    if not 1 <= options.images <= 200:
        raise UsageError(f"--images must be from 1 to 200, the size of the sample, not {options.images}.")
    model, device = load(options.model), common.use(options.device, options.threads)
    began = time.monotonic()
    done = experiments.evaluate(model, "sample", DEMO_METHOD, images_per_corruption=options.images, device=device)
    rows = done.to_pandas()
    seconds = time.monotonic() - began
    found = statistics.accuracy_table(rows)
    draw_demo(options.out, model, rows, found)
    # What a model's card says first: what it is, how it was trained, how good it is.
    card = " ".join(". ".join(model.card.split("\n\n")[:2]).lstrip("# ").split())
    if options.json:
        facts = {"model": model.name, "card": card, "method": DEMO_METHOD, "seconds": round(seconds, 1)}
        common.print_json({**facts, "figure": str(options.out), **accuracy_records(found)})
        return
    print(f"Model {model.name} ({model.fingerprint}): {card}")
    print(f"Method {DEMO_METHOD}, on real CIFAR-10 test images at severity 5, one at a time.\n")
    print(accuracy_text(found))
    print(f"\n{verdict(found)} It took {seconds:.0f} s. Images with their labels: {options.out}")


def verdict(found: pd.DataFrame) -> str:
    """Summarize the numbers in words."""
    average = found.loc[statistics.AVERAGE].iloc[0]
    n, fixed, broken = (int(average[name]) for name in ("n", "fixed", "broken"))
    if not fixed and not broken:
        return f"Adaptation changed none of {n} predictions from right to wrong or back."
    sure = "more than chance explains" if statistics.significant(average) else "no more than chance explains"
    return f"Adaptation fixed {fixed} of {n} predictions and broke {broken}: {sure} (p = {average['p']:.2g})."


def draw_demo(path: Path, model: Model, rows: pd.DataFrame, found: pd.DataFrame) -> None:
    """Draw some images of every corruption with their labels: first those whose label changed, for better or worse."""
    data = open_benchmark("sample")
    changed_first = rows.assign(same=rows["before"] == rows["after"]).sort_values("same", kind="stable")
    shown = {name: changed_first[changed_first["corruption"] == name].head(SHOWN) for name, _ in found.index[:-1]}
    tiles = {name: [images.make_tile(data, row) for _, row in part.iterrows()] for name, part in shown.items()}
    n = int(found["n"].iloc[0])
    title = f"TTAPS on {n} real image{'s' * (n != 1)} under each of {len(tiles)} corruptions"
    caption = (
        "Next to each image: true label (bold), label before and label after adaptation.",
        "Images whose label changed come first, for better or worse; all images count in the numbers.",
        f"Model {model.name} ({model.fingerprint}); severity 5; method {DEMO_METHOD}.",
    )
    images.demo_figure(path, tiles, found, title, caption)


def tune(options: commands.Tune) -> None:
    """Tune, print the result, and draw it if requested."""
    if options.figure:
        style.check_figure(options.figure)
    device = common.use(options.device, options.threads)
    model = load(options.model, backbone=options.backbone or None)
    out = options.out or folder_of(options.model)
    places: dict[str, Any] = {"out": out, "results": options.results, "data_root": options.data_root}
    limits: dict[str, Any] = {"images": options.images, "minutes": options.minutes, "seed": options.seed}
    found = tuning.tune(model, options.data or None, device=device, **places, **limits)
    common.print_json(found.to_dict()) if options.json else print(found)
    if options.figure:
        style.save_figure(charts.tuning_figure(found.effects), options.figure)
