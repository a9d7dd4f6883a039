"""``ttaps report`` and ``ttaps results merge|export``."""

from ttaps.cli import commands, common
from ttaps.errors import UsageError
from ttaps.evaluation import frame, store
from ttaps.report import columns, page, render
from ttaps.report.tables import make_tables


def report(options: commands.Report) -> None:
    """Print tables; draw figures and write the page if requested."""
    if not options.folders:
        raise UsageError("Name a folder of results: ttaps report results/...")
    page.check_places(options.html, options.figures)  # before any work is done
    stored = columns.load_results(options.folders)
    tables = make_tables(stored, options.metric, options.published)
    common.print_json(render.to_records(tables)) if options.json else render.print_tables(tables, options.table)
    page.write_report(stored, tables, options.html, options.figures, options.data_root)


def results(options: commands.Merge | commands.Export) -> None:
    """Merge and say how many rows were new, or export and print where."""
    if isinstance(options, commands.Export):
        frame.export(options.folder, options.file, options.images, options.steps)
        print(options.file)
        return
    if not options.folders:
        raise UsageError("Name the folders to merge: ttaps results merge OUT FOLDER...")
    for folder in options.folders:
        store.Store(folder, write=False).close()  # all must be there before anything is written
    added, maps = store.merge(options.folders, options.out), store.merge_projections(options.folders, options.out)
    print(f"{added} new rows in {options.out}")
    if maps:
        print(f"New projections there: {maps}")
