"""``ttaps report``."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ttaps.cli.options import Folders, make_room, parse, print_json
from ttaps.errors import UsageError


@dataclass(frozen=True)
class Report:
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
    json: bool = False
    """Output JSON instead of --table."""
    data_root: Path | None = None
    """Folder of the data sets, for the images in figures; else $TTAPS_DATA, else ./data."""


def run(arguments: list[str]) -> None:
    """Read stored rows; print tables, draw figures, write a page."""
    options = parse(Report, "report", arguments)
    if not options.folders:
        raise UsageError("Name a folder of results: ttaps report results/...")
    make_report(options)


def make_report(options: Report) -> None:
    """Print tables; draw figures and write the page where they are asked for."""
    from ttaps.files import write_text
    from ttaps.progress import log_info
    from ttaps.report.figures.draw import draw_all, save_all
    from ttaps.report.figures.style import check_figure
    from ttaps.report.load import load_results
    from ttaps.report.page import page
    from ttaps.report.render import latex, markdown, print_tables, to_csv, to_records
    from ttaps.report.tables import make_tables

    places = [options.figures / "figure.png"] if options.figures else []
    places += [options.html] if options.html else []
    for place in places:  # before any work is done
        check_figure(Path("figure.png"))
        make_room(place)
    results = load_results(options.folders)
    tables = make_tables(results, options.metric, options.published)
    if options.json:
        print_json(to_records(tables))
    elif options.table == "text" or (options.table == "auto" and sys.stdout.isatty()):
        print_tables(tables)
    else:
        print({"tex": latex, "csv": to_csv}.get(options.table, markdown)(tables), end="")
    if not places:
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
