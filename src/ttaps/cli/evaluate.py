"""``ttaps evaluate``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
import tyro

from ttaps.adaptation import EPISODIC, ensure_supported
from ttaps.adaptation.spec import parse_methods
from ttaps.api import load
from ttaps.cli.options import (
    DataRootOption,
    DeviceOptions,
    JsonOption,
    ModelName,
    listed,
    parse,
    pick_device,
    print_json,
    use_threads,
)
from ttaps.cli.tables import accuracy_records, accuracy_text
from ttaps.data.sets import NAMES
from ttaps.distributed import init_distributed
from ttaps.errors import UsageError
from ttaps.evaluate.benchmark import open_benchmark
from ttaps.evaluate.frame import IDENTITY, read_rows
from ttaps.evaluate.plan import Plan, Shard
from ttaps.evaluate.projections import write_projections
from ttaps.evaluate.run import Timing, evaluate
from ttaps.evaluate.statistics import accuracy_table
from ttaps.evaluate.store import Store
from ttaps.progress import log_info


@dataclass(frozen=True)
class Evaluate(DeviceOptions, DataRootOption, JsonOption):
    """Measure accuracy before and after adaptation. It can be killed at any time; the same command resumes.

    Example: ttaps evaluate cifar10 --methods "source,ttaps:tuned[lr=1]" --limit 20

    torchrun --nproc-per-node N -m ttaps evaluate ... splits the images over N processes, with the same rows as one.
    """

    model: ModelName
    """A model by name (cifar10; ttaps info lists them) or a run folder."""
    data: str = "sample"
    """sample (in the package), cifar10, cifar100, these with -c (corrupted) or -val-c, a folder of class folders, or an .npz file."""
    methods: str = "source,ttaps"
    """Comma-separated methods (see ttaps methods); ttaps:fast is the preset fast, ttaps[lr=1,steps=5] has these settings."""
    severity: str = ""
    """Comma-separated severities 1 to 5 of a corrupted set, or all; 5 if empty."""
    corruptions: str = ""
    """Comma-separated corruptions; all of the paper's if empty."""
    images_per_corruption: Annotated[int | None, tyro.conf.arg(aliases=["--limit"])] = None
    """Images under each corruption, all if not given: a stratified sample, the same one each time."""
    seeds: str = "0"
    """Comma-separated seeds of the views."""
    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """A setting of a method, like ttaps.lr=0.3 or ttaps.views.flip_p=0; may be given several times."""
    out: Path | None = None
    """Folder of the results; results/MODEL-DATA if not given."""
    shard: str | None = None
    """Only part i/n of the work, like 1/4; all parts may write to the same folder."""
    projections: int = 0
    """Also store the projections of this many images, for the map that ttaps report draws; 0 for none."""


def run(arguments: list[str]) -> None:
    """Evaluate, then print what the rows say."""
    options = parse(Evaluate, "evaluate", arguments)
    methods = parse_methods(options.methods, options.set)
    seeds = numbers(options.seeds, "--seeds")
    shard = Shard.parse(options.shard) if options.shard else Shard.of_rank()
    if options.shard and Shard.of_rank().count > 1:
        raise UsageError("torchrun's processes share the images among themselves: leave --shard out.")
    if options.projections < 0:
        raise UsageError(f"--projections must be at least 0, not {options.projections}.")
    use_threads(options.threads)
    device = pick_device(options.device)
    model = load(options.model)
    for method in methods:  # before a folder of images is read through
        ensure_supported(method, model.network, model.objective)
    data = open_benchmark(
        options.data,
        options.data_root,
        corruptions=listed(options.corruptions),
        severities=severities(options.severity),
        size=model.network.config.image_size,
    )
    if options.data not in NAMES and Path(options.data).resolve() == Path(str(model.info.get("data", ""))).resolve():
        log_info(f"{model.name} was trained on four fifths of these images: this says little about others.")
    model.network.to(device)
    folder = options.out or Path("results") / f"{model.name}-{data.name}"
    plan, timing = Plan(data.labels, data.corruptions, data.severities, options.images_per_corruption), Timing()
    with init_distributed(patience=timedelta(days=1)) as ranks:
        experiments = evaluate(
            model,
            data,
            methods,
            seeds,
            folder=folder,
            images_per_corruption=options.images_per_corruption,
            shard=shard,
            distributed=ranks.size > 1,
            timing=timing,
        )
        ranks.wait()  # so that the table is of all images
    if not ranks.first:
        return
    if options.projections:
        write_projections(model, data, folder, options.projections)
    print_results(folder, experiments, plan, timing, options.json)
    log_info(f"Every image's result is in {folder}.{time_words(timing)}")


def print_results(folder: Path, experiments: Sequence[int], plan: Plan, timing: Timing, as_json: bool) -> None:
    """Print what the rows of experiments say, and how many of those that the plan asks for are there."""
    with Store(folder, write=False) as store:
        rows = read_rows(store, experiments)
    rows = rows[plan.covers(rows)]
    parts = [rows[rows["experiment"] == number] for number in experiments]
    tables = [(part[IDENTITY].to_dict("records")[0], accuracy_table(part)) for part in parts if len(part)]
    asked = len(plan) * len(experiments)
    if as_json:
        found = [{**identity, **accuracy_records(table)} for identity, table in tables]
        print_json({"asked": asked, "stored": len(rows), "seconds": timing.parts(), "tables": found})
        return
    texts = [f"{heading(*one)}\n{accuracy_text(one[1], one[0]['method'] == 'source')}" for one in tables]
    texts += over_seeds(tables)
    if len(rows) < asked:
        rest = "the others come from the other shards, in this folder or added to it with ttaps results merge"
        texts.append(f"{len(rows):,} of {asked:,} results are here; {rest}.")
    print("\n\n".join(texts))


def heading(identity: dict[str, Any], table: pd.DataFrame) -> str:
    """Say which experiment a table is of; the method can be pasted into --methods."""
    levels = sorted({severity for _, severity in table.index[:-1] if severity})
    severity = f", severity {', '.join(map(str, levels))}" if levels else ""
    model = f"model {identity['model']} ({identity['fingerprint']})"
    order = "" if identity["protocol"] == EPISODIC else f", {identity['protocol']} (the order of images counts)"
    return f"{identity['spec']}\non {identity['data']}{severity}, {model}, seed {identity['seed']}{order}"


def over_seeds(tables: Sequence[tuple[dict[str, Any], pd.DataFrame]]) -> list[str]:
    """Say mean and deviation of the average accuracy over seeds, for each method that has several."""
    averages = pd.DataFrame([(identity["spec"], table["after"].iloc[-1]) for identity, table in tables])
    found = []
    for spec, values in averages.groupby(0, sort=False)[1] if tables else ():
        if len(values) > 1 and spec == "source":
            found.append(f"{spec}: {values.mean():.1f} %, whatever the seed of the views")
        elif len(values) > 1:
            found.append(f"{spec}, {len(values)} seeds: {values.mean():.1f} ± {values.std():.1f} % after adaptation")
    return found


def time_words(timing: Timing) -> str:
    """Say what the time was spent on, if there was something to do."""
    parts = timing.parts()
    total = sum(parts.values())
    shares = ", ".join(f"{name} {seconds / total:.1%}" for name, seconds in parts.items())
    return f" {total:,.1f} s: {shares}." if parts["adapting"] else ""


def severities(text: str) -> Sequence[int] | Literal["all"]:
    """Return the given severities; none where the set's own default is meant."""
    if text == "all":
        return "all"
    return numbers(text, "--severity") if text else ()


def numbers(text: str, option: str) -> list[int]:
    """Return comma-separated whole numbers, each once."""
    try:
        found = [int(part) for part in listed(text)]
    except ValueError:
        raise UsageError(f"{option} must be comma-separated whole numbers, not '{text}'.") from None
    if not found:
        raise UsageError(f"{option} needs at least one number.")
    if max(map(abs, found)) >= 2**63:
        raise UsageError(f"{option}: numbers must fit into 64 bits, not {max(found, key=abs)}.")
    return list(dict.fromkeys(found))
