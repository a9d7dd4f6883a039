"""Where the data sets lie."""

from __future__ import annotations

import os
from pathlib import Path


def data_root(option: Path | None = None) -> Path:
    """Return the folder of the data sets: ``option`` (``--data-root``), else ``$TTAPS_DATA``, else ``./data``."""
    return option or Path(os.environ.get("TTAPS_DATA") or "data")


def asking_for(root: Path) -> str:
    """Return what a command that is recommended needs in order to use ``root``: nothing where it would anyway."""
    return "" if root == data_root() else f" --data-root {root}"
