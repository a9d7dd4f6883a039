"""What a table's numbers were measured with, in words: a number without its protocol cannot be reproduced."""

from __future__ import annotations

from collections.abc import Sequence

from ttaps.adaptation import EPISODIC
from ttaps.adaptation.presets import PRESETS
from ttaps.evaluate.settings import changed_settings, default_name
from ttaps.evaluate.summary import AVERAGE
from ttaps.report.columns import Column
from ttaps.report.published import ORIGIN, SETS
from ttaps.report.tables import Shown, Table


def protocol(table: Table) -> list[str]:
    """Return a table's protocol: what every column was measured with, and how to read the numbers.

    That by severity has only what is its own: the tables of each severity follow it.
    """
    lines = [_measured(table)]
    if table.severity is None:
        return [*lines, *_warnings(table)]
    lines += [f"{shown.label}: {column_protocol(shown, table)}" for shown in table.ours]
    lines += _warnings(table)
    lines.append(
        "± is the standard deviation over seeds, of training or of views; a column without it has one seed. "
        "Intervals are 95 %: over images, Wilson's for an accuracy, paired for a difference. p is the exact McNemar test; for an average "
        "or several seeds, where a picture counts once, the exact sign test over pictures. No p is corrected for the number of comparisons."
    )
    if table.published:
        name = SETS[table.data]
        other = "" if name == table.data else f" Those are all 10,000 images of {name}, not this sample."
        lines.append(f"{ORIGIN[name]}{other}")
    return lines


def column_protocol(shown: Shown, table: Table) -> str:
    """Say what model, method, settings, seeds and images a column is of."""
    column = shown.column
    if column is None:
        return "published"
    views = f"seeds of views {_listed(_seeds(column))}" if column.steps else ""
    parts = filter(None, (model_words(column), method_words(column), views, images_words(shown, table)))
    return "; ".join(parts)


def model_words(column: Column) -> str:
    """Name a column's models with their fingerprints, and how they were trained where that is known."""
    models = dict.fromkeys((run.experiment.model, run.experiment.fingerprint) for run in column.runs)
    names = ", ".join(f"{name} ({fingerprint})" for name, fingerprint in models)
    training = {run.facts["seed"] for run in column.runs if "seed" in run.facts}
    facts = [
        f"objective {column.objective}" if column.objective else "",
        f"K={column.prototypes}" if column.prototypes else "",
        f"seeds of training {_listed(sorted(training))}" if training else "",
    ]
    return f"model{'s' if len(models) > 1 else ''} {', '.join([names, *filter(None, facts)])}"


def method_words(column: Column) -> str:
    """Say how a column adapts, with its steps, the settings that are not default, and what is reset."""
    if not column.steps:
        return f"{column.method}: no adaptation"
    experiment = column.runs[0].experiment
    kept = f"not everything is reset after an image ({experiment.protocol}): the order of images counts"
    reset = "weights and optimizer are reset after every image" if experiment.protocol == EPISODIC else kept
    how = [f"{column.steps} step{'s' if column.steps > 1 else ''}", f"{settings_words(column)}; {reset}"]
    if not column.learns:
        how = ["no step", settings_words(column)]
    seconds = sum(float(run.rows["seconds"].mean()) for run in column.runs) / len(column.runs)
    return f"{', '.join([column.method, *how])}; {seconds:.2g} s per image"


def settings_words(column: Column) -> str:
    """Say which settings a column's method has: the name they go by, and all that is not default."""
    experiment = column.runs[0].experiment
    changed = ", ".join(f"{name} {value}" for name, value in changed_settings(experiment).items())
    if not changed:
        name = default_name(column.method)
        return f"default settings ('{name}')" if name else "default settings"
    name = column.settings.partition(",")[0]
    return f"settings '{name}': {changed}" if name in PRESETS.get(column.method, {}) else changed


def images_words(shown: Shown, table: Table) -> str:
    """Say how many images a column has per corruption."""
    counts = [count for row, cell in shown.cells.items() if row != AVERAGE for count in cell.n or ()]
    low, high = min(counts), max(counts)
    each = " at each severity" if table.severity is None else " under each corruption" if len(table.rows) > 1 else ""
    return f"n = {low if low == high else f'{low} to {high}'}{each}"


def _measured(table: Table) -> str:
    count = len(table.corruptions)
    words = f"{count} corruption{'s' * (count != 1)}"
    if table.severity is None:
        return (
            f"{table.metric.capitalize()} in % on {table.data} (labels {table.digest}), averaged over {words} at each "
            "severity, after the last step. What each column is measured with stands below the tables of each severity."
        )
    corrupted = f" at severity {table.severity}, {words}" if table.severity else ""
    return f"{table.metric.capitalize()} in % on {table.data}{corrupted} (labels {table.digest}), after the last step."


def _warnings(table: Table) -> list[str]:
    """Say where numbers of one table are not of the same images."""
    found = []
    cells = [cell for shown in table.ours for row, cell in shown.cells.items() if row != AVERAGE]
    sizes = {count for cell in cells for count in cell.n or ()}
    if len(sizes) > 1:
        found.append(
            "Not finished: numbers of images differ; differences between columns use only the images that both have."
        )
    what = "severities" if table.severity is None else "corruptions"
    partial = [shown.label for shown in table.ours if not shown.complete(table.rows)]
    if partial:
        found.append(f"* {', '.join(partial)}: some {what} are missing, and the average is over those that are there.")
    return found


def _seeds(column: Column) -> list[int]:
    return sorted({run.experiment.seed for run in column.runs})


def _listed(values: Sequence[object]) -> str:
    return ", ".join(map(str, values))
