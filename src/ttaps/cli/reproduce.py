"""``ttaps reproduce``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import tyro

from ttaps.adaptation.spec import method_spec
from ttaps.cli.options import DataRootOption, DeviceOptions, make_room, parse, pick_device, table, use_threads
from ttaps.cli.report import Report, make_report
from ttaps.distributed import init_distributed
from ttaps.errors import MissingExtra
from ttaps.progress import bar, log_info
from ttaps.reproduce.grid import Grid, Job, open_data, read_grid
from ttaps.reproduce.work import RESULTS, Estimate, estimate, reproduce
from ttaps.training.presets import find_preset

PAGE = "report.html"
UNITS = (("days", 86400), ("hours", 3600), ("minutes", 60))


@dataclass(frozen=True)
class Reproduce(DeviceOptions, DataRootOption):
    """Train and evaluate what is missing, and report. It can be killed at any time; the same command resumes.

    Example: ttaps reproduce small --dry-run

    torchrun --nproc-per-node N -m ttaps reproduce ... splits the work over N processes.
    """

    preset: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PRESET")]
    """paper-cifar10 or paper-cifar100 (for a GPU), small (hours on two cores), smoke (a minute or two), or a TOML file."""
    out: Path | None = None
    """Folder of the models, the results and the report; reproduced/PRESET if not given."""
    dry_run: bool = False
    """Print what is to be done and how long it will take, from a short measurement, and do nothing."""


def run(arguments: list[str]) -> None:
    """Reproduce a table, or say what that would take."""
    options = parse(Reproduce, "reproduce", arguments)
    path = find_preset(options.preset, grids=True)
    grid, jobs = read_grid(path, find_preset)
    out = options.out or Path("reproduced") / path.stem
    use_threads(options.threads)
    device = pick_device(options.device)
    if options.dry_run:
        print(plan_text(grid, measured(grid, jobs, out, options.data_root, device), device))
        return
    make_room(out / PAGE)
    with init_distributed(device, patience=timedelta(days=1)) as ranks:
        reproduce(grid, jobs, out, options.data_root, device, ranks)
    if ranks.first:
        try:
            make_report(Report((out / RESULTS,), figures=out / "figures", html=out / PAGE, data_root=options.data_root))
        except MissingExtra as missing:
            make_report(Report((out / RESULTS,)))
            log_info(f"No figures: {missing}")


def measured(grid: Grid, jobs: Sequence[Job], out: Path, root: Path | None, device: str) -> list[Estimate]:
    """Measure, with a progress bar."""
    found = []
    # Before the bar: reading images shows its own, and rich before 14.1 refuses two.
    opened = open_data(grid, jobs, root)
    with bar() as progress:
        task = progress.add_task("Measuring", total=len(jobs), note="")
        for one in estimate(grid, jobs, opened, out, device):
            found.append(one)
            progress.update(task, advance=1, note=one.job.name)
    return found


def plan_text(grid: Grid, estimates: Sequence[Estimate], device: str) -> str:
    """Write the plan: a line per model, and the sum."""
    rows = [
        [e.job.name, ", ".join(map(method_spec, e.job.methods)), *_amounts(e.steps, e.training, e.rows, e.evaluation)]
        for e in estimates
    ]
    steps, results = sum(e.steps for e in estimates), sum(e.rows for e in estimates)
    training, evaluation = sum(e.training for e in estimates), sum(e.evaluation for e in estimates)
    total = ["sum", "", *_amounts(steps, training, results, evaluation)]
    head = ["model", "methods", "steps left", "training", "results left", "evaluation"]
    lines = [
        grid.about,
        "",
        table(head, [*rows, total], rule_before_last=True, left=2),
        "",
        f"About {spell(training + evaluation)} here ({device}), from a few steps of each kind and two images a method on an untrained "
        "network; busy cores make it longer.",
    ]
    if grid.gpu and device == "cpu":
        lines.append("This is meant for a GPU: a CPU would take far too long.")
    return "\n".join(lines)


def _amounts(steps: int, training: float, rows: int, evaluation: float) -> list[str]:
    return [f"{steps:,}", spell(training), f"{rows:,}", spell(evaluation)]


def spell(seconds: float) -> str:
    """Write a time in the unit that suits it."""
    unit, length = next(((name, size) for name, size in UNITS if seconds >= 2 * size), ("seconds", 1))
    amount = seconds / length
    return f"{amount:,.{0 if amount >= 10 else 1}f} {unit}"
