"""Commands in processes forked from this one, which has imported everything: a command then takes a tenth of a second, not four."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from reliability.case import Failed

PATIENCE = 300.0  # seconds for a command that takes about one, on a machine that is busy with other things
TRACEBACK = 99  # exit code of a command that raised


@dataclass
class Child:
    """A forked command; its output is in a file."""

    pid: int
    log: Path
    words: str
    code: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, minus the signal for a killed one, or None while it runs."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code

    def wait(self, patience: float = PATIENCE) -> int:
        """Return its exit code; one that does not end in time shows where it was, and has failed."""
        end = time.monotonic() + patience
        while self.poll() is None:
            if time.monotonic() > end:
                self.signal(signal.SIGCONT)
                self.signal(signal.SIGABRT)  # faulthandler writes where it was
                time.sleep(0.5)
                self.signal(signal.SIGKILL)
                while self.poll() is None:
                    time.sleep(0.01)
                raise Failed(f"{self.words} did not end within {patience:.0f} s:\n{self.said}")
            time.sleep(0.002)
        assert self.code is not None
        return self.code

    def signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    @property
    def said(self) -> str:
        """What it printed."""
        if not self.log.exists():  # it was killed before it could open it
            return ""
        return self.log.read_text("utf-8", "replace").partition("\nExtension modules:")[0]


def end_with_parent() -> None:
    """Let the system kill this process when the one that forked it ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def start(work: Callable[[], int], log: Path, words: str, env: Mapping[str, str] | None = None) -> Child:
    """Fork a process that does ``work`` and exits with what it returns."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return Child(pid, log, words)
    code = TRACEBACK
    end_with_parent()
    try:
        os.environ.update(env or {})
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1) for number in (1, 2))
        signal.signal(signal.SIGINT, signal.default_int_handler)
        faulthandler.enable(sys.stderr)
        code = work()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def command(argv: Sequence[str], folder: Path, log: Path, env: Mapping[str, str] | None = None) -> Child:
    """Fork ``ttaps argv...`` with ``folder`` as its current one."""
    from ttaps.cli import main

    def work() -> int:
        os.chdir(folder)
        return main(argv)

    return start(work, log, f"ttaps {' '.join(argv)}", env)


def meeting(count: int) -> list[dict[str, str]]:
    """Return what the processes of a job find in their environment, as torchrun sets it."""
    if count == 1:
        return [{}]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": str(count)}
    return [{**place, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]
