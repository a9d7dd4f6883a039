"""``ttaps results merge|export``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ttaps.cli.options import Folders, parse_subcommand
from ttaps.errors import UsageError


@dataclass(frozen=True)
class Merge:
    """Join the results of several folders, from shards or other machines. Merging twice changes nothing.

    Example: ttaps results merge results/all results/machine-1 results/machine-2
    """

    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")]
    """Folder that gets all results; created if missing."""
    folders: Folders
    """Folders of results; they are not changed."""

    def run(self) -> None:
        """Merge and say how many rows were new."""
        from ttaps.evaluate.projections import merge_projections
        from ttaps.evaluate.store import Store, merge

        if not self.folders:
            raise UsageError("Name the folders to merge: ttaps results merge OUT FOLDER...")
        for folder in self.folders:
            Store(folder, write=False).close()  # all must be there before anything is written
        added, maps = merge(self.folders, self.out), merge_projections(self.folders, self.out)
        print(f"{added} new rows in {self.out}")
        if maps:
            print(f"New projections there: {maps}")


@dataclass(frozen=True)
class Export:
    """Write the accuracy of every experiment and corruption as a tidy CSV or Parquet file, or one line per image.

    Example: ttaps results export results/cifar10-sample images.csv --images
    """

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """Folder of results."""
    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """The file to write, .csv or .parquet."""
    images: bool = False
    """A line for every image: its file, its label, the predictions before and after and their confidence."""
    steps: bool = False
    """A line for every step, 0 being before adaptation, instead of the last one only."""

    def run(self) -> None:
        """Export and print where it is."""
        from ttaps.evaluate.export import export

        export(self.folder, self.file, self.images, self.steps)
        print(self.file)


COMMANDS: dict[str, type[Merge | Export]] = {"merge": Merge, "export": Export}


def run(arguments: list[str]) -> None:
    """Merge or export."""
    parse_subcommand(COMMANDS, "results", arguments).run()
