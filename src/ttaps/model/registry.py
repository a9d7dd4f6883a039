"""Models by name: those inside the package and, in a clone, those of the repository."""

import re
from pathlib import Path

from ttaps.config import did_you_mean
from ttaps.errors import CheckpointError, UsageError
from ttaps.model.config import CONFIG
from ttaps.progress import log_info

EMBEDDED = Path(__file__).parents[1] / "models"
PUBLISHED = Path(__file__).parents[3] / "models"  # of the repository; an installed package has only the embedded ones
REFERENCE = re.compile(r"(?P<place>.+\.py|\w+(\.\w+)*):(?P<name>\w+)")


def known_models() -> dict[str, Path]:
    """Return the models inside the package and, in a clone, those of the repository, sorted by name.
    Of two with the same name, the one inside the package is used."""
    found = {path.parent.name: path.parent for where in (PUBLISHED, EMBEDDED) for path in where.glob(f"*/{CONFIG}")}
    return dict(sorted(found.items()))


def folder_of(model: str | Path) -> Path:
    """Return a model's folder, by its name or path."""
    if not isinstance(model, str | Path):
        raise UsageError(f"Give the name or folder of a model, not {type(model).__name__}.")
    inside = known_models()
    found = inside.get(model, Path(model)) if isinstance(model, str) else model
    if found != Path(model) and (Path(model) / CONFIG).exists() and not found.samefile(model):
        log_info(f"'{model}' is the bundled model of that name; the one in this folder is ./{model}.")
    if not found.exists():
        raise CheckpointError(f"There is no model '{model}': no such folder{did_you_mean(str(model), inside)}.")
    return found


def is_reference(text: str) -> bool:
    """Tell whether a text names a factory in a file or a module: ``my_nets.py:make_net``, ``package.nets:make_net``."""
    return REFERENCE.fullmatch(text) is not None and not Path(text).exists()
