"""What several commands share: parsing by dataclass, devices, threads, presets, output."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro

from ttaps.config import nearest
from ttaps.errors import UsageError

T = TypeVar("T")
ModelName = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
PRESETS = (
    Path(__file__).parents[1] / "configs",
    Path(__file__).parents[3] / "configs",
)  # an installed package, a checkout


def parse(kind: type[T], command: str, arguments: Sequence[str], default: T | None = None) -> T:
    """Parse arguments into a dataclass whose fields are the options and whose docstrings are the help."""
    config = (tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes)
    prog = f"ttaps {command}"
    if default is None:
        return tyro.cli(kind, prog=prog, args=arguments, config=config)
    return tyro.cli(kind, prog=prog, args=arguments, config=config, default=default)


def peek(arguments: Sequence[str], option: str) -> str | None:
    """Return an option's value before the rest is parsed: it decides what the other options are."""
    for place, argument in enumerate(arguments):
        if argument == option and place + 1 < len(arguments):
            return arguments[place + 1]
        if argument.startswith(f"{option}="):
            return argument.partition("=")[2]
    return None


def find_preset(name: str) -> Path:
    """Return the file of a preset: a path, or a name below ``configs/`` such as ``smoke`` or ``paper/jt+ent-cifar10``."""
    known = {
        str(path.relative_to(folder).with_suffix("")): path
        for folder in PRESETS
        for path in sorted(folder.rglob("*.toml"))
    }
    if Path(name).is_file():
        return Path(name)
    if name in known:
        return known[name]
    raise UsageError(f"There is no config '{name}'{nearest(name, known)}.")


def use_threads(threads: int | None) -> None:
    """Let torch use so many threads; None leaves it to torch."""
    import torch

    if threads is not None:
        if threads < 1:
            raise UsageError(f"--threads must be at least 1, not {threads}.")
        torch.set_num_threads(threads)


def pick_device(name: str) -> str:
    """Return the device to use; ``auto`` takes a GPU where there is one."""
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"Device '{name}' cannot be used here: {str(error).splitlines()[0]}") from error
    return name


def print_json(value: Any) -> None:
    """Print for machines."""
    json.dump(value, sys.stdout, indent=1)
    print()


def listed(text: str) -> list[str]:
    """Return the parts of ``a,b,c``."""
    return [part.strip() for part in text.split(",") if part.strip()]


def table(head: Sequence[str], rows: Sequence[Sequence[str]], rule_before_last: bool = False) -> str:
    """Write a table in plain text: the first column to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in (head, *rows)
    ]
    rule = "-" * len(lines[0])
    return "\n".join([lines[0], rule, *lines[1:-1], *([rule] if rule_before_last else []), lines[-1]])
