"""Torture the package: kills, power cuts, full and failing disks, bad input, busy machines. docs/reliability.md has the promises.

Run it as: python tools/torture.py --minutes 15 --seed 0
Parts, or a few trials of each: python tools/torture.py --parts kills,disks --short
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from reliability import faults
from reliability.case import Case, Failed, Place, Skipped

ROOT = Path(__file__).resolve().parents[1]
PARTS = {
    "supply": 0,
    "inputs": 3,
    "stress": 3,
    "kills": 8,
    "disks": 8,
}  # with their shares of the time; 0: as much as it takes


@dataclass
class Line:
    """What came of one kind of trial."""

    part: str
    what: str
    trials: int = 0
    of: int = 0
    failures: list[str] = field(default_factory=list)
    skipped: str = ""
    seconds: float = 0.0

    @property
    def tried(self) -> str:
        """How many were tried, of how many there are."""
        if self.skipped:
            return f"skipped: {self.skipped}"
        return f"{self.trials:,}" + (f" of {self.of:,}" if self.of else "")


def cases(name: str, place: Place) -> Iterator[Case]:
    """Return the trials of a part; imported here, for it needs torch."""
    found: Iterator[Case] = importlib.import_module(f"reliability.{name}").cases(place, faults.shared())
    return found


def run(part: str, trials: Iterator[Case], share: float, lines: dict[str, Line]) -> None:
    """Run trials until there are no more, or until ``share`` seconds after the first began."""
    end = math.inf
    while time.monotonic() < end:
        began, line = time.monotonic(), lines.setdefault(f"{part} set up", Line(part, "set up"))
        try:
            case = next(trials)
            line.seconds, began = line.seconds + time.monotonic() - began, time.monotonic()
            end = min(end, began + share)
            line = lines.setdefault(f"{part} {case.what}", Line(part, case.what, of=case.of))
            line.trials += case.run()
        except StopIteration:
            return
        except Skipped as reason:
            line.skipped = str(reason)
        except Failed as failure:
            line.failures.append(str(failure))
            print(f"FAILED  {part}, {line.what}: {failure}\n", file=sys.stderr, flush=True)
            if line.what == "set up":
                return
        except Exception:
            line.failures.append(f"a fault of this tool:\n{traceback.format_exc()}")
            print(f"FAILED  {part}, {line.what}: {line.failures[-1]}", file=sys.stderr, flush=True)
        finally:
            line.seconds += time.monotonic() - began


def table(lines: Sequence[Line]) -> str:
    """Write the lines as a Markdown table."""
    head = ["| part | what | trials | failures | seconds |", "|---|---|--:|--:|--:|"]
    rows = [
        f"| {line.part} | {line.what} | {line.tried} | {len(line.failures)} | {line.seconds:.0f} |" for line in lines
    ]
    trials, failures = sum(line.trials for line in lines), sum(len(line.failures) for line in lines)
    return "\n".join([*head, *rows, f"| all | | {trials:,} | {failures} | {sum(line.seconds for line in lines):.0f} |"])


def machine() -> str:
    """Say what this ran on."""
    commit = subprocess.run(
        ["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    cores = f"{len(os.sched_getaffinity(0))} of {os.cpu_count()} cores"
    return f"commit {commit.stdout.strip()}, Python {platform.python_version()}, {platform.machine()}, {cores}"


def arguments() -> argparse.Namespace:
    """Return what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=15.0, help="time for all parts together (15)")
    parser.add_argument("--seed", type=int, default=0, help="of every random choice (0)")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"comma-separated: {', '.join(PARTS)}")
    parser.add_argument("--short", action="store_true", help="a few trials of each, as in make test")
    parser.add_argument("--json", action="store_true", help="output JSON")
    asked = parser.parse_args()
    asked.parts = [name.strip() for name in asked.parts.split(",")]
    if wrong := set(asked.parts) - set(PARTS):
        parser.error(f"unknown part {', '.join(wrong)}; choose among {', '.join(PARTS)}")
    return asked


def main() -> int:
    """Run the parts one after the other, each with its share of the time; return 1 if anything failed."""
    asked = arguments()
    sys.path[:0] = [str(ROOT / folder) for folder in ("src", "tools", "tests")]
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)  # for commands that are started anew
    if reason := faults.preload(Path(tempfile.gettempdir())):
        print(f"Nothing was tried: {reason}.", file=sys.stderr)
        return 2
    memory = Path("/dev/shm")  # syncing a disk takes most of the time elsewhere
    scratch = Path(tempfile.mkdtemp(prefix="torture-", dir=memory if memory.is_dir() else None))
    lines: dict[str, Line] = {}
    began, load = time.monotonic(), os.getloadavg()[0]
    try:
        for number, name in enumerate(asked.parts):
            left = 60 * asked.minutes - (time.monotonic() - began)
            others = sum(PARTS[other] for other in asked.parts[number:])
            share = left * PARTS[name] / others if PARTS[name] else math.inf
            place = Place(random.Random(f"{asked.seed} {name}"), scratch / name, asked.short)
            run(name, cases(name, place), share, lines)
    except KeyboardInterrupt:
        lines["interrupted"] = Line("all", "set up", failures=["interrupted"])
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        Path(os.environ["TORTURE_FAULTS"]).unlink(missing_ok=True)
    if asked.json:
        print(json.dumps([asdict(line) for line in lines.values()], indent=1))
    else:
        print(table(list(lines.values())))
        minutes = (time.monotonic() - began) / 60
        print(f"\nseed {asked.seed}, {minutes:.0f} minutes, {machine()}, load {load:.1f} to {os.getloadavg()[0]:.1f}")
    return int(any(line.failures for line in lines.values()))


if __name__ == "__main__":
    sys.exit(main())
