"""``ttaps data get|build|check``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from ttaps.cli.options import helped_by, listed, parse, print_json
from ttaps.errors import UsageError


@dataclass(frozen=True)
class Get:
    """Get CIFAR-10 or CIFAR-100 in the official layout. Interrupted, the same command finishes it."""

    name: tyro.conf.Positional[Literal["cifar10", "cifar100"]]
    """Which set."""
    data_root: Path | None = None
    """Folder of the data sets; else $TTAPS_DATA, else ./data."""

    def run(self) -> None:
        """Get it and print where it is."""
        from ttaps.data import data_root
        from ttaps.data.download import get

        print(get(self.name, data_root(self.data_root)))


@dataclass(frozen=True)
class Build:
    """Build CIFAR-10-C or CIFAR-100-C from the clean test images. Interrupted, the same command goes on."""

    name: tyro.conf.Positional[Literal["cifar10-c", "cifar100-c"]]
    """Which set."""
    seed: int = 0
    """Seed of the random corruptions."""
    corruptions: str = ""
    """Only these, with commas between; all 19 if empty."""
    workers: int | None = None
    """Processes; all cores if not given."""
    data_root: Path | None = None
    """Folder of the data sets; else $TTAPS_DATA, else ./data."""

    def run(self) -> None:
        """Build it and print where it is."""
        from ttaps.data import data_root
        from ttaps.data.build import build

        if self.workers is not None and self.workers < 1:
            raise UsageError(f"--workers must be at least 1, not {self.workers}.")
        chosen = listed(self.corruptions) or None
        print(build(self.name, data_root(self.data_root), self.seed, chosen, self.workers))


@dataclass(frozen=True)
class Check:
    """Say for each data set whether it is there, whole and right, and what to do if not.

    Exit code 1 if a set that is named is not right; without names, if something is damaged or nothing is right.
    """

    names: Annotated[
        tuple[Literal["cifar10", "cifar100", "cifar10-c", "cifar100-c"], ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="[NAME...]", help_behavior_hint="(default: all)"),
    ] = ()
    """Which sets: cifar10, cifar100, cifar10-c, cifar100-c."""
    json: bool = False
    """Print for machines."""
    data_root: Path | None = None
    """Folder of the data sets; else $TTAPS_DATA, else ./data."""

    def run(self) -> None:
        """Check and print."""
        from ttaps.data import data_root
        from ttaps.data.check import check

        rows = check(data_root(self.data_root), self.names)
        if self.json:
            print_json([asdict(row) for row in rows])
        else:
            for row in rows:
                remedy = f"  ->  {row.remedy}" if row.remedy else ""
                print(f"{row.name:<11} {row.file:<22} {row.state:<11} {row.detail}{remedy}")
        whole = [row.ok for row in rows if not row.file]
        damaged = any(row.state == "damaged" for row in rows)
        if damaged or not (all(whole) if self.names else any(whole)):
            raise SystemExit(1)


Command = (
    Annotated[Get, tyro.conf.subcommand("get")]
    | Annotated[Build, tyro.conf.subcommand("build")]
    | Annotated[Check, tyro.conf.subcommand("check")]
)


def run(arguments: list[str]) -> None:
    """Get, build or check."""
    kind: Any = Command
    parse(kind, helped_by("data", arguments, ("get", "build", "check")), arguments).run()
