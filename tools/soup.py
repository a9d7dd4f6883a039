"""Average the weights of two models that were trained from the same start (a model soup, Wortsman et al., 2022), or of a model and what
it started from (WiSE-FT).

python tools/soup.py models/jt+ent-cifar10 models/baseline-cifar10 0.5 runs/cifar10
Prototypes and heads are the first model's; all other weights are its own and, by the given share, the other's.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from ttaps.model import as_network
from ttaps.model.checkpoint import load_model, save_model
from ttaps.training.trainer import HEADS_AND_PROTOTYPES

KEPT = ("train.toml", "metrics.jsonl")


def soup(first: Path, other: Path, share: float, out: Path) -> None:
    model, second = load_model(first), load_model(other)
    start, theirs = model.info.get("init_from"), second.info.get("init_from")
    own_start = start is not None and start["fingerprint"] == second.fingerprint
    if start != theirs and not own_start:
        raise SystemExit(f"{first} started from {start}, {other} from {theirs}: weights of strangers do not average.")
    network, weights = as_network(model.network), second.network.state_dict()
    for name, weight in network.state_dict().items():
        if weight.is_floating_point() and not name.startswith(HEADS_AND_PROTOTYPES):
            weight.lerp_(weights[name], share)
    info = {name: value for name, value in model.info.items() if name not in ("format", "ttaps", "validation_accuracy")}
    card = model.card.split("\nMeasured (")[0]
    what = (
        "what it started from"
        if own_start
        else f"cross-entropy\nalone from the same start ({second.info['hours']:g} hours)"
    )
    card += (
        f"\nThese weights are {1 - share:g} of that run ({model.fingerprint}) and {share:g} of `{other.name}` ({second.fingerprint}),"
        f" {what}: `tools/soup.py` averages them.\n"
    )
    hours = round(float(model.info["hours"]) + (0 if own_start else float(second.info["hours"])), 2)
    out.mkdir(parents=True, exist_ok=True)
    save_model(out, network, model.classes, info | {"hours": hours, "soup": {other.name: share}}, card)
    for name in KEPT:
        shutil.copy(first / name, out / name)
    print(out, load_model(out).fingerprint)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("other", type=Path)
    parser.add_argument("share", type=float)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    soup(options.model, options.other, options.share, options.out)


if __name__ == "__main__":
    main()
