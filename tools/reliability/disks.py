"""Disks that are full, failing, too small or read-only at every call in turn: nothing that was there is lost, exit code 1, the remedy, and
with a sound disk the same command finishes as if nothing had happened."""

from __future__ import annotations

import errno
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

from reliability.case import Case, Failed, Place, Skipped
from reliability.faults import CHANGES, Action, Faults, Kind
from reliability.forks import PATIENCE, Child
from reliability.kills import Undisturbed, end_together, undisturbed
from reliability.subjects import LEFT, SUBJECTS, Subject, check_whole, content, contents, difference, ready

FULL = Kind.OPEN | Kind.WRITE | Kind.SYNC | Kind.RENAME | Kind.MKDIR  # what a full disk refuses
REMEDY = re.compile("room|permission|right to|choose another|again|move it away|remove|restore", re.IGNORECASE)


class Failing:
    """A subject on a bad disk."""

    def __init__(self, place: Place, subject: Subject, faults: Faults, usual: Undisturbed) -> None:
        self.place, self.subject, self.faults, self.usual = place, subject, faults, usual
        self.stage = len(subject.commands) - 1
        calls = list(range(1, usual.calls[self.stage] + 1))
        place.rng.shuffle(calls)
        self.calls = cycle(calls)  # every call in turn, in a random order

    def full(self) -> int:
        """From some call on the disk is full."""
        return self._at_call(FULL, Action.FAIL_FROM, errno.ENOSPC)

    def broken(self) -> int:
        """Some call fails once with an input/output error."""
        return self._at_call(CHANGES | Kind.READ, Action.FAIL_ONCE, errno.EIO)

    def small(self) -> int:
        """The disk is a memory file system with too little room, by any amount; then it grows."""
        with self.place.folder() as base, memory_disk(base, "64m") as disk:
            self._begin(disk)
            used = self._size(disk)
            needed = sum(len(str(value)) for value in self.usual.finished.values()) // 1024  # an upper bound, in kB
            limit = used + self.place.rng.randint(4, max(8, min(needed, 4000)))
            remount(disk, f"size={limit}k")
            before = self._known(disk)
            children = self.subject.start(self.place, disk, self.stage)
            self._judge(disk, children, before)
            remount(disk, "size=64m")
            self._finish(disk)
        return 1

    def read_only(self) -> int:
        """The folder may only be read; then it may be written again."""
        with self.place.folder() as base, memory_disk(base, "64m") as disk:
            self._begin(disk)
            before = self._known(disk)
            remount(disk, "ro")
            try:
                children = self.subject.start(self.place, disk, self.stage)
                self._judge(disk, children, before)
            finally:
                remount(disk, "rw")
            self._finish(disk)
        return 1

    def _at_call(self, kinds: Kind, action: Action, error: int) -> int:
        with self.place.folder() as folder:
            self._begin(folder)
            before = self._known(folder)
            with self.faults.armed(folder, kinds, action, next(self.calls), error):
                children = self.subject.start(self.place, folder, self.stage)
                end_together(children)
                codes = [child.wait(PATIENCE / 2) for child in children]
            self._judge(folder, children, before)
            self._finish(folder)
            return int(any(codes) or bool(self.faults.hit))

    def _begin(self, folder: Path) -> None:
        """Fill a folder, and half of the time let a killed run have been there."""
        self.subject.prepare(self.place, folder)
        for stage in range(self.stage):
            self.subject.run(self.place, folder, stage)
        if self.place.rng.random() < 0.5:
            at = self.place.rng.randint(1, self.usual.calls[self.stage])
            with self.faults.armed(folder, CHANGES, Action.KILL, at):
                children = self.subject.start(self.place, folder, self.stage)
                end_together(children)
                for child in children:
                    child.wait()

    def _known(self, folder: Path) -> dict[str, Any]:
        with self._copy(folder) as copy:
            return contents_known(copy)

    def _judge(self, folder: Path, children: list[Child], before: dict[str, Any]) -> None:
        """Refuse tracebacks, other exit codes than 0 and 1, messages without a remedy, and losses."""
        end_together(children)
        codes = [child.wait(PATIENCE / 2) for child in children]
        said = "\n".join(child.said for child in children)
        about = f"{self.faults.hit.decode()}: exit codes {codes}:\n{said[-2500:]}"
        if "Traceback" in said or not set(codes) <= {0, 1, -15}:
            raise Failed(about)
        told = [
            line
            for child in children
            if child.code == 1
            for line in re.findall(r"^ttaps .*(?:\n.*)?", child.said, re.M)
        ]
        if 1 in codes and not any(REMEDY.search(line) for line in told):
            raise Failed(f"no remedy: {about}")
        with self._copy(folder) as copy:
            check_whole(copy, self.usual.finished)
            lost = sorted(name for name, value in before.items() if not kept(value, contents_known(copy).get(name)))
        if lost:
            raise Failed(f"lost: {', '.join(lost)}; {about}")

    @contextmanager
    def _copy(self, folder: Path) -> Iterator[Path]:
        with self.place.folder() as copy:
            shutil.copytree(folder, copy, dirs_exist_ok=True)
            yield copy

    def _finish(self, folder: Path) -> None:
        hit = self.faults.hit.decode()
        try:
            self.subject.finish(self.place, folder)
        except Failed as failure:
            raise Failed(f"after {hit}: {failure}") from failure
        if wrong := difference(contents(folder), self.usual.finished):
            raise Failed(f"afterwards not as undisturbed: {wrong} (failed at: {hit})")

    def _size(self, folder: Path) -> int:
        return int(subprocess.run(["du", "-sk", folder], capture_output=True, text=True, check=True).stdout.split()[0])


def contents_known(folder: Path) -> dict[str, Any]:
    """Return what is in the files of a folder that are not hidden; None of one that cannot be read."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith((*LEFT, ".jsonl"))]
    named = {str(path.relative_to(folder)): path for path in files}
    shown = {name: path for name, path in named.items() if not any(part.startswith(".") for part in Path(name).parts)}
    return {name: content(path) for name, path in shown.items()}


def kept(before: Any, after: Any) -> bool:
    """Whether what was in a file is still there, or something newer."""
    return before <= after if isinstance(before, set) and isinstance(after, set) else after is not None


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


def cases(place: Place, faults: Faults) -> Iterator[Case]:
    """Yield every subject on every kind of bad disk."""
    with ready(place):
        chosen = SUBJECTS[2::3] if place.short else SUBJECTS  # evaluate, merge, download
        failing = [Failing(place, subject, faults, undisturbed(place, subject, faults)) for subject in chosen]
        while True:
            for one in failing:
                name = one.subject.name
                for _ in range(1 if place.short else 4):
                    yield Case(f"full disk: {name}", one.full)
                    yield Case(f"input/output error: {name}", one.broken)
                yield Case(f"small disk: {name}", one.small)
                yield Case(f"read-only: {name}", one.read_only)
            if place.short:
                return
