"""Models with a name: those inside the package and, in a clone of the repository, those beside it."""

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
    """Return the models of the repository, where this is a clone of it, and those inside the package, in the order of their names.
    Of two with the same name it is the one inside the package."""
    found = {path.parent.name: path.parent for where in (PUBLISHED, EMBEDDED) for path in where.glob(f"*/{CONFIG}")}
    return dict(sorted(found.items()))


def folder_of(model: str | Path) -> Path:
    """Return where a model is, by its name or the path of its folder."""
    if not isinstance(model, str | Path):
        raise UsageError(f"Give the name or folder of a model, not {type(model).__name__}.")
    inside = known_models()
    found = inside.get(model, Path(model)) if isinstance(model, str) else model
    if found != Path(model) and (Path(model) / CONFIG).exists() and not found.samefile(model):
        log_info(f"'{model}' is the model of that name that comes with ttaps; the one in the folder here is ./{model}.")
    if not found.exists():
        raise CheckpointError(f"There is no model '{model}': no such folder{did_you_mean(str(model), inside)}.")
    return found


def is_reference(text: str) -> bool:
    """Tell whether a text names a factory in a file or a module: ``my_nets.py:make_net``, ``package.nets:make_net``."""
    return REFERENCE.fullmatch(text) is not None and not Path(text).exists()
