"""The command line: find the command, parse its options, run it, and turn foreseeable failures into a message and an exit code."""

import errno
import importlib
import inspect
import io
import os
import shlex
import shutil
import signal
import sys
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import field, fields, is_dataclass, make_dataclass
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, get_type_hints

import tyro

from ttaps import __version__
from ttaps.cli.commands import COMMANDS, NO_PREFIX, SHARED, Adapt, Train
from ttaps.config import did_you_mean, field_docs, new_name, setting_names
from ttaps.errors import TtapsError, UsageError
from ttaps.training.config import TrainConfig, load_preset

RESUMABLE = ("evaluate", "tune", "results", "train", "reproduce", "data")  # finished work is stored

# Failures of the machine that a user can do something about; any other OSError is a bug and shows its traceback.
REMEDIES = {
    "Free some space, or choose another place": (errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
    "Get permission for it, or choose another place": (errno.EACCES, errno.EPERM, errno.EROFS),
    "Check the disk, then run the command again": (errno.EIO,),
    "Choose another place": (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code: 0, 1 for a failure, 2 for a wrong command."""
    try:
        code = run_command(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has closed the pipe, as head does
        return 0
    except KeyboardInterrupt:  # the second, while the first was reported
        return 130
    return code


def run_command(arguments: list[str]) -> int:
    """Print the program's own help or version, or run a command; a failure the user can act on takes one or two lines."""
    command = arguments[0] if arguments else ""
    if command in ("", "-h", "--help", "help"):
        lines = "\n".join(f"  {name:<9}  {known.summary}" for name, known in COMMANDS.items())
        print(f"usage: ttaps COMMAND [options]\n\n{lines}\n\nExample: ttaps adapt cifar10 cat.png --method ttaps:tuned")
        print("ttaps COMMAND --help shows every option with its default.")
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
        options = parse(command, arguments[1:])  # before the import below: the help needs no torch
        module = importlib.import_module(f"ttaps.cli.{COMMANDS[command].file or command}")
        getattr(module, command)(options)
    except SystemExit as stop:
        return int(stop.code or 0)
    except KeyboardInterrupt:
        with suppress(ValueError):  # this is not the main thread
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second ends it at once, wherever it is then
        resumes = " The same command resumes it." if command in RESUMABLE else ""
        print(f"\nttaps {command}: stopped.{resumes}", file=sys.stderr)
        return 130
    except Exception as error:
        message = explain(error)
        if message is None:
            raise
        from ttaps.progress import process_rank  # rich takes time to import, which help need not wait for

        place = f"{command} (process {rank})" if (rank := process_rank()) else command
        print(f"ttaps {place}: {message}", file=sys.stderr)
        return error.exit_code if isinstance(error, TtapsError) else 1
    return 0


def explain(error: Exception) -> str | None:
    """Return the message for a failure that is not a bug; None for one that is."""
    if isinstance(error, TtapsError):
        return str(error)
    says = str(error) if isinstance(error, RuntimeError) else ""  # torch, on a GPU and on a CPU
    if isinstance(error, MemoryError) or "out of memory" in says or "can't allocate memory" in says:
        adapting = "fewer --num-pairs or --num-views, and a smaller --view-pool, to adapt"
        return f"Out of memory.\nUse a smaller --batch-size or network to train; {adapting}; fewer --threads."
    if isinstance(error, OSError):
        remedy = next((words for words, numbers in REMEDIES.items() if error.errno in numbers), None)
        where = error.filename or "while writing"
        return remedy and f"{error.strerror}: {where}.\n{remedy}; files already written are complete."
    return None


def parse(command: str, arguments: Sequence[str]) -> Any:
    """Return the options of a command or sub-command. An old name is refused with the new one; tyro reports other errors, and exits."""
    kind, default = COMMANDS[command].options, tyro.MISSING_NONPROP
    if isinstance(kind, dict):
        name = arguments[0] if arguments else ""
        if new := new_name(name, kind):
            raise UsageError(f"'ttaps {command} {name}' is called 'ttaps {command} {new}' now.")
        if name not in kind:
            tyro.extras.subcommand_cli_from_dict(kind, prog=f"ttaps {command}", args=arguments)  # help, or an error
        kind, command, arguments = kind[name], f"{command} {name}", arguments[1:]
    elif kind is Adapt and (spec := peek(arguments, "--method")) is None and not {"-h", "--help"}.isdisjoint(arguments):
        pass  # its own options; those of a method need torch
    elif kind is Adapt:  # with its method's options, so that --help shows both with their defaults
        from ttaps.adaptation.spec import parse_method

        method = parse_method(Adapt.method if spec is None else spec, presets=_presets(arguments))
        settings = ("settings", Annotated[type(method), NO_PREFIX], field(default=method))
        kind = make_dataclass("Adapt", [settings], bases=(Adapt,), namespace={"__doc__": Adapt.__doc__}, frozen=True)
        command = f"adapt --method {shlex.quote(spec)}" if spec else command
    elif kind is Train:
        default = _train_defaults(arguments)
    known = option_names(kind)
    for argument in arguments:
        old = argument.removeprefix("--").partition("=")[0]
        if argument.startswith("--") and (new := new_name(old.replace("-", "_"), known)):
            raise UsageError(f"--{old} is called --{new.replace('_', '-')} now.")
    text = None if {"-h", "--help"}.isdisjoint(arguments) else prepare_help(kind)
    return tyro.cli(kind, prog=f"ttaps {command}", args=arguments, default=default, description=text)


def prepare_help(kind: Any) -> str:
    """Put the options that a command shares with others last, and return its description for tyro, which would not wrap it."""
    shared = {field.name for base in SHARED for field in fields(base)}
    kind.__dataclass_fields__ = dict(sorted(kind.__dataclass_fields__.items(), key=lambda one: one[0] in shared))
    join_lines(kind)
    width, paragraphs = shutil.get_terminal_size().columns, inspect.cleandoc(kind.__doc__).split("\n\n")
    # Indented lines: others tyro would join again.
    return "\n\n".join(textwrap.fill(text, width, subsequent_indent="  ") for text in paragraphs)


def join_lines(kind: Any) -> None:
    """Let tyro wrap the docstrings of all options as one text each, where it would keep their lines."""
    docs = field_docs(kind)
    for option in fields(kind):
        if option.name in docs:
            option.metadata = MappingProxyType({"help": docs[option.name]})
    for nested in filter(is_dataclass, get_type_hints(kind).values()):
        join_lines(nested)


def option_names(kind: type) -> set[str]:
    """Return the names of all options of a command; nested settings have dots in their names."""
    names = {name.removeprefix("settings.") for name in setting_names(kind)}
    return names | {"limit"} if "images_per_corruption" in names else names


def peek(arguments: Sequence[str], option: str) -> str | None:
    """Return an option's value before the rest is parsed, as tyro reads it: it determines the other options."""
    found = None
    for argument, following in zip_longest(arguments, arguments[1:]):
        name, equals, value = argument.partition("=")
        if name.replace("_", "-") == option:
            found = value if equals else following
    return found


def _presets(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the presets of the model among the arguments, the first that names one."""
    from ttaps.model.config import CONFIG
    from ttaps.model.folder import read_presets
    from ttaps.model.registry import known_models

    known = known_models()
    folders = (known.get(argument, Path(argument)) for argument in arguments if not argument.startswith("-"))
    return next((read_presets(folder) for folder in folders if (folder / CONFIG).is_file()), {})


def _train_defaults(arguments: Sequence[str]) -> Train:
    """Return the settings of a preset, or of the run that is resumed."""
    out, preset = peek(arguments, "--out"), peek(arguments, "--config")
    if "--resume" in arguments and out:
        own = Path(out) / "train.toml"
        if not own.exists():
            raise UsageError(f"There is nothing to resume in {out}: no train.toml. Start it with --config.")
        preset = preset or str(own)
    settings = load_preset(preset) if preset else TrainConfig()
    any_classes = peek(arguments, "--model.num-classes") is None
    return Train(out=Path(out) if out else tyro.MISSING, settings=settings, any_classes=any_classes)
