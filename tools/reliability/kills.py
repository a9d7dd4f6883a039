"""Commands that are killed, stopped and interrupted at any moment, and machines that lose their power: the same command then finishes, and
everything is as if nothing had happened."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

from reliability.case import Case, Failed, Place, Skipped
from reliability.faults import CHANGES, Action, Faults
from reliability.forks import PATIENCE, Child
from reliability.subjects import ONLY_KILLED, SUBJECTS, Subject, check_whole, contents, difference, ready
from ttaps import distributed
from ttaps.data import download
from ttaps.evaluation import store

DISK = 24  # megabytes of the file system whose power is cut
ENDED = {0, 1, 130, -signal.SIGINT, -signal.SIGTERM, -signal.SIGKILL}  # for a shell -SIGINT is 130, too


@dataclass(frozen=True)
class Undisturbed:
    """What an undisturbed run of a subject leaves, and for each of its commands the time and the number of changes to files it took."""

    finished: dict[str, Any]
    seconds: tuple[float, ...]
    calls: tuple[int, ...]


def undisturbed(place: Place, subject: Subject, faults: Faults) -> Undisturbed:
    """Run a subject twice; it must leave the same both times."""
    found: list[dict[str, Any]] = []
    measured: list[tuple[float, int]] = []
    for _ in range(2):
        with place.folder() as folder:
            subject.prepare(place, folder)
            measured = []
            for stage in range(len(subject.commands)):
                began = time.monotonic()
                with faults.armed(folder, CHANGES):
                    subject.run(place, folder, stage)
                    measured.append((time.monotonic() - began, faults.count))
            found.append(contents(folder))
    if wrong := difference(*found):
        raise Failed(f"two undisturbed runs differ: {wrong}")
    seconds, calls = zip(*measured, strict=True)
    return Undisturbed(found[0], seconds, calls)


class Disturber:
    """Disturbs one subject in every way."""

    def __init__(self, place: Place, subject: Subject, faults: Faults, usual: Undisturbed) -> None:
        self.place, self.subject, self.faults, self.usual = place, subject, faults, usual
        self.rng, self.name = place.rng, subject.name

    def killed(self) -> int:
        """Kill it one to three times, between any two changes to files or at any time, then let it finish."""
        with self.place.folder() as folder:
            self.subject.prepare(self.place, folder)
            stage, kills = self._reach(folder), 0
            for _ in range(self.rng.randint(1, 3)):
                kills += self.rng.choice((self.kill_at_call, self.kill_at_time))(folder, stage)
                self.look(folder)
            self._finish(folder)
        return kills

    def signaled(self, name: str) -> int:
        """Send it another signal at any time, then let it finish."""
        with self.place.folder() as folder:
            self.subject.prepare(self.place, folder)
            stage = self._reach(folder)
            with impatient() if name == "SIGSTOP" else at_once():
                children = self.subject.start(self.place, folder, stage)
                time.sleep(self.rng.uniform(0, self.usual.seconds[stage]))
                disturb(
                    name, children, self.rng.uniform(0, 0.05), signal.SIGCONT if self.subject.job else signal.SIGKILL
                )
            self._end(folder, children, kills=0)
            self.look(folder)
            self._finish(folder)
        return 1

    def without_power(self) -> int:
        """Cut the power between any two changes to files: what was not synced is gone. Then let it finish."""
        with self.place.folder() as base, Disk(base) as disk:
            self.subject.prepare(self.place, disk.work)
            stage = self._reach(disk.work)
            subprocess.run(["sync", "-f", disk.work], check=True)
            killed = self.kill_at_call(disk.work, stage)
            disk.cut()
            self.look(disk.work)
            self._finish(disk.work)
        return killed

    def kill_at_call(self, folder: Path, stage: int) -> int:
        """Kill it right before a change to a file, or half-way through a write."""
        action = self.rng.choice((Action.KILL, Action.KILL_HALF))
        with self.faults.armed(folder, CHANGES, action, self.rng.randint(1, self.usual.calls[stage])):
            return self._end(folder, self.subject.start(self.place, folder, stage), kills=1)

    def kill_at_time(self, folder: Path, stage: int) -> int:
        """Kill one of its processes, or all of them, after any time."""
        children = self.subject.start(self.place, folder, stage)
        time.sleep(self.rng.uniform(0, self.usual.seconds[stage]))
        for child in self.rng.sample(children, self.rng.randint(1, len(children))):
            child.signal(signal.SIGKILL)
        return self._end(folder, children, kills=1)

    def _reach(self, folder: Path) -> int:
        """Run the commands before the one to be disturbed, and return its number."""
        stage = self.rng.randrange(len(self.subject.commands))
        for before in range(stage):
            self.subject.run(self.place, folder, before)
        return stage

    def _end(self, folder: Path, children: list[Child], kills: int) -> int:
        if self.subject.job:
            end_together(children)
        codes = [child.wait(PATIENCE / 2) for child in children]
        said = "\n".join(child.said for child in children)
        if not set(codes) <= ENDED or "Traceback" in said:
            raise Failed(f"exit codes {codes}:\n{said[-3000:]}")
        if not self.subject.job and 0 in codes and (wrong := difference(contents(folder), self.usual.finished)):
            raise Failed(f"one of two was left in peace, but did not do all: {wrong}")
        return kills if -signal.SIGKILL in codes else 0

    def look(self, folder: Path) -> None:
        """Look at a copy, for sqlite tidies a file that is opened."""
        with self.place.folder() as copy:
            shutil.copytree(folder, copy, dirs_exist_ok=True)
            check_whole(copy, self.usual.finished)

    def _finish(self, folder: Path) -> None:
        self.subject.finish(self.place, folder)
        if wrong := difference(contents(folder), self.usual.finished):
            hit = self.faults.hit.decode()
            raise Failed(f"afterwards not as undisturbed: {wrong}" + (f" (killed at: {hit})" if hit else ""))


def end_together(children: list[Child]) -> None:
    """Wait until all have ended; when one has failed, terminate the others soon, as torchrun does."""
    since: float | None = None
    while len(children) > 1 and any(child.poll() is None for child in children):
        if since is None and any(child.poll() for child in children):
            since = time.monotonic()
        if since and time.monotonic() - since > 0.3:
            for child in children:
                child.signal(signal.SIGTERM)
            return
        time.sleep(0.01)


def disturb(name: str, children: list[Child], pause: float, after_stop: int) -> None:
    """Send the signals of a name; one of two that were started by themselves is killed after its stop, and the other waits for it."""
    for child in children:
        if name == "Ctrl-C twice":
            child.signal(signal.SIGINT)
        elif name == "SIGTERM":
            child.signal(signal.SIGTERM)
    time.sleep(pause)
    if name == "Ctrl-C twice":
        for child in children:
            child.signal(signal.SIGINT)
    if name == "SIGSTOP":
        children[-1].signal(signal.SIGSTOP)
        time.sleep(4)
        children[-1].signal(after_stop)


@contextmanager
def at_once() -> Iterator[None]:
    """Change nothing."""
    yield


@contextmanager
def impatient() -> Iterator[None]:
    """Shorten every timeout, so that four seconds are longer than all of them."""
    init: Any = distributed.init_distributed.__wrapped__  # type: ignore[attr-defined]
    before = store.LOCK_TIMEOUT, download.TIMEOUT, init.__defaults__
    store.LOCK_TIMEOUT, download.TIMEOUT, init.__defaults__ = 0.5, 1.0, ("cpu", timedelta(seconds=2))
    try:
        yield
    finally:
        store.LOCK_TIMEOUT, download.TIMEOUT, init.__defaults__ = before


class Disk:
    """An ext4 file system in a file. Whatever the kernel has not written into the file when the power is cut is lost."""

    def __init__(self, base: Path) -> None:
        self.image, self.mounted = base / "disk.img", base / "disk"
        self.work = self.mounted / "work"

    def __enter__(self) -> Disk:
        with self.image.open("wb") as file:
            file.truncate(DISK << 20)
        self.mounted.mkdir()
        try:
            subprocess.run(["mkfs.ext4", "-q", self.image], check=True, capture_output=True)
            self._mount()
        except (OSError, subprocess.CalledProcessError) as error:
            raise Skipped(f"no file system can be mounted here ({error})") from error
        self.work.mkdir()
        return self

    def __exit__(self, *error: object) -> None:
        subprocess.run(["umount", "-l", self.mounted], check=True)

    def cut(self) -> None:
        """Go on with what is in the file now, as after a power cut."""
        after = self.image.with_suffix(".after")
        shutil.copy(self.image, after)
        self.__exit__()
        self.image = after
        self._mount()

    def _mount(self) -> None:
        subprocess.run(["mount", "-o", "loop", self.image, self.mounted], check=True, capture_output=True)


TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


class RealCommand:
    """The command line of a subject in a new Python, or under torchrun if it has two processes."""

    def __init__(self, disturber: Disturber) -> None:
        self.disturber, self.place, self.subject = disturber, disturber.place, disturber.subject
        self.torchrun = self.subject.processes > 1
        self.name = f"{self.subject.name.partition(',')[0]}, {'torchrun' if self.torchrun else 'command line'}"

    def killed(self) -> int:
        """Kill it, or a worker of torchrun, or torchrun with all its workers, when it has begun to write; then run it again."""
        words = self.subject.commands[0].format(inputs=self.place.inputs).split()
        argv = [sys.executable, *(TORCHRUN if self.torchrun else ()), "-m", "ttaps", *words]
        with self.place.folder() as folder:
            log = self.place.log()
            process = self._start(argv, folder, log)
            wait_for_files(folder, process)
            time.sleep(self.place.rng.uniform(0, self.disturber.usual.seconds[0]))
            if self.torchrun and (workers := children_of(process.pid)) and self.place.rng.random() < 0.5:
                with suppress(ProcessLookupError):
                    os.kill(self.place.rng.choice(workers), signal.SIGKILL)
            else:
                kill_group(process)
            code = self._end(process, log)
            self.disturber.look(folder)
            if again := self._end(self._start(argv, folder, log), log):
                raise Failed(f"after a kill (exit code {code}) it ended with {again}:\n{log.read_text()[-3000:]}")
            if wrong := difference(contents(folder), self.disturber.usual.finished):
                raise Failed(f"afterwards not as undisturbed: {wrong}")
        return int(code != 0)

    def _start(self, argv: list[str], folder: Path, log: Path) -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return subprocess.Popen(argv, cwd=folder, stdout=output, stderr=output, start_new_session=True)

    def _end(self, process: subprocess.Popen[bytes], log: Path) -> int:
        try:
            return process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise Failed(f"{self.name} did not end within {PATIENCE:.0f} s:\n{log.read_text()[-3000:]}") from None
        finally:
            kill_group(process)


def wait_for_files(folder: Path, process: subprocess.Popen[bytes]) -> None:
    """Wait until a command has made its first file, or has ended."""
    end = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < end and not any(folder.iterdir()):
        time.sleep(0.01)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a command and all that it has started, as schedulers do."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def children_of(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(number) for number in listed.stdout.split()]


def cases(place: Place, faults: Faults) -> Iterator[Case]:
    """Yield kills of every subject in turn, with other signals, power cuts and real command lines among them."""
    sys.modules["matplotlib"] = None  # type: ignore[assignment]  # figures take most of the time of a small reproduction
    with ready(place):
        yield from _cases(place, faults)


def _cases(place: Place, faults: Faults) -> Iterator[Case]:
    # the short form has train, evaluate in 2 processes, export, download, fork
    chosen = (*SUBJECTS, *ONLY_KILLED)[:: 3 if place.short else 1]
    disturbers = [Disturber(place, subject, faults, undisturbed(place, subject, faults)) for subject in chosen]
    if place.short:
        for disturber in disturbers:
            yield Case(f"kill -9: {disturber.name}", disturber.killed)
            yield Case(f"power cut: {disturber.name}", disturber.without_power)
        yield Case("SIGTERM: evaluate, 2 processes", partial(disturbers[1].signaled, "SIGTERM"))
        return
    reals = [RealCommand(disturber) for disturber in disturbers[:4]]
    for name in cycle(("SIGTERM", "Ctrl-C twice", "SIGSTOP")):
        yield from (Case(f"kill -9: {one.name}", one.killed) for one in disturbers)
        yield from (Case(f"kill -9: {one.name}", one.killed) for one in reals)
        for disturber in disturbers:
            yield Case(f"power cut: {disturber.name}", disturber.without_power)
            yield Case(f"{name}: {disturber.name}", partial(disturber.signaled, name))
            yield Case(f"kill -9: {disturber.name}", disturber.killed)
