"""``ttaps report``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ttaps.cli.options import DataRootOption, Folders, JsonOption, make_room, parse, print_json
from ttaps.errors import UsageError
from ttaps.files import write_text
from ttaps.progress import log_info
from ttaps.report.figures import draw_all, save_all
from ttaps.report.formats import comma_separated, latex, markdown, plain
from ttaps.report.outcomes import read_runs
from ttaps.report.page import page
from ttaps.report.style import check_figure
from ttaps.report.tables import make_tables

FORMATS = {"md": markdown, "tex": latex, "csv": comma_separated}


@dataclass(frozen=True)
class Report(DataRootOption, JsonOption):
    """The paper's tables and figures from stored results, with intervals and paired tests. No model is needed."""

    folders: Folders
    """Folders of results; the same experiment in several of them is one."""
    table: Literal["md", "tex", "csv"] = "md"
    """Format of the tables: Markdown, LaTeX, or one tidy table of all numbers."""
    metric: Literal["accuracy", "error"] = "accuracy"
    """What the tables show; figures always show accuracy."""
    published: bool = True
    """Show the paper's numbers beside ours."""
    figures: Path | None = None
    """Folder to draw all figures into, as PDF and PNG."""
    html: Path | None = None
    """One page with everything, to be sent to somebody."""


def run(arguments: list[str]) -> None:
    """Read stored rows; print tables, draw figures, write a page."""
    options = parse(Report, "report", arguments)
    if not options.folders:
        raise UsageError("Name a folder of results: ttaps report results/...")
    places = [options.figures / "figure.png"] if options.figures else []
    places += [options.html] if options.html else []
    for place in places:  # before any work is done
        check_figure(Path("figure.png"))
        make_room(place)
    tables = make_tables(read_runs(options.folders), options.metric, options.published)
    print_json(plain(tables)) if options.json else print(FORMATS[options.table](tables), end="")
    if not places:
        return
    drawings, notes = draw_all(tables, options.folders, options.data_root)
    for note in notes:
        log_info(note)
    if options.figures is not None:
        save_all(drawings, options.figures)
        log_info(f"Figures, as PDF and PNG, are in {options.figures}: {len(drawings)}.")
    if options.html is not None:
        write_text(options.html, page(tables, drawings, notes))
        log_info(f"The page is {options.html}.")
