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
    "demo": "accuracy before and after adaptation with the embedded model and images, and a figure of it",
    "adapt": "adapt a model to each of your images on its own, and predict",
    "evaluate": "accuracy before and after adaptation on a data set, stored row by row",
    "report": "tables and figures from stored results, as text, images or one HTML page",
    "results": "merge stored results, or export them",
    "train": "train a model that can adapt (baseline, jt, jt+ent, ttt, mt3)",
    "reproduce": "a whole table from scratch: train, evaluate and report what is missing",
    "data": "download, build and verify data sets",
    "bench": "speed of adaptation, views and training on this machine, as ratios",
    "info": "what a model is and which methods it supports",
    "methods": "the methods: what each needs, adapts and costs",
}

RESUMABLE = ("evaluate", "results", "train", "reproduce", "data")  # what they have done is stored

# Failures of the machine that a user can do something about; any other OSError is a bug and shows its traceback.
REMEDIES = {
    "Make room, or choose another place": (errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
    "Get permission for it, or choose another place": (errno.EACCES, errno.EPERM, errno.EROFS),
    "Choose another place": (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG),
}
NO_MEMORY = ("out of memory", "can't allocate memory")  # what torch says on a GPU, and on a CPU
LESS_MEMORY = (
    "Use a smaller --batch-size or network to train; fewer --num-pairs or --num-views, and a smaller --view-pool, to adapt; "
    "fewer --threads."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code: 0, 1 for a failure, 2 for a wrong command."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        code = run_command(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has closed the pipe, as head does
        return 0
    return code


def run_command(arguments: Sequence[str]) -> int:
    """Print the program's own help or version, or run a command; a failure the user can act on takes one or two lines."""
    command = arguments[0] if arguments else ""
    if command in ("", "-h", "--help", "help"):
        print(usage())
        return 0 if arguments else 2
    if command in ("-V", "--version"):
        print(f"ttaps {__version__}")
        return 0
    if command not in COMMANDS:
        print(f"ttaps: unknown command '{command}'{did_you_mean(command, COMMANDS)}.", file=sys.stderr)
        return 2
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file's name need not be valid text
    try:
        importlib.import_module(f"ttaps.cli.{command}").run(list(arguments[1:]))
    except SystemExit as stop:
        return int(stop.code or 0)
    except KeyboardInterrupt:
        resumes = " The same command resumes it." if command in RESUMABLE else ""
        print(f"\nttaps {command}: stopped.{resumes}", file=sys.stderr)
        return 130
    except Exception as error:
        message = explain(error)
        if message is None:
            raise
        rank = os.environ.get("RANK", "0")
        place = command if rank == "0" else f"{command} (process {rank})"
        print(f"ttaps {place}: {message}", file=sys.stderr)
        return error.exit_code if isinstance(error, TtapsError) else 1
    return 0


def usage() -> str:
    """Return the help of the program itself; it needs no torch, which takes seconds to import."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items()]
    example = "Example: ttaps adapt cifar10 cat.png --method ttaps:tuned"
    more = "ttaps COMMAND --help shows every option with its default."
    return "\n".join(["usage: ttaps COMMAND [options]", "", *lines, "", example, more])


def explain(error: Exception) -> str | None:
    """Return what to tell the user about a failure that is not a bug; None for one that is."""
    if isinstance(error, TtapsError):
        return str(error)
    if isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in NO_MEMORY)
    ):
        return f"Out of memory.\n{LESS_MEMORY}"
    if isinstance(error, OSError):
        remedy = next((words for words, numbers in REMEDIES.items() if error.errno in numbers), None)
        where = error.filename or "while writing"
        return remedy and f"{error.strerror}: {where}.\n{remedy}; files already written are complete."
    return None
