"""What several commands share: their common options, parsing by dataclass, devices, threads, output."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import tyro
from rich.box import HORIZONTALS
from rich.console import Console
from rich.table import Table

from ttaps.aliases import new_name
from ttaps.config import setting_names
from ttaps.errors import UsageError
from ttaps.files import cannot_write

T = TypeVar("T")
NO_PREFIX = tyro.conf.arg(name="")
ModelName = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
Folders = Annotated[
    tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER...", help_behavior_hint="(required)")
]


@dataclass(frozen=True, kw_only=True)
class JsonOption:
    """A command that can output JSON."""

    json: bool = False
    """Output JSON."""


@dataclass(frozen=True, kw_only=True)
class DataRootOption:
    """A command that reads data sets."""

    data_root: Path | None = None
    """Folder of the data sets; else $TTAPS_DATA, else ./data."""


@dataclass(frozen=True, kw_only=True)
class ThreadsOption:
    """A command that computes."""

    threads: int | None = None
    """Threads torch may use on a CPU; as many as torch thinks fit if not given."""


@dataclass(frozen=True, kw_only=True)
class DeviceOptions(ThreadsOption):
    """A command that computes, on a GPU if there is one."""

    device: str = "auto"
    """cpu, cuda, mps, or auto."""


def parse(kind: type[T], command: str, arguments: Sequence[str], default: T | None = None) -> T:
    """Parse arguments into a dataclass whose fields are the options and whose docstrings are the help.

    ``command`` is how its help is asked for: the command, with the options that its other options depend on. An option's old name
    is refused with the new one; what else is wrong tyro prints itself, and exits with 2.
    """
    known = option_names(kind)
    for argument in arguments:
        if argument.startswith("--"):
            old = argument[2:].partition("=")[0]
            if new := new_name(old.replace("-", "_"), known):
                raise UsageError(f"--{old} is called --{new.replace('_', '-')} now.")
    given = tyro.MISSING_NONPROP if default is None else default
    return tyro.cli(kind, prog=f"ttaps {command}", args=arguments, default=given)


def parse_subcommand(kinds: Mapping[str, type[T]], command: str, arguments: Sequence[str]) -> T:
    """Parse arguments that begin with the name of a sub-command."""
    name = arguments[0] if arguments else ""
    if name in kinds:
        return parse(kinds[name], f"{command} {name}", arguments[1:])
    if new := new_name(name, kinds):
        raise UsageError(f"'ttaps {command} {name}' is called 'ttaps {command} {new}' now.")
    chosen: T = tyro.extras.subcommand_cli_from_dict(dict(kinds), prog=f"ttaps {command}", args=arguments)
    return chosen  # not reached: tyro prints the help, or what is wrong, and exits


def option_names(kind: type) -> set[str]:
    """Return the names of all options of a command; those of nested settings have dots in them."""
    names: set[str] = set()
    for name, hint in get_type_hints(kind, include_extras=True).items():
        inner, *extras = get_args(hint) if hasattr(hint, "__metadata__") else (hint,)
        if is_dataclass(inner) and isinstance(inner, type):
            prefix = "" if NO_PREFIX in extras else f"{name}."
            names |= {prefix + setting for setting in setting_names(inner)}
        else:
            short = [alias.lstrip("-") for extra in extras for alias in getattr(extra, "aliases", None) or ()]
            names |= {name, *short}
    return names


def peek(arguments: Sequence[str], option: str) -> str | None:
    """Return an option's value before the rest is parsed: it decides what the other options are. ``_`` is as good as ``-``."""
    for argument, following in zip(arguments, (*arguments[1:], None), strict=True):
        name, given, value = argument.partition("=")
        if name.replace("_", "-") == option:
            return value if given else following
    return None


def use_threads(threads: int | None) -> None:
    """Let torch use so many threads; None leaves the number to torch."""
    import torch

    if threads is None:
        return
    if threads < 1:
        raise UsageError(f"--threads must be at least 1, not {threads}.")
    cores = os.cpu_count() or 1
    if threads > 4 * cores:
        raise UsageError(f"--threads {threads} is too many for {cores} cores: choose at most {4 * cores}.")
    torch.set_num_threads(threads)


def pick_device(name: str) -> str:
    """Return the device to use; ``auto`` takes a GPU where there is one, and under torchrun each process a GPU of its own."""
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and "LOCAL_RANK" in os.environ:
        name = f"cuda:{os.environ['LOCAL_RANK']}"
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        because = (
            f": {reason}" if len(reason) < 100 else ""
        )  # to an unknown name torch answers with the list of all it knows
        raise UsageError(
            f"Device '{name}' cannot be used here{because}.\nChoose cpu, cuda or mps; auto takes cuda where there is one, else cpu."
        ) from error
    return name


def make_room(path: Path) -> None:
    """Make the folder of a file that a long command writes at its end, or fail before the work is done."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        if not os.access(path.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise cannot_write(path, error) from error


def print_json(value: Any) -> None:
    """Print JSON; NaN and infinity, which JSON does not have, become null."""
    print(json.dumps(_finite(value), indent=1, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def listed(text: str) -> list[str]:
    """Return the parts of ``a,b,c``."""
    return [part.strip() for part in text.split(",") if part.strip()]


def table(head: Sequence[str], rows: Sequence[Sequence[str]], rule_before_last: bool = False, left: int = 1) -> str:
    """Format a table as plain text: the first ``left`` columns are left-aligned, the others right-aligned."""
    grid = Table(box=HORIZONTALS, show_edge=False, pad_edge=False, collapse_padding=True)
    for place, name in enumerate(head):
        grid.add_column(name, justify="left" if place < left else "right", no_wrap=True)
    for place, row in enumerate(rows):
        grid.add_row(*row, end_section=rule_before_last and place == len(rows) - 2)
    console = Console(width=10_000, color_system=None, markup=False, highlight=False)  # never narrower than its content
    with console.capture() as captured:
        console.print(grid)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())
