"""What several commands share: parsing by dataclass, devices, threads, output."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro

from ttaps.errors import UsageError
from ttaps.files import cannot_write

T = TypeVar("T")
NO_PREFIX = tyro.conf.arg(name="")
ModelName = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
Folders = Annotated[
    tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER...", help_behavior_hint="(required)")
]


def parse(kind: type[T], command: str, arguments: Sequence[str], default: T | None = None) -> T:
    """Parse arguments into a dataclass whose fields are the options and whose docstrings are the help.

    ``command`` is what to ask for help of: a command, with the options that its other options depend on.
    """
    given = tyro.MISSING_NONPROP if default is None else default
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(kind, prog=f"ttaps {command.split(maxsplit=1)[0]}", args=arguments, default=given)
    except SystemExit as stop:
        if not stop.code:
            raise  # --help
        raise UsageError(f"{shorten(complaint.getvalue())}\nHelp: ttaps {command} --help") from None


def helped_by(command: str, arguments: Sequence[str], parts: Sequence[str]) -> str:
    """Return the command whose help a wrong line needs: that of the sub-command where one of them was meant."""
    return f"{command} {arguments[0]}" if arguments and arguments[0] in parts else command


def shorten(complaint: str) -> str:
    """Return on one line what tyro says in a box, drawn in Unicode or ASCII: what is wrong, and what may have been meant."""
    sections: list[list[str]] = [[]]
    for line in re.sub(r"\x1b\[[0-9;]*m", "", complaint).splitlines()[1:]:  # the first is the box's title
        inside = line.strip(" │╰╯")
        if inside.strip("─-"):
            sections[-1] += inside.split()
        elif sections[-1]:
            sections.append([])
    wrong = " ".join(sections[0]).removeprefix("Error parsing settings: ")
    similar = [section for section in sections[1:] if section[:1] in (["Perhaps"], ["Arguments"])]
    words = " ".join(similar[0]) if similar else ""
    meant = re.search(r": (--\S+)", words)
    return (f"{wrong}. Did you mean {meant[1]}?" if meant else wrong) or complaint.strip()


def peek(arguments: Sequence[str], option: str) -> str | None:
    """Return an option's value before the rest is parsed: it decides what the other options are."""
    for place, argument in enumerate(arguments):
        if argument == option and place + 1 < len(arguments):
            return arguments[place + 1]
        if argument.startswith(f"{option}="):
            return argument.partition("=")[2]
    return None


def use_threads(threads: int | None) -> None:
    """Let torch use so many threads; None leaves it to torch."""
    import torch

    if threads is not None:
        if threads < 1:
            raise UsageError(f"--threads must be at least 1, not {threads}.")
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
        because = f": {reason}" if len(reason) < 100 else ""  # what torch does not know it answers with all it knows
        raise UsageError(
            f"Device '{name}' cannot be used here{because}.\nChoose cpu, cuda or mps; auto takes cuda where there is one, else cpu."
        ) from error
    return name


def make_room(path: Path) -> None:
    """Make the folder of a file that is to be written after some work, or say before it that this cannot be done."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        if not os.access(path.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise cannot_write(path, error) from error


def print_json(value: Any) -> None:
    """Print for machines; what is not a number is null, which JSON can say."""
    print(json.dumps(_speakable(value), indent=1, allow_nan=False))


def _speakable(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _speakable(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_speakable(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def listed(text: str) -> list[str]:
    """Return the parts of ``a,b,c``."""
    return [part.strip() for part in text.split(",") if part.strip()]


def table(head: Sequence[str], rows: Sequence[Sequence[str]], rule_before_last: bool = False, left: int = 1) -> str:
    """Write a table in plain text: the first column, or the first ``left``, to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [
        "  ".join(
            cell.rjust(width) if place >= left else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in (head, *rows)
    ]
    rule = "-" * len(lines[0])
    return "\n".join([lines[0], rule, *lines[1:-1], *([rule] if rule_before_last else []), lines[-1]])
