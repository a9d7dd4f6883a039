"""The command line: find the command, run it, and turn every foreseeable failure into one or two lines and an exit code."""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys
from collections.abc import Sequence

from ttaps import __version__
from ttaps.config import did_you_mean
from ttaps.errors import TtapsError

COMMANDS = {
    "demo": "embedded model, embedded pictures: accuracy before and after, and a picture of it",
    "adapt": "adapt a model to each of your pictures by itself, and predict",
    "evaluate": "accuracy before and after adaptation on a data set, stored row by row",
    "report": "the paper's tables and figures from stored results, as text, pictures or one web page",
    "results": "merge stored results, or export them as CSV",
    "train": "train a model that can adapt (baseline, jt, jt+ent, ttt, mt3)",
    "reproduce": "a whole table from nothing: train, evaluate and report what is missing",
    "data": "get, build and check data sets",
    "bench": "how fast adaptation, views and training are here, as ratios",
    "info": "what a model is, and what it can do",
    "methods": "the methods: what each needs, adapts and costs",
}

RESUMES = ("evaluate", "results", "train", "reproduce", "data")  # what they have done is stored

# What the machine refuses and the user can do something about; any other OSError is a fault of ours and shows its traceback.
REMEDIES = {
    "Make room, or choose another place": (errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
    "Get the right to use it, or choose another place": (errno.EACCES, errno.EPERM, errno.EROFS),
    "Choose another place": (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG),
}
NO_MEMORY = ("out of memory", "can't allocate memory")  # what torch says on a GPU, and on a CPU
LESS_MEMORY = (
    "Use a smaller --batch or network to train; fewer --copies, and a smaller --view-pool, to adapt; fewer --threads."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code: 0, 1 for a failure, 2 for a wrong command."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        code = chosen(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whoever read us has had enough
        return 0
    return code


def chosen(arguments: Sequence[str]) -> int:
    """Print what is asked of the program itself, or run one of its commands."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if arguments else 2
    if arguments[0] in ("-V", "--version"):
        print(f"ttaps {__version__}")
        return 0
    return guarded(arguments[0], arguments[1:])


def usage() -> str:
    """Return the help of the program itself; it needs no torch."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items()]
    return "\n".join(
        ["usage: ttaps COMMAND [options]", "", *lines, "", "ttaps COMMAND --help shows every option with its default."]
    )


def guarded(command: str, arguments: Sequence[str]) -> int:
    """Run one command; what the user can act on is told in a line or two."""
    if command not in COMMANDS:
        print(f"ttaps: unknown command '{command}'{did_you_mean(command, COMMANDS)}.", file=sys.stderr)
        return 2
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file's name need not be text
    try:
        importlib.import_module(f"ttaps.cli.{command}").run(list(arguments))
    except TtapsError as error:
        rank = os.environ.get("RANK", "0")
        place = command if rank == "0" else f"{command} (process {rank})"
        print(f"ttaps {place}: {error}", file=sys.stderr)
        return error.exit_code
    except SystemExit as stop:
        return int(stop.code or 0)
    except KeyboardInterrupt:
        goes_on = " The same command goes on where it was." if command in RESUMES else ""
        print(f"\nttaps {command}: stopped.{goes_on}", file=sys.stderr)
        return 130
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not any(words in str(error) for words in NO_MEMORY):
            raise
        print(f"ttaps {command}: Out of memory.\n{LESS_MEMORY}", file=sys.stderr)
        return 1
    except OSError as error:
        remedy = next((words for words, numbers in REMEDIES.items() if error.errno in numbers), None)
        if remedy is None:
            raise
        where = error.filename or "while writing"
        print(
            f"ttaps {command}: {error.strerror}: {where}.\n{remedy}; what is already written is whole.", file=sys.stderr
        )
        return 1
    return 0
