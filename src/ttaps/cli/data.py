"""``ttaps data download|build|verify``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Literal

import tyro

from ttaps.cli.options import DataRootOption, JsonOption, listed, parse_subcommand, print_json
from ttaps.errors import UsageError


@dataclass(frozen=True)
class Download(DataRootOption):
    """Download CIFAR-10 or CIFAR-100 in the official layout. If interrupted, the same command resumes it.

    Example: ttaps data download cifar10
    """

    name: tyro.conf.Positional[Literal["cifar10", "cifar100"]]
    """Which data set."""

    def run(self) -> None:
        """Download it and print where it is."""
        from ttaps.data import data_root
        from ttaps.data.download import download

        print(download(self.name, data_root(self.data_root)))


@dataclass(frozen=True)
class Build(DataRootOption):
    """Build CIFAR-10-C or CIFAR-100-C from the clean test images. If interrupted, the same command resumes it.

    Example: ttaps data build cifar10-c --corruptions fog,frost
    """

    name: tyro.conf.Positional[Literal["cifar10-c", "cifar100-c"]]
    """Which data set."""
    seed: int = 0
    """Seed of the random corruptions."""
    corruptions: str = ""
    """Only these, comma-separated; all 19 if empty."""
    workers: int | None = None
    """Processes; all cores if not given."""

    def run(self) -> None:
        """Build it and print where it is."""
        from ttaps.data import data_root
        from ttaps.data.build import build

        if self.workers is not None and self.workers < 1:
            raise UsageError(f"--workers must be at least 1, not {self.workers}.")
        chosen = listed(self.corruptions) or None
        print(build(self.name, data_root(self.data_root), self.seed, chosen, self.workers))


@dataclass(frozen=True)
class Verify(DataRootOption, JsonOption):
    """Report for each data set whether it is present, complete and correct by its checksums, and what to do if not.

    Exit code 1 if a named data set is not correct; without names, if something is damaged or nothing is correct.

    Example: ttaps data verify cifar10 cifar10-c
    """

    names: Annotated[
        tuple[Literal["cifar10", "cifar100", "cifar10-c", "cifar100-c"], ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="[NAME...]", help_behavior_hint="(default: all)"),
    ] = ()
    """Which data sets: cifar10, cifar100, cifar10-c, cifar100-c."""

    def run(self) -> None:
        """Verify and print."""
        from ttaps.data import data_root
        from ttaps.data.verify import verify

        rows = verify(data_root(self.data_root), self.names)
        if self.json:
            print_json([asdict(row) for row in rows])
        else:
            for row in rows:
                remedy = f"  ->  {row.remedy}" if row.remedy else ""
                print(f"{row.name:<11} {row.file:<22} {row.state:<11} {row.detail}{remedy}")
        right = [row.ok for row in rows if not row.file]
        damaged = any(row.state == "damaged" for row in rows)
        if damaged or not (all(right) if self.names else any(right)):
            raise SystemExit(1)


COMMANDS: dict[str, type[Download | Build | Verify]] = {"download": Download, "build": Build, "verify": Verify}


def run(arguments: list[str]) -> None:
    """Download, build or verify."""
    parse_subcommand(COMMANDS, "data", arguments).run()
