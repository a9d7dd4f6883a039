"""Disks that are full, failing, too small or read-only, at every call in turn: nothing that was there is lost, exit code 1, the remedy, and
with a sound disk the same command finishes as if nothing had happened."""

from __future__ import annotations

import errno
import random
import re
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, reduce
from pathlib import Path
from typing import Any

from reliability.case import Case, Failed, Place, Skipped
from reliability.faults import CHANGES, Action, Faults, Kind
from reliability.forks import PATIENCE, Child
from reliability.kills import end_together
from reliability.subjects import (
    LEFT,
    ONLY_FAILING,
    SUBJECTS,
    Subject,
    check_whole,
    content,
    contents,
    difference,
    ready,
)

FULL = Kind.OPEN | Kind.WRITE | Kind.SYNC | Kind.RENAME | Kind.MKDIR  # what a full disk refuses
FAULTS: dict[str, tuple[Kind, Action, int]] = {
    "full disk from call n on": (FULL, Action.FAIL_FROM, errno.ENOSPC),
    "input/output error at call n": (CHANGES | Kind.READ, Action.FAIL_ONCE, errno.EIO),
}
PARTS = {"full-disks": "full disk from call n on", "failing-disks": "input/output error at call n"}
TIMES = 8  # that a call is waited for which only some runs make
REMEDY = re.compile(
    "room|download it|permission|right to|choose another|again|move it away|remove|restore", re.IGNORECASE
)


def call_order(called: Sequence[str], rng: random.Random) -> list[int]:
    """Return the numbers of all calls, from 1: first one of every kind of call on every file, then the others, each in random order."""
    numbers = rng.sample(range(1, len(called) + 1), len(called))
    first = {called[number - 1]: number for number in numbers}
    return [*first.values(), *(number for number in numbers if first[called[number - 1]] != number)]


LESS = (
    ("brightness,contrast,pixelate", "brightness,contrast"),
    ("contrast,fog", "contrast"),
    ("--projections 4", "--projections 2"),
)
"""So that every call of a command can fail in turn, a command has few."""


class Failing:
    """A command on a bad disk. It begins in a copy of a folder where it has not run yet, or where it was killed."""

    def __init__(self, place: Place, subject: Subject, faults: Faults) -> None:
        self.place, self.subject, self.faults = place, subject, faults
        self.fresh, self.killed = (place.inputs / f"{subject.name}, {how}" for how in ("fresh", "killed"))
        self.fresh.mkdir()
        subject.prepare(place, self.fresh)
        found, self.calls, self.kinds, self.left, self.seconds = [], {}, {}, {}, dict.fromkeys(FAULTS, 0.0)
        for fault, (kinds, _, _) in FAULTS.items():
            with self._begin() as folder, faults.armed(folder, kinds):
                subject.run(place, folder, 0)
                self.calls[fault], called = faults.count, faults.called()
                found.append(contents(folder))
            self.left[fault], self.kinds[fault] = deque(call_order(called, place.rng)), len(set(called))
        if wrong := difference(*found):
            raise Failed(f"two undisturbed runs of {subject.name} differ: {wrong}")
        self.finished = found[0]
        with self._begin() as folder:
            at = place.rng.randint(1, self.calls["full disk from call n on"])
            with faults.armed(folder, CHANGES, Action.KILL, at):
                self._wait(subject.start(place, folder, 0))
            shutil.copytree(folder, self.killed)
        self.before = {False: known(self.fresh, place), True: known(self.killed, place)}

    def case(self, fault: str) -> Case:
        """Return the trial of the next call that has not had its turn; those like one that had it are counted by themselves."""
        kinds, others = self.kinds[fault], self.calls[fault] - self.kinds[fault]
        what, of = (f"{fault}, a call like one before", others) if self.repeats(fault) else (fault, kinds)
        return Case(f"{what}: {self.subject.name}", partial(self.next_call, fault), of=of)

    def repeats(self, fault: str) -> bool:
        """Whether one of every kind of call on every file has had its turn."""
        return len(self.left[fault]) <= self.calls[fault] - self.kinds[fault]

    def next_call(self, fault: str) -> int:
        """Let the next call that has not had its turn fail; two processes may make fewer calls than usual, then it is tried again."""
        began, number = time.monotonic(), self.left[fault].popleft()
        try:
            return next((1 for _ in range(TIMES) if self.at_call(fault, number)), 0)
        finally:
            self.seconds[fault] += time.monotonic() - began

    def after_a_kill(self, fault: str) -> int:
        """Let any call of the command that goes on where it was killed fail."""
        return self.at_call(fault, self.place.rng.randint(1, self.calls[fault]), killed=True)

    def at_call(self, fault: str, number: int, killed: bool = False) -> int:
        """Let one call fail, and return whether there was one of that number."""
        kinds, action, error = FAULTS[fault]
        with self._begin(killed) as folder:
            with self.faults.armed(folder, kinds, action, number, error):
                children = self.subject.start(self.place, folder, 0)
                self._wait(children)
            self._judge(folder, children, self.before[killed])
            self._finish(folder)
        return int(bool(self.faults.hit))

    def small(self) -> int:
        """The disk is a memory file system with too little room, by any amount; then it grows."""
        self.faults.hit = b""
        with self.place.folder() as base, memory_disk(base, "64m") as disk:
            shutil.copytree(self.fresh, disk, dirs_exist_ok=True)
            needed = sum(len(str(value)) for value in self.finished.values()) // 1024  # an upper bound, in kB
            remount(disk, f"size={size(disk) + self.place.rng.randint(4, max(8, min(needed, 4000)))}k")
            self._judge(disk, self._wait(self.subject.start(self.place, disk, 0)), self.before[False])
            remount(disk, "size=64m")
            self._finish(disk)
        return 1

    def read_only(self) -> int:
        """The folder may only be read; then it may be written again."""
        self.faults.hit = b""
        with self.place.folder() as base, memory_disk(base, "64m") as disk:
            shutil.copytree(self.fresh, disk, dirs_exist_ok=True)
            remount(disk, "ro")
            try:
                self._judge(disk, self._wait(self.subject.start(self.place, disk, 0)), self.before[False])
            finally:
                remount(disk, "rw")
            self._finish(disk)
        return 1

    @contextmanager
    def _begin(self, killed: bool = False) -> Iterator[Path]:
        with self.place.folder() as folder:
            shutil.copytree(self.killed if killed else self.fresh, folder, dirs_exist_ok=True)
            yield folder

    def _wait(self, children: list[Child]) -> list[Child]:
        end_together(children)
        for child in children:
            child.wait(PATIENCE / 2)
        return children

    def _judge(self, folder: Path, children: list[Child], before: dict[str, Any]) -> None:
        """Refuse tracebacks, other exit codes than 0 and 1, messages without a remedy, and losses."""
        codes, said = [child.code for child in children], "\n".join(child.said for child in children)
        about = f"{self.faults.hit.decode()}: exit codes {codes}:\n{said[-2500:]}"
        if "Traceback" in said or not set(codes) <= {0, 1, -15}:
            raise Failed(about)
        failed = [child.said for child in children if child.code == 1]
        told = [line for text in failed for line in re.findall(r"^ttaps .*(?:\n.*)?", text, re.M)]
        if failed and not any(REMEDY.search(line) for line in told):
            raise Failed(f"no remedy: {about}")
        with copied(folder, self.place) as copy:
            check_whole(copy, self.finished)
            after = shown(copy)
            if not any(codes) and (wrong := difference(contents(copy), self.finished)):
                raise Failed(f"exit code 0, but it did not do all: {wrong}; {about}")
            lost = sorted(name for name, value in before.items() if not still_there(value, after.get(name)))
        if lost:
            raise Failed(f"lost: {', '.join(lost)}; {about}")

    def _finish(self, folder: Path) -> None:
        hit = self.faults.hit.decode()
        try:
            self.subject.finish(self.place, folder)
        except Failed as failure:
            raise Failed(f"after {hit}: {failure}") from failure
        if wrong := difference(contents(folder), self.finished):
            raise Failed(f"afterwards not as undisturbed: {wrong} (failed at: {hit})")


@contextmanager
def copied(folder: Path, place: Place) -> Iterator[Path]:
    """Yield a copy, for sqlite tidies a file that is opened."""
    with place.folder() as copy:
        shutil.copytree(folder, copy, dirs_exist_ok=True)
        yield copy


def known(folder: Path, place: Place) -> dict[str, Any]:
    """Return what is in the files of a folder, which is left alone."""
    with copied(folder, place) as copy:
        return shown(copy)


def shown(folder: Path) -> dict[str, Any]:
    """Return what is in the files of a folder that are not hidden."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith((*LEFT, ".jsonl"))]
    named = {str(path.relative_to(folder)): path for path in files}
    seen = {name: path for name, path in named.items() if not any(part.startswith(".") for part in Path(name).parts)}
    return {name: content(path) for name, path in seen.items()}


def still_there(before: Any, after: Any) -> bool:
    """Whether what was in a file is still there, or something newer."""
    return before <= after if isinstance(before, set) and isinstance(after, set) else after is not None


def size(folder: Path) -> int:
    """Return what a folder takes, in kB."""
    return int(subprocess.run(["du", "-sk", folder], capture_output=True, text=True, check=True).stdout.split()[0])


@contextmanager
def memory_disk(base: Path, size: str) -> Iterator[Path]:
    """Mount a memory file system of a size."""
    disk = base / "disk"
    disk.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk], capture_output=True, check=False
    )
    if done.returncode:
        raise Skipped("no file system can be mounted here")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def remount(disk: Path, options: str) -> None:
    """Change a mounted memory file system."""
    subprocess.run(["mount", "-o", f"remount,{options}", disk], check=True, capture_output=True)


def single_commands() -> Iterator[Subject]:
    """Yield every command by itself, with little to do; shards are evaluations and a merge, which are among them."""
    for subject in (*SUBJECTS, *ONLY_FAILING):
        for number, command in enumerate(subject.commands if "shards" not in subject.name else (), start=1):
            name = f"{subject.name} ({number})" if len(subject.commands) > 1 else subject.name
            less = reduce(lambda line, pair: line.replace(*pair), LESS, command)
            yield replace(subject, name=name, commands=(less,))


def cases(place: Place, faults: Faults) -> Iterator[Case]:
    """Yield every command on one kind of bad disk, then all calls, until every one has failed once."""
    fault = PARTS[place.part]
    with ready(place, brief=True):
        chosen = [SUBJECTS[number] for number in (2, 5, 8)] if place.short else single_commands()
        failing = [Failing(place, subject, faults) for subject in chosen]
        for one in failing:
            if place.part == "full-disks":
                yield Case(f"small disk: {one.subject.name}", one.small)
            else:
                yield Case(f"read-only: {one.subject.name}", one.read_only)
            yield one.case(fault)
            yield Case(f"{fault}, after a kill: {one.subject.name}", partial(one.after_a_kill, fault))
        while not place.short and (left := [one for one in failing if one.left[fault]]):
            # each gets as much time as the others
            one = min(left, key=lambda one: (one.repeats(fault), one.seconds[fault]))
            yield one.case(fault)
