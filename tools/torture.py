"""Torture the package: kills, power cuts, full and failing disks, bad input, busy machines. docs/reliability.md has the promises.

Run it as: python tools/torture.py --seed 0 --jobs 2
Some time of every part: python tools/torture.py --minutes 15
Parts, or a few trials of each: python tools/torture.py --parts kills,full-disks --short
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
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from pathlib import Path

from reliability import faults
from reliability.case import Case, Failed, Place, Skipped

ROOT = Path(__file__).resolve().parents[1]
PARTS = {"failing-disks": 16, "kills": 14, "full-disks": 12, "inputs": 7, "stress": 5, "supply": 2}
"""With their shares of the time."""
ENOUGH = {"kills": ("kill -9", 140), "inputs": ("", 10_000), "stress": ("", 20)}
"""What is enough where no time is given: trials whose names begin so. Disks and supply end when everything has been tried."""


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
    module = importlib.import_module(f"reliability.{name.rpartition('-')[2]}")
    found: Iterator[Case] = module.cases(place, faults.shared())
    return found


def enough(part: str, lines: Iterable[Line]) -> bool:
    """Whether a part has had as many trials as it needs."""
    kind, least = ENOUGH.get(part, ("", math.inf))
    return sum(line.trials for line in lines if line.what.startswith(kind)) >= least


def run(part: str, trials: Iterator[Case], seconds: float | None, lines: dict[str, Line]) -> None:
    """Run trials until there are no more, or for some seconds, one at least; if no time is given, until there were enough."""
    start, end = time.monotonic(), math.inf
    while time.monotonic() < end and (seconds or not enough(part, lines.values())):
        began, line = time.monotonic(), lines.setdefault(f"{part} set up", Line(part, "set up"))
        try:
            case = next(trials)
            line.seconds, began = line.seconds + time.monotonic() - began, time.monotonic()
            end = start + seconds if seconds else math.inf
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


def totals(lines: Sequence[Line]) -> str:
    """Add the lines of the same kind of trial up, over all commands."""
    kinds: dict[str, list[Line]] = {}
    for line in lines:
        kind, colon, _ = line.what.partition(":")
        kinds.setdefault(f"{line.part}, {kind}" if colon else line.part, []).append(line)
    tried = {kind: (sum(line.trials for line in own), sum(line.of for line in own)) for kind, own in kinds.items()}
    return "\n".join(f"- {kind}: {done:,}" + f" of {of:,}" * (done <= of) for kind, (done, of) in tried.items() if done)


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
    parser.add_argument("--minutes", type=float, help="time for all parts together (as long as it takes)")
    parser.add_argument("--jobs", type=int, default=1, help="parts at once, each with so much more time (1)")
    parser.add_argument("--seed", type=int, default=0, help="of every random choice (0)")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"comma-separated: {', '.join(PARTS)}")
    parser.add_argument("--short", action="store_true", help="a few trials of each, as in make test")
    parser.add_argument(
        "--advisories", type=Path, help="OSV's all.zip of PyPI: known vulnerabilities, without a network"
    )
    parser.add_argument("--json", action="store_true", help="output JSON")
    asked = parser.parse_args()
    asked.jobs = max(1, asked.jobs)
    asked.parts = [name.strip() for name in asked.parts.split(",")]
    if wrong := set(asked.parts) - set(PARTS):
        parser.error(f"unknown part {', '.join(wrong)}; choose among {', '.join(PARTS)}")
    return asked


def one_part(name: str, asked: argparse.Namespace) -> list[Line]:
    """Run a part in this process, which has the fault injector in it."""
    memory = Path("/dev/shm")  # syncing a disk takes most of the time elsewhere
    scratch = Path(tempfile.mkdtemp(prefix="torture-", dir=memory if memory.is_dir() else None))
    lines: dict[str, Line] = {}
    try:
        place = Place(random.Random(f"{asked.seed} {name}"), scratch, name, asked.short)
        run(name, cases(name, place), asked.minutes and 60 * asked.minutes, lines)
    except KeyboardInterrupt:
        lines["interrupted"] = Line(name, "interrupted", failures=["by Ctrl-C"])
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        Path(os.environ["TORTURE_FAULTS"]).unlink(missing_ok=True)
    return list(lines.values())


def in_a_process(asked: argparse.Namespace, whole: int, name: str) -> list[Line]:
    """Run a part in a process of its own, with its share of the time."""
    command = [sys.executable, __file__, "--parts", name, "--seed", str(asked.seed), "--json"]
    if asked.minutes:
        command += ["--minutes", str(asked.minutes * min(1.0, asked.jobs * PARTS[name] / whole))]
    if asked.short:
        command.append("--short")
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    try:
        return [Line(**line) for line in json.loads(done.stdout)]
    except ValueError:
        return [Line(name, "set up", failures=[f"it ended with exit code {done.returncode} and said no more"])]


def parts(asked: argparse.Namespace) -> list[Line]:
    """Run the parts, the longest first, as many at once as there are jobs; after Ctrl-C, return what those that ran had done."""
    longest = sorted(asked.parts, key=lambda name: -PARTS[name])
    whole = sum(PARTS[name] for name in longest)
    with ThreadPoolExecutor(asked.jobs) as pool:
        running = [pool.submit(in_a_process, asked, whole, name) for name in longest]
        try:
            wait(running)
        except KeyboardInterrupt:  # the processes of the parts heard it too
            for part in running:
                part.cancel()
    return [line for part in running if not part.cancelled() for line in part.result()]


def main() -> int:
    """Run the parts and say what came of them; return 1 if anything failed."""
    asked = arguments()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets a job in the background ignore it
    sys.path[:0] = [str(ROOT / folder) for folder in ("src", "tools", "tests")]
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)  # for commands that are started anew
    if asked.advisories:
        os.environ["TORTURE_ADVISORIES"] = str(asked.advisories.resolve(strict=True))
    began, load = time.monotonic(), os.getloadavg()[0]
    if len(asked.parts) > 1:
        lines = parts(asked)
    elif reason := faults.preload(Path(tempfile.gettempdir())):
        print(f"Nothing was tried: {reason}.", file=sys.stderr)
        return 2
    else:
        lines = one_part(asked.parts[0], asked)
    if asked.json:
        print(json.dumps([asdict(line) for line in lines], indent=1))
    else:
        print(table(lines), totals(lines), sep="\n\n")
        minutes = (time.monotonic() - began) / 60
        print(f"\nseed {asked.seed}, {minutes:.0f} minutes, {machine()}, load {load:.1f} to {os.getloadavg()[0]:.1f}")
    return int(any(line.failures for line in lines))


if __name__ == "__main__":
    sys.exit(main())
