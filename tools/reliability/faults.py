"""The fault injector: compiled by gcc when it is needed, preloaded into this program, and shared with every process it forks."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum, IntFlag
from pathlib import Path


class Kind(IntFlag):
    """System calls on files."""

    OPEN, WRITE, SYNC, RENAME, UNLINK, MKDIR, TRUNCATE, READ = (1 << bit for bit in range(8))


CHANGES = Kind(127)  # all that change something


class Action(IntEnum):
    """What to do to a call."""

    COUNT, FAIL_ONCE, FAIL_FROM, KILL, KILL_HALF = range(5)


class Faults(ctypes.Structure):
    """The page that all processes share; the same fields as in faults.c."""

    _fields_ = [
        ("folder", ctypes.c_char * 1024),
        ("kinds", ctypes.c_int),
        ("action", ctypes.c_int),
        ("error", ctypes.c_int),
        ("at", ctypes.c_long),
        ("count", ctypes.c_long),
        ("sockets", ctypes.c_long),
        ("hit", ctypes.c_char * 1024),
        ("sites", ctypes.c_char * 120 * 8192),
    ]

    def called(self) -> list[str]:
        """Return the calls that were counted last, in order: what was called, on which file, without numbers."""
        sites = [bytes(site.value).decode("utf-8", "replace") for site in self.sites[: self.count]]
        return [re.sub(r"[0-9]+", "#", site) for site in sites]

    @contextmanager
    def armed(
        self, folder: Path, kinds: Kind, action: Action = Action.COUNT, at: int = 0, error: int = 0
    ) -> Iterator[None]:
        """Count calls below a folder, and let number ``at`` (from 1) fail or kill, until the end of the block."""
        self.count, self.hit = 0, b""
        self.at, self.error, self.action = at, error, action
        self.folder, self.kinds = os.fsencode(folder.resolve()), int(kinds)
        try:
            yield
        finally:
            self.kinds = 0


def preload(scratch: Path) -> str:
    """Start this program again with the injector in it; return why that cannot be done, or nothing if it is in already."""
    if "TORTURE_FAULTS" in os.environ:
        return ""
    if not shutil.which("gcc"):
        return "gcc is not installed"
    library = scratch / f"torture-faults-{os.getpid()}.so"  # the same process after execve
    source = Path(__file__).with_name("faults.c")
    command = ["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"gcc could not compile {source.name}: {done.stderr.splitlines()[0]}"
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")  # a parent that forks has one thread
    changed = {"LD_PRELOAD": str(library), "TORTURE_FAULTS": str(library), **single}
    return os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **changed})  # it does not return


def shared() -> Faults:
    """Return the page of the injector in this process."""
    library = ctypes.CDLL(os.environ["TORTURE_FAULTS"])
    library.faults_shared.restype = ctypes.POINTER(Faults)
    return library.faults_shared().contents
