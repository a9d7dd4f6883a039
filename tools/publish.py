"""Copy a finished run to where models are kept, with what was measured of it on its card.

python tools/publish.py RUN OUT --command "ttaps train ..." [--results FOLDER]... [--hardware TEXT] [--note TEXT]
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator
from pathlib import Path

from ttaps.evaluation.frame import load_rows
from ttaps.evaluation.statistics import measure
from ttaps.model import as_network
from ttaps.model.checkpoint import load_model, save_model

KEPT = ("train.toml", "metrics.jsonl")
AGAIN = "the same file as `--config` trains this model again."


def publish(run: Path, out: Path, command: str, results: list[Path], hardware: str, note: str) -> None:
    model = load_model(run)
    facts = [line for folder in sorted(results) for line in measured(folder, model.fingerprint)]
    card = model.card.replace(AGAIN, f"`{command}` trains this model again.")
    card = card.replace(str(model.info["hardware"]), hardware)
    card += "\n".join(
        ["", "Measured (accuracy in %, 95 % intervals; docs/results/README.md has the commands):", *facts, ""]
    )
    info = {name: value for name, value in model.info.items() if name not in ("format", "ttaps")}
    out.mkdir(parents=True, exist_ok=True)
    save_model(
        out,
        as_network(model.network),
        model.classes,
        info | {"hardware": hardware},
        f"{card}\n{note}\n" if note else card,
    )
    for name in KEPT:
        shutil.copy(run / name, out / name)
    print(out, load_model(out).fingerprint)


def measured(folder: Path, fingerprint: str) -> Iterator[str]:
    """Yield a line of the card for each experiment with this model in a results folder."""
    rows = load_rows([folder])
    own = rows[rows["fingerprint"] == fingerprint]
    for (data, spec, _seed), part in own.groupby(["data", "spec", "seed"], sort=False):
        conditions = part[["corruption", "severity"]].drop_duplicates()
        severities = sorted(set(conditions["severity"]) - {0})
        where = f"{data}, severity {', '.join(map(str, severities))}" if severities else data
        images = (
            f"{len(conditions)} x {len(part) // len(conditions):,} images" if severities else f"{len(part):,} images"
        )
        line = measure(part)
        after = f"{line['after']:.1f} ({line['after_low']:.1f} to {line['after_high']:.1f})"
        change = f", change {line['change']:+.2f} ({line['change_low']:+.2f} to {line['change_high']:+.2f})"
        plain = spec == "source"
        yield f"- {where}, {images}, {'before adaptation' if plain else spec}: {after}{'' if plain else change}"


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
