"""``ttaps report``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ttaps.cli.options import DataRootOption, Folders, JsonOption, make_room, parse, print_json
from ttaps.errors import UsageError
from ttaps.files import write_text
from ttaps.progress import log_info


@dataclass(frozen=True)
class Report(JsonOption, DataRootOption):
    """The paper's tables and figures from stored results, with intervals and paired tests. No model is needed.

    Example: ttaps report results/first --html report.html --figures figures
    """

    folders: Folders
    """Folders of results; the same experiment in several of them is one."""
    table: Literal["auto", "text", "md", "tex", "csv"] = "auto"
    """Format of the tables: text for a terminal, Markdown, LaTeX, or one tidy CSV of all numbers; auto is text on a terminal, else md."""
    metric: Literal["accuracy", "error"] = "accuracy"
    """What the tables show; figures always show accuracy."""
    published: bool = True
    """Show the paper's numbers beside ours."""
    figures: Path | None = None
    """Folder to draw all figures into, as PDF and PNG."""
    html: Path | None = None
    """Write one HTML page with everything; it needs no other file."""


def run(arguments: list[str]) -> None:
    """Read stored rows; print tables, draw figures, write a page."""
    make_report(parse(Report, "report", arguments))


def make_report(options: Report) -> None:
    """Print tables; draw figures and write the page where they are wanted."""
    from ttaps.report.figures.draw import draw_all, save_all
    from ttaps.report.figures.style import check_figure
    from ttaps.report.load import load_results
    from ttaps.report.page import page
    from ttaps.report.render import print_tables, to_records
    from ttaps.report.tables import make_tables

    if not options.folders:
        raise UsageError("Name a folder of results: ttaps report results/...")
    for place in filter(None, (options.figures and options.figures / "figure.png", options.html)):
        check_figure(Path("figure.png"))  # before any work is done
        make_room(place)
    results = load_results(options.folders)
    tables = make_tables(results, options.metric, options.published)
    if options.json:
        print_json(to_records(tables))
    else:
        print_tables(tables, options.table)
    if options.figures is None and options.html is None:
        return
    figures, notes = draw_all(results, tables, options.data_root)
    for note in notes:
        log_info(note)
    if options.figures is not None:
        save_all(figures, options.figures)
        log_info(f"Figures, as PDF and PNG, are in {options.figures}: {len(figures)}.")
    if options.html is not None:
        write_text(options.html, page(tables, figures, notes))
        log_info(f"The page is {options.html}.")
