"""``ttaps evaluate``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

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
    table,
    use_threads,
)
from ttaps.data.sets import NAMES
from ttaps.distributed import init_distributed
from ttaps.errors import UsageError
from ttaps.evaluate import (
    Experiment,
    Plan,
    Shard,
    Store,
    Summary,
    evaluate,
    open_benchmark,
    over_seeds,
    summarize,
    to_json,
)
from ttaps.evaluate.coverage import stored
from ttaps.evaluate.projections import write_projections
from ttaps.evaluate.settings import changed_settings
from ttaps.evaluate.summary import Accuracy
from ttaps.evaluate.timing import Spent
from ttaps.progress import log_info
from ttaps.report.grids import change_words


@dataclass(frozen=True)
class Evaluate(DeviceOptions, DataRootOption, JsonOption):
    """Measure accuracy before and after adaptation. Killed at any moment, the same command goes on where it was.

    torchrun --nproc-per-node N -m ttaps evaluate ... shares the images out over N processes, with the same rows as one.
    """

    model: ModelName
    """A model by name (cifar10; ttaps info lists them) or a run folder."""
    data: str = "sample"
    """sample (in the package), cifar10, cifar100, these with -c (corrupted) or -val-c, a folder of class folders, or an .npz file."""
    methods: str = "source,ttaps"
    """Methods, with commas between (see ttaps methods); ttaps:fast has the settings called fast, ttaps[lr=1,steps=5] these."""
    severity: str = ""
    """Severities 1 to 5 of a corrupted set, with commas between, or all; 5 if empty."""
    corruptions: str = ""
    """Only these, with commas between; all of the paper's if empty."""
    limit: int | None = None
    """Images per corruption; all if not given. They are shuffled with classes in turn, the same ones each time."""
    seeds: str = "0"
    """Seeds of the views, with commas between."""
    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """A setting of a method, like ttaps.lr=0.3 or ttaps.views.flip=0; may be given several times."""
    out: Path | None = None
    """Folder of the results; results/MODEL-DATA if not given."""
    shard: str | None = None
    """Only part i/n of the work, like 1/4; all parts may write to the same folder."""
    projections: int = 0
    """Store also the projections of so many images, of which ttaps report draws a map; 0 for none."""


def run(arguments: list[str]) -> None:
    """Evaluate, then print what the rows say."""
    options = parse(Evaluate, "evaluate", arguments)
    methods = parse_methods(options.methods, options.set)
    seeds = numbers(options.seeds, "--seeds")
    shard = Shard.parse(options.shard) if options.shard else Shard.of_rank()
    if options.shard and Shard.of_rank().count > 1:
        raise UsageError("torchrun's processes share the images out among themselves: leave --shard out.")
    if options.projections < 0:
        raise UsageError(f"--projections must be at least 0, not {options.projections}.")
    use_threads(options.threads)
    device = pick_device(options.device)
    model = load(options.model)
    for method in methods:  # before a folder of pictures is read through
        ensure_supported(method, model.network, model.objective)
    data = open_benchmark(
        options.data,
        options.data_root,
        corruptions=listed(options.corruptions),
        severities=severities(options.severity),
        size=model.network.config.image_size,
    )
    if options.data not in NAMES and Path(options.data).resolve() == Path(str(model.info.get("data", ""))).resolve():
        log_info(f"{model.name} has learnt from four fifths of these images: this says little about others.")
    model.network.to(device)
    folder = options.out or Path("results") / f"{model.name}-{data.name}"
    spent = Spent()
    with init_distributed(patience=timedelta(days=1)) as ranks:
        several = ranks.size > 1
        experiments = evaluate(
            model, data, methods, seeds, folder=folder, limit=options.limit, shard=shard, together=several, spent=spent
        )
        ranks.wait()  # so that the table is of all images
    if not ranks.first:
        return
    if options.projections:
        write_projections(model, data, folder, options.projections)
    plan = Plan(data.labels, data.corruptions, data.severities, options.limit)
    print_results(folder, experiments, plan, len(seeds), spent, options.json)
    log_info(f"Every image's result is in {folder}.{time_words(spent)}")


def print_results(
    folder: Path, experiments: Sequence[int], plan: Plan, seeds: int, spent: Spent, as_json: bool
) -> None:
    """Print what the rows of experiments say, and how many of those that the plan asks for are there."""
    with Store(folder, write=False) as store:
        counts = {number: stored(store, [number], plan) for number in experiments}
        summaries = [summarize(store, number, plan) for number, count in counts.items() if count]
        here, asked = sum(counts.values()), len(plan) * len(experiments)
    if as_json:
        tables = json.loads(to_json(summaries))
        print_json({"asked": asked, "stored": here, "seconds": spent.parts(), "tables": tables})
    else:
        print("\n\n".join([*show(summaries, seeds), *missing(here, asked)]))


def missing(here: int, asked: int) -> list[str]:
    """Say what is not here yet, if anything: the work of other shards."""
    rest = "the others come from the other shards, in this folder or joined to it with ttaps results merge"
    return [f"{here:,} of {asked:,} results are here; {rest}."] if here < asked else []


def time_words(spent: Spent) -> str:
    """Say what the time was spent on, if there was something to do."""
    shares = [f"{name} {seconds / spent.whole:.1%}" for name, seconds in spent.parts().items()]
    return f" {spent.whole:,.1f} s: {', '.join(shares)}." if spent.adapting else ""


def severities(text: str) -> Sequence[int] | Literal["all"]:
    """Return the severities asked for; none where the set's own default is meant."""
    if text == "all":
        return "all"
    return numbers(text, "--severity") if text else ()


def numbers(text: str, option: str) -> list[int]:
    """Return whole numbers with commas between them, each once."""
    try:
        found = [int(part) for part in listed(text)]
    except ValueError:
        raise UsageError(f"{option} must be whole numbers with commas between, not '{text}'.") from None
    if not found:
        raise UsageError(f"{option} names no number.")
    if max(map(abs, found)) >= 2**63:
        raise UsageError(f"{option}: numbers must have less than 64 bits, not {max(found, key=abs)}.")
    return list(dict.fromkeys(found))


def show(summaries: Sequence[Summary], seeds: int) -> list[str]:
    """Write a table for each experiment, and the average over seeds where there are several."""
    parts = [f"{heading(summary)}\n{accuracy_table(summary)}" for summary in summaries]
    if seeds > 1:
        groups: dict[Experiment, list[Summary]] = {}
        for summary in summaries:
            groups.setdefault(replace(summary.experiments[0], seed=0), []).append(summary)
        parts += [over_seeds_line(group) for group in groups.values()]
    return parts


def heading(summary: Summary) -> str:
    """Say which experiment a table is of."""
    experiment = summary.experiments[0]
    severities = sorted({line.severity for line in summary.lines if line.severity})
    severity = f", severity {', '.join(map(str, severities))}" if severities else ""
    return (
        f"{settings_line(experiment)}\non {experiment.data}{severity}, model {experiment.model} ({experiment.fingerprint}), "
        f"seed {experiment.seed}"
    )


def settings_line(experiment: Experiment) -> str:
    """Write a method with the settings that are not its default ones."""
    changed = [f"{name} {value}" for name, value in changed_settings(experiment).items()]
    words = f"{experiment.method} with {', '.join(changed)}" if changed else f"{experiment.method}, default settings"
    return words if experiment.protocol == EPISODIC else f"{words}, {experiment.protocol} (the order of images counts)"


def accuracy_table(summary: Summary) -> str:
    """Write accuracy in % before and after with 95 % intervals, and the difference; the average is last."""
    several = len({line.severity for line in summary.lines}) > 1
    lines = (*summary.lines, summary.average)
    names = [f"{line.corruption} {line.severity}" if several and line.severity else line.corruption for line in lines]
    if summary.experiments[0].method == "source":
        head, cells = ["", "n", "accuracy", "95 %"], [_share(line.after) for line in lines]
    else:
        head = ["", "n", "before", "95 %", "after", "95 %", "difference", "95 %", "fixed", "broken", "p"]
        cells = [[*_share(line.before), *_share(line.after), *change_words(line.difference)] for line in lines]
    rows = [[name, str(line.n), *rest] for name, line, rest in zip(names, lines, cells, strict=True)]
    return table(head, rows, rule_before_last=True)


def _share(accuracy: Accuracy) -> list[str]:
    return [f"{accuracy.percent:.1f}", f"{accuracy.low:.1f}-{accuracy.high:.1f}"]


def over_seeds_line(group: Sequence[Summary]) -> str:
    """Say mean and deviation of the average accuracy over seeds."""
    average = over_seeds(group)[-1]
    named = settings_line(group[0].experiments[0])
    if group[0].experiments[0].method == "source":
        return f"{named}: {average.mean:.1f} %, whatever the seed of the views"
    return f"{named}, {average.seeds} seeds: {average.mean:.1f} ± {average.std or 0:.1f} % after adaptation"
