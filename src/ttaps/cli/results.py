"""``ttaps results merge|export``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ttaps.cli.options import Folders, parse_subcommand
from ttaps.errors import TtapsError, UsageError


@dataclass(frozen=True)
class Merge:
    """Join the results of several folders, from shards or other machines. Done twice, it changes nothing."""

    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")]
    """Folder that gets all results; made if it is not there."""
    folders: Folders
    """Folders of results; they stay as they are."""

    def run(self) -> None:
        """Merge and say how many rows were new."""
        from ttaps.evaluate import Store, merge
        from ttaps.evaluate.projections import merge_projections

        if not self.folders:
            raise UsageError("Name the folders to merge: ttaps results merge OUT FOLDER...")
        for folder in self.folders:
            Store(folder, write=False).close()  # all must be there before anything is written
        added, maps = merge(self.folders, self.out), merge_projections(self.folders, self.out)
        print(f"{added} new rows in {self.out}")
        if maps:
            print(f"Projections that are new there: {maps}")


@dataclass(frozen=True)
class Export:
    """Write accuracy and error of every experiment, corruption, severity and step as a tidy CSV file, or every image by itself."""

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """Folder of results."""
    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE.csv")]
    """The file to write."""
    images: bool = False
    """A line for every image and step: its label, the prediction, and the probabilities of both."""

    def run(self) -> None:
        """Export and print where it is."""
        from ttaps.evaluate import Store, export_csv
        from ttaps.evaluate.export import export_images

        with Store(self.folder, write=False) as store:
            if not any(True for number in store.experiments() for _ in store.items(number)):
                raise TtapsError(f"No image has been evaluated yet in {self.folder}.")
            (export_images if self.images else export_csv)(store, self.file)
        print(self.file)


COMMANDS: dict[str, type[Merge | Export]] = {"merge": Merge, "export": Export}


def run(arguments: list[str]) -> None:
    """Merge or export."""
    parse_subcommand(COMMANDS, "results", arguments).run()
