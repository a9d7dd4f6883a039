"""Copy a finished run to where models are kept, with what was measured of it on its card.

python tools/publish.py RUN OUT --command "ttaps train ..." [--results FOLDER]... [--hardware TEXT] [--note TEXT]
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator
from pathlib import Path

from ttaps.evaluate import Store, Summary, summarize
from ttaps.evaluate.settings import settings_name
from ttaps.model.checkpoint import load_model, save_model

KEPT = ("train.toml", "metrics.jsonl")
AGAIN = "the same file as `--config` trains this model again."


def publish(run: Path, out: Path, command: str, results: list[Path], hardware: str, note: str) -> None:
    model = load_model(run)
    facts = [line for folder in sorted(results) for line in measured(folder, model.fingerprint)]
    card = model.card.replace(AGAIN, f"`{command}` trains this model again.")
    card = card.replace(str(model.info["hardware"]), hardware)
    card += "\n".join(["", "Measured (accuracy in %, 95 % intervals; docs/results.md has the commands):", *facts, ""])
    info = {name: value for name, value in model.info.items() if name not in ("format", "ttaps")}
    out.mkdir(parents=True, exist_ok=True)
    save_model(out, model.network, model.classes, info | {"hardware": hardware}, f"{card}\n{note}\n" if note else card)
    for name in KEPT:
        shutil.copy(run / name, out / name)
    print(out, load_model(out).fingerprint)


def measured(folder: Path, fingerprint: str) -> Iterator[str]:
    """Yield a line of the card for each experiment with this model in a results folder."""
    with Store(folder, write=False) as store:
        for number, experiment in store.experiments().items():
            if experiment.fingerprint == fingerprint:
                yield f"- {line(summarize(store, number))}"


def line(summary: Summary) -> str:
    experiment, average = summary.experiments[0], summary.average
    severities = sorted({line.severity for line in summary.lines if line.severity})
    where = experiment.data + (f", severity {', '.join(map(str, severities))}" if severities else "")
    images = (
        f"{len(summary.lines)} x {average.n // len(summary.lines):,} images" if severities else f"{average.n:,} images"
    )
    after = f"{average.after.percent:.1f} ({average.after.low:.1f} to {average.after.high:.1f})"
    if experiment.method == "source":
        return f"{where}, {images}, before adaptation: {after}"
    change = average.difference
    name = ", ".join(filter(None, (experiment.method, settings_name(experiment))))
    return f"{where}, {images}, {name}: {after}, change {change.points:+.2f} ({change.low:+.2f} to {change.high:+.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--command", required=True)
    parser.add_argument("--results", type=Path, action="append", default=[])
    parser.add_argument("--hardware", default="1 CPU thread (AMD EPYC, AVX2)")
    parser.add_argument("--note", default="")
    options = parser.parse_args()
    publish(options.run, options.out, options.command, options.results, options.hardware, options.note)


if __name__ == "__main__":
    main()
