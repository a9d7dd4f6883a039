"""Which runs are one column of a table, and what it is called. Runs that differ only in their seeds are one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ttaps.adaptation import METHODS
from ttaps.adaptation.presets import PRESETS
from ttaps.evaluate.settings import all_settings, default_name, settings_name
from ttaps.report.outcomes import Run
from ttaps.report.published import LABELS
from ttaps.report.style import PLAIN, Look, look

PAPER = {
    ("baseline", "source"): "baseline",
    ("jt", "source"): "jt",
    ("jt", "ttaps"): "jt+tta",
    ("jt+ent", "source"): "jt+ent",
    ("jt+ent", "ttaps"): "ttaps",
    ("baseline", "memo"): "memo",
    ("ttt", "ttt"): "ttt",
    ("mt3", "mt3"): "mt3",
}
"""Which of the paper's columns a model's objective and a method make."""
LONGEST = 34  # a label with more than that has the rest of its settings in the protocol only


@dataclass(frozen=True, eq=False)
class Column:
    """One column of a table: a model and a method with its settings, over all seeds."""

    label: str
    runs: tuple[Run, ...]
    look: Look = PLAIN

    @property
    def color(self) -> str:
        """Its color in every figure."""
        return self.look.color

    @property
    def method(self) -> str:
        """The method's own name."""
        return self.runs[0].experiment.method

    @property
    def objective(self) -> str:
        """What the model was trained with; empty where it is not known."""
        return str(self.runs[0].facts.get("objective", ""))

    @property
    def prototypes(self) -> int | None:
        """K; None where it is not known."""
        found: int | None = self.runs[0].facts.get("model", {}).get("num_prototypes")
        return found

    @property
    def steps(self) -> int:
        """Predictions after the first: gradient steps per image, of methods that take any."""
        return self.runs[0].steps

    @property
    def learns(self) -> bool:
        """Whether it takes gradient steps: BN and the average over views have a second prediction, and learn nothing in between."""
        return self.steps > 0 and (self.method not in METHODS or METHODS[self.method]().num_steps > 0)

    @property
    def paper(self) -> str | None:
        """Which of the paper's columns this is."""
        return PAPER.get((self.objective, self.method))

    @property
    def settings(self) -> str:
        """A short name of its method's settings; empty for the defaults."""
        return settings_name(self.runs[0].experiment)


def make_columns(runs: Sequence[Run], looks: dict[tuple[str, str], Look]) -> list[Column]:
    """Put runs on one data set into columns with names that differ, in the paper's order.

    ``looks`` are those of a report's columns by method and name; new ones are added, so that a name looks the same everywhere.
    """
    groups: dict[str, list[Run]] = {}
    for run in _once(runs):
        groups.setdefault(repr(_without_seeds(run)), []).append(run)
    columns = [Column("", tuple(part)) for group in groups.values() for part in _replicates(group)]
    return [replace(column, look=_look(column, looks)) for column in _named(sorted(columns, key=_place))]


def _look(column: Column, looks: dict[tuple[str, str], Look]) -> Look:
    method = column.paper or column.method
    variant = sum(known == method for known, _ in looks)
    return looks.setdefault((method, column.label), look(method, variant))


def _once(runs: Sequence[Run]) -> list[Run]:
    """Leave out what differs only in a seed that changes nothing: without steps there are no views. The longest run stays."""
    found: dict[str, Run] = {}
    for run in sorted(runs, key=lambda run: len(run.rows)):
        views = run.experiment.seed if run.steps else None
        found[repr((_without_seeds(run), run.experiment.fingerprint, views))] = run
    return sorted(found.values(), key=lambda run: (run.facts.get("seed", 0), run.experiment.seed))


def _without_seeds(run: Run) -> tuple[Any, ...]:
    """Return all that runs of one column have in common; a model of which nothing is known is like no other."""
    e = run.experiment
    facts = {name: value for name, value in run.facts.items() if name != "seed"} or e.fingerprint
    return e.data, e.digest, e.method, sorted(all_settings(e).items()), e.protocol, facts


def _replicates(runs: Sequence[Run]) -> list[list[Run]]:
    """Take runs apart by model where two models have the same seed: those are two trainings, not two seeds of one."""
    models: dict[str, list[Run]] = {}
    for run in runs:
        models.setdefault(run.experiment.fingerprint, []).append(run)
    seeds = {part[0].facts.get("seed") for part in models.values()}
    return [list(runs)] if len(seeds) == len(models) else list(models.values())


def _named(columns: Sequence[Column]) -> list[Column]:
    """Give columns their names: model and method, settings and K where there are several; and whatever else tells them apart."""
    ks: dict[str, set[int | None]] = {}
    settings: dict[str, set[str]] = {}
    for column in columns:
        ks.setdefault(column.objective, set()).add(column.prototypes)
        settings.setdefault(_name(column), set()).add(column.settings)
    found = []
    for column in columns:
        several = len(settings[_name(column)]) > 1
        chosen = column.settings or (default_name(column.method) if several else "")
        k = f", K={column.prototypes}" if len(ks[column.objective]) > 1 else ""
        found.append(replace(column, label=_label(_name(column), chosen, k)))
    return _told_apart(found)


def _label(name: str, settings: str, k: str) -> str:
    if len(name) + len(settings) > LONGEST:
        settings = f"{settings[: LONGEST - len(name)].rsplit(',', 1)[0]}, …"
    return f"{name} ({settings}){k}" if settings else f"{name}{k}"


def _name(column: Column) -> str:
    """Name a column as the paper does where it has one like it, else by model and method."""
    objective, method = column.objective, column.method
    if column.paper:
        return LABELS[column.paper]
    model = LABELS.get(objective, objective) or column.runs[0].experiment.model
    if method != "source":
        return f"{model} {method.upper()}"
    return f"{model} source" if (objective, objective) in PAPER else model  # TTT is the method, too


def _place(column: Column) -> tuple[int, str, int, str, int, str]:
    """Order columns as the paper does and others after them, by name, settings (the default ones first), K and model."""
    order, named = list(LABELS), ["", *PRESETS.get(column.method, {})]
    place = order.index(column.paper) if column.paper else len(order)
    known = named.index(column.settings) if column.settings in named else len(named)
    return place, _name(column), known, column.settings, column.prototypes or 0, column.runs[0].experiment.model


def _told_apart(columns: Sequence[Column]) -> list[Column]:
    """Add to labels that are the same what tells them apart: all settings, the model's name, or its fingerprint."""
    extras: tuple[Callable[[Column], str], ...] = (
        lambda column: column.settings,
        lambda column: column.runs[0].experiment.model,
        lambda column: f"{column.runs[0].experiment.model} {column.runs[0].experiment.fingerprint[:6]}",
    )
    labels = [column.label for column in columns]
    found = []
    for place, column in enumerate(columns):
        twins = [other for other in columns if other.label == column.label]
        names = (extra for extra in extras if len(set(map(extra, twins))) == len(twins))
        extra = next(names, lambda column, place=place: str(place + 1))
        alone = labels.count(column.label) == 1
        found.append(column if alone else replace(column, label=f"{column.label}, {extra(column)}"))
    return found
