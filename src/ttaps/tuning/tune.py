"""Tuning: rungs of successive halving, a choice, its confirmation on held-out images, and the resulting presets."""

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import pandas as pd

from ttaps.adaptation import Method, Source, Ttaps, ensure_supported
from ttaps.adaptation.spec import method_spec
from ttaps.api import load
from ttaps.config import flat, read_toml, to_toml
from ttaps.data import ImageSet
from ttaps.distributed import find_device
from ttaps.errors import UsageError
from ttaps.evaluation.statistics import calibration_error, compare_table, measure
from ttaps.evaluation.store import Store
from ttaps.files import file_lock, make_room, write_text
from ttaps.model.checkpoint import Model
from ttaps.model.folder import PRESETS
from ttaps.model.registry import folder_of
from ttaps.progress import log_info, text_table
from ttaps.tuning.candidates import Candidate, augment_candidate, ttaps_candidate
from ttaps.tuning.choice import GUARD, Option, best, ranked
from ttaps.tuning.space import all_views, draw_candidates
from ttaps.tuning.tuner import FRESH, Tuner, validation_benchmark

RUNGS = ((16, 0.2), (6, 0.5), (2, 1.0))  # candidates, and the share of the images that they see
KINDS = 3  # kinds of views that are kept after a look at all
IMAGES, LEAST, TRIAL = 5000, 360, 24  # at least: the first fifth has every corruption at every severity
SIZE = "tune.json"  # beside the rows: how many images a limited time allows, so that a resumed run has as many


@dataclass(frozen=True, eq=False)
class Tuned:
    """The result of tuning. ``print`` it for the choice, with intervals on held-out images."""

    model: str
    ttaps: Method
    augment: Method
    path: Path
    """The file of presets that was written."""
    rows: pd.DataFrame
    """Results on fresh images; ``place`` is 0 for source, 1 for ttaps:tuned, 2 for the runner-up and 3 for augment:tuned."""
    effects: pd.DataFrame
    """What each value of each setting did: the best gain of every candidate that had it, in the first rung."""
    text: str

    def to_dict(self) -> dict[str, Any]:
        """Return the presets, as plain values."""
        return read_toml(self.path)

    def __str__(self) -> str:
        return self.text


def search(tuner: Tuner) -> tuple[Option, Option, Option, list[Option]]:
    """Return the best ttaps, its runner-up, the best augment, and all options of the first rung."""
    total = len(tuner.items)

    def rung(name: str, candidates: Sequence[Candidate], share: float) -> list[Option]:
        count = max(1, round(share * total))
        tuner.evaluate(candidates, tuner.items[:count], name)
        found = tuner.options(candidates, count)
        top = ranked(found)[0]
        log_info(
            f"{name}, {count} images: {top.gain:+.2f} points (less one error {top.low:+.2f}, clean {top.clean:+.2f}) "
            f"by {method_spec(top.method)}"
        )
        return found

    kinds = all_views()
    first = rung("Views", [*map(augment_candidate, kinds)], RUNGS[0][1])
    kinds = [kinds[option.candidate] for option in ranked(first)[:KINDS]]
    candidates = draw_candidates(tuner.network, [one.views for one in kinds], RUNGS[0][0], tuner.seed)
    found: list[Option] = []
    for number, (keep, share) in enumerate(RUNGS):
        if found:
            candidates = [candidates[option.candidate] for option in ranked(found)[:keep]]
        found = rung(f"Rung {number + 1} of {len(RUNGS)}", [*map(ttaps_candidate, candidates)], share)
        first += [] if number else found
    chosen, mean = best(found), best(rung("Mean over views", [*map(augment_candidate, kinds)], 1.0))
    other = next(option for option in ranked(found) if option.candidate != chosen.candidate)
    return chosen, other, mean, first


def effects(found: Sequence[Option]) -> pd.DataFrame:
    """Return the best gain of every candidate with each value of each setting; settings equal in all are left out."""
    rows = pd.DataFrame(
        [
            {"method": option.method.name, "setting": name, "value": str(value), "candidate": option.candidate, "gain": option.gain}
            for option in found
            for name, value in flat(asdict(option.method)).items()
        ]
    )  # fmt: skip
    several = rows.groupby(["method", "setting"])["value"].transform("nunique") > 1
    return rows[several].groupby(["method", "setting", "value", "candidate"], as_index=False)["gain"].max()


def affordable(tuner: Tuner, minutes: float) -> int:
    """Return how many images fit into a number of minutes, by the time that some take."""

    def seconds(candidates: Sequence[Candidate]) -> float:
        began = perf_counter()
        tuner.evaluate(candidates, tuner.items[:TRIAL], "Measuring")
        return (perf_counter() - began) / TRIAL

    views = all_views()
    drawn = draw_candidates(tuner.network, [views[0].views], RUNGS[0][0], tuner.seed)
    look, rung = seconds([*map(augment_candidate, views)]), seconds([*map(ttaps_candidate, drawn)])
    shares = [share - before for (_, share), before in zip(RUNGS, (0.0, *(share for _, share in RUNGS)), strict=False)]
    steps = sum(keep * part for (keep, _), part in zip(RUNGS, shares, strict=True)) / RUNGS[0][0]
    per_image = look * (RUNGS[0][1] + KINDS / len(views)) + rung * (steps + 3 * FRESH / RUNGS[0][0])
    return max(LEAST, int(60 * minutes / per_image))


def tune(
    model: Model | str | Path,
    data: str | Path | ImageSet | None = None,
    *,
    images: int | None = None,
    minutes: float | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    results: str | Path | None = None,
    data_root: str | Path | None = None,
    device: str | None = None,
) -> Tuned:
    """Choose test-time settings for a model with prototypes on its own validation images, and write them as its presets.

    Settings are chosen on ``images`` images, clean and under corruptions that are not the test's, or as many as ``minutes`` allow, and
    confirmed on 0.6 times as many others. ``data`` is needed if the model does not say what it was trained on. ``presets.toml`` is
    written to ``out``, the model's folder unless given; rows are kept in ``results``, and the same call resumes.
    """
    if out is None and isinstance(model, Model):
        raise UsageError("Give a folder for the presets: out=FOLDER; ttaps.load finds them in the model's own.")
    if images is not None and images < LEAST:
        raise UsageError(f"images must be at least {LEAST}, not {images}.")
    if minutes is not None and not minutes > 0:
        raise UsageError(f"minutes must be above 0, not {minutes:g}.")
    place = Path(out) if out is not None else folder_of(model)  # type: ignore[arg-type]
    subject = model if isinstance(model, Model) else load(model)
    if device or not isinstance(model, Model):
        subject.to(find_device(device or "auto"))
    ensure_supported(Ttaps(), subject.network, subject.objective)
    make_room(place / PRESETS)
    benchmark = validation_benchmark(subject, data, Path(data_root) if data_root else None)
    folder = Path(results) if results else Path("results") / f"tune-{subject.name}"
    folder.mkdir(parents=True, exist_ok=True)
    with file_lock(folder / "tune.lock", "tuning here"), Store(folder) as store:
        tuner = Tuner(subject, benchmark, images or IMAGES, seed, store)
        if minutes is not None and images is None:
            asked = {"minutes": minutes, "fingerprint": subject.fingerprint, "seed": seed, "digest": benchmark.digest}
            known = json.loads((folder / SIZE).read_text()) if (folder / SIZE).exists() else {}
            if {name: known.get(name) for name in asked} != asked:
                known = {**asked, "images": min(IMAGES, affordable(tuner, minutes))}
                write_text(folder / SIZE, json.dumps(known) + "\n")
            tuner = Tuner(subject, benchmark, known["images"], seed, store)
        return conclude(tuner, place, folder)


def conclude(tuner: Tuner, place: Path, folder: Path) -> Tuned:
    """Search, fit temperatures, confirm, write the presets and return the result."""
    chosen, other, mean, first = search(tuner)
    methods = [Source(), *(tuner.calibrated(option.method) for option in (chosen, other, mean))]
    rows = tuner.confirm(methods)
    names = ["source", "ttaps:tuned", "runner-up", "augment:tuned"]
    table = summary(rows, names)
    verdicts = [
        compare(rows, 1, 3, "ttaps:tuned", "augment:tuned"),
        compare(rows, 1, 2, "ttaps:tuned", "the runner-up"),
    ]
    verdicts.append(winner(table))
    if not chosen.guarded:
        verdicts.append(f"All settings lose more on clean images than {GUARD} points: these lose least.")
    path = place / PRESETS
    found = {"date": datetime.now(UTC).strftime("%Y-%m-%d"), "command": shlex.join(["ttaps", *sys.argv[1:]]),
             "data": tuner.data.name, "images": len(tuner.items), "fresh_images": len(tuner.fresh), "seed": tuner.seed,
             "candidates": RUNGS[0][0], "options": len(first), "gain_when_chosen": round(chosen.gain, 2), "verdicts": verdicts}  # fmt: skip
    numbers = {name: line.round(2).to_dict() for name, line in table.rename(index=lambda n: n.split(":")[0]).iterrows()}
    quantiles = [round(float(value), 5) for value in tuner.seen.quantiles]
    presets = {"fingerprint": tuner.model.fingerprint, "ttaps": {"tuned": methods[1]}, "augment": {"tuned": methods[3]},
               "shift": {"quantiles": quantiles}, "found": {**found, **numbers}}  # fmt: skip
    write_text(path, to_toml(presets))
    text = report_text(tuner, methods, table, verdicts, path, folder)
    return Tuned(tuner.model.name, methods[1], methods[3], path, rows, effects(first), text)


def summary(rows: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Return a line for each method: accuracy and its change with intervals, that on clean images, calibration and cost."""
    seconds = rows[rows["place"] == 0]["seconds"].mean()
    lines = []
    for place in range(len(names)):
        own = rows[rows["place"] == place]
        clean = own[own["severity"] == 0]
        numbers = measure(own)
        line = {name: numbers[name] for name in numbers if name == "n" or name.startswith(("after", "change"))}
        line |= {"clean_change": 100 * float((clean["correct_after"].astype(float) - clean["correct_before"]).mean())}
        line |= {"adapted": 100 * float((own["confidence_after"] != own["confidence_before"]).mean())}
        line |= {"ece": calibration_error(own["confidence_after"], own["correct_after"])}
        lines.append({**line, "cost": float(own["seconds"].mean() / seconds)})
    return pd.DataFrame(lines, index=list(names))


def compare(rows: pd.DataFrame, first: int, second: int, name: str, other: str) -> str:
    """Describe how much better one method is than another on the same images."""
    mine, theirs = (rows[rows["place"] == place] for place in (first, second))
    line = compare_table(theirs, mine).iloc[-1]
    interval = f"{line['change_low']:+.2f} to {line['change_high']:+.2f}"
    chance = f"p = {line['p']:.2g}, n = {line['n']:.0f}"
    return f"{name} against {other}: {line['change']:+.2f} points ({interval}), {chance}"


def winner(table: pd.DataFrame) -> str:
    """Say plainly which method is best."""
    known = table.loc[["source", "ttaps:tuned", "augment:tuned"], "after"]
    name = str(known.idxmax())
    rest = ", ".join(f"{other} {value:.2f}" for other, value in known.items() if other != name)
    return f"Best on fresh images: {name}, {known.max():.2f} % ({rest})"


def report_text(
    tuner: Tuner, methods: Sequence[Method], table: pd.DataFrame, verdicts: Sequence[str], path: Path, folder: Path
) -> str:
    """Write the report."""
    head = ["", "accuracy, %", "change, points", "clean", "adapted, %", "ECE, %", "cost"]
    cells = [
        [name, f"{line['after']:.2f}", f"{line['change']:+.2f} ({line['change_low']:+.2f} to {line['change_high']:+.2f})",
         f"{line['clean_change']:+.2f}", f"{line['adapted']:.0f}", f"{line['ece']:.1f}", f"{line['cost']:.1f}"]
        for name, line in table.iterrows()
    ]  # fmt: skip
    specs = [f"  {name}: {method_spec(method)}" for name, method in zip(table.index[1:], methods[1:], strict=True)]
    images = f"{len(tuner.fresh):,} fresh validation images ({tuner.data.name}, severities 0 to 5)"
    wrote = f"Wrote {path}; rows are in {folder}."
    parts = [f"{tuner.model.name} on {images}:", text_table(head, cells), "\n".join(verdicts), "\n".join(specs), wrote]
    return "\n\n".join(parts)
