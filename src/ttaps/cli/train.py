"""``ttaps train`` and ``ttaps reproduce``."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from ttaps import experiments
from ttaps import reproduce as grids
from ttaps.adaptation.spec import method_spec
from ttaps.cli import commands, common
from ttaps.cli.report import report
from ttaps.distributed import init_distributed
from ttaps.errors import MissingExtra
from ttaps.files import make_room
from ttaps.progress import log_info, process_rank, text_table
from ttaps.training.config import find_preset

PAGE = "report.html"
UNITS = (("days", 86400), ("hours", 3600), ("minutes", 60))


def train(options: commands.Train) -> None:
    """Train."""
    device, own = common.use(options.device, options.threads), options.settings
    decided = options.resume or not options.any_classes
    fixed: dict[str, Any] = {"model.num_classes": own.model.num_classes} if decided else {}
    places: dict[str, Any] = {"out": options.out, "fork_from": options.fork_from, "data_root": options.data_root}
    experiments.train(own, device=device, **places, **fixed)
    if not process_rank():
        print(options.out)


def reproduce(options: commands.Reproduce) -> None:
    """Reproduce a table, or print the estimate."""
    path = find_preset(options.grid, grids=True)
    grid, jobs = grids.read_grid(path)
    out = options.out or Path("reproduced") / path.stem
    device = common.use(options.device, options.threads)
    if options.dry_run:
        opened = grids.open_job_data(grid, jobs, options.data_root)
        print(plan_text(grid, grids.estimate(grid, jobs, opened, out, device), device))
        return
    make_room(out / PAGE)
    with init_distributed(device, patience=timedelta(days=1)) as ranks:
        grids.reproduce(grid, jobs, out, options.data_root, device)
        ranks.wait()  # until all models are complete
    if ranks.first:
        results = commands.Report((out / grids.RESULTS,), data_root=options.data_root)
        try:
            report(replace(results, figures=out / "figures", html=out / PAGE))
        except MissingExtra as missing:
            report(results)
            log_info(f"No figures: {missing}")


def plan_text(grid: grids.Grid, estimates: Sequence[grids.Estimate], device: str) -> str:
    """Write the plan: a line per model, and the sum."""
    names = [(each.job.name, ", ".join(map(method_spec, each.job.methods))) for each in estimates]
    amounts = [(each.steps, each.training, each.rows, each.evaluation) for each in estimates]
    total = [sum(column) for column in zip(*amounts, strict=True)]
    rows = [
        [*name, f"{steps:,}", spell(training), f"{results:,}", spell(evaluation)]
        for name, (steps, training, results, evaluation) in zip([*names, ("sum", "")], [*amounts, total], strict=True)
    ]
    head = ["model", "methods", "steps left", "training", "results left", "evaluation"]
    gpu = "\nThis is meant for a GPU: a CPU would take far too long." if grid.gpu and device == "cpu" else ""
    return (
        f"{grid.about}\n\n{text_table(head, rows, rule_before_last=True, left=2)}\n\n"
        f"About {spell(total[1] + total[3])} here ({device}), from a few steps of each kind and two images a method on an untrained "
        f"network; busy cores make it longer.{gpu}"
    )


def spell(seconds: float) -> str:
    """Format a time in a suitable unit."""
    unit, length = next(((name, size) for name, size in UNITS if seconds >= 2 * size), ("seconds", 1))
    amount = seconds / length
    return f"{amount:,.{0 if amount >= 10 else 1}f} {unit}"
