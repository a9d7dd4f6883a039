"""Errors of the user or the machine: one or two lines with the remedy, never a traceback."""

LONGEST = 1_500  # characters of a message: it may quote a damaged file


class TtapsError(Exception):
    """A failure the user can act on; the command line prints it and exits with 1."""

    exit_code = 1

    def __str__(self) -> str:
        text = super().__str__()
        return text if len(text) < LONGEST else f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"


class UsageError(TtapsError, ValueError):
    """A wrong command, option, setting or argument; the command line prints it and exits with 2."""

    exit_code = 2


class DataError(TtapsError):
    """A data set or image that is missing, damaged or not what it claims to be."""


class CheckpointError(TtapsError):
    """A model folder that is missing, damaged, or written by another version."""


class Locked(TtapsError):
    """Another process holds the lock of what is to be done."""


class MissingExtra(TtapsError):
    """An optional dependency is needed and not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs the optional part '{extra}'.\nInstall it with: pip install 'ttaps[{extra}]'")
