"""Files are whole or not there, whatever goes wrong in the middle."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from ttaps.errors import TtapsError
from ttaps.files import atomic_write, file_lock, remove_partials, write_bytes, write_text


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "result.txt"
    path.write_text("old")
    return path


def test_content_is_replaced(old: Path) -> None:
    write_text(old, "new é")
    assert old.read_bytes() == "new é".encode()
    assert names(old.parent) == ["result.txt"]


def test_folders_are_made(tmp_path: Path) -> None:
    write_bytes(tmp_path / "a" / "b" / "c.bin", b"\0\1")
    assert (tmp_path / "a" / "b" / "c.bin").read_bytes() == b"\0\1"


def test_the_old_content_is_there_until_the_end(old: Path) -> None:
    with atomic_write(old) as scratch:
        scratch.write_text("half")
        assert old.read_text() == "old"
        scratch.write_text("new")
    assert old.read_text() == "new"


@pytest.mark.parametrize("failure", [RuntimeError("broken"), KeyboardInterrupt()])
def test_an_exception_in_the_middle_keeps_the_old_content(old: Path, failure: BaseException) -> None:
    def interrupted() -> NoReturn:
        with atomic_write(old) as scratch:
            scratch.write_text("half")
            raise failure

    with pytest.raises(type(failure)):
        interrupted()
    assert old.read_text() == "old"
    assert names(old.parent) == ["result.txt"]


@pytest.mark.parametrize("where", ["write", "fsync", "rename"])
def test_a_full_disk_keeps_the_old_content(old: Path, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def half(path: Path, content: bytes) -> NoReturn:
        with path.open("wb") as file:
            file.write(content[:3])
        full()

    if where == "write":
        monkeypatch.setattr(Path, "write_bytes", half)
    elif where == "fsync":
        monkeypatch.setattr(os, "fsync", full)
    else:
        monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(
        TtapsError, match=r"result.txt: No space left on device.\nMake room there, or choose another folder"
    ):
        write_text(old, "new content")
    assert old.read_text() == "old"
    assert names(old.parent) == ["result.txt"]


def test_no_permission(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> NoReturn:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "write_bytes", forbidden)
    with pytest.raises(
        TtapsError, match=r"Permission denied.\nGet permission to write there, or choose another folder"
    ):
        write_text(old, "new")
    assert old.read_text() == "old"


def test_a_path_below_a_file(old: Path) -> None:
    with pytest.raises(TtapsError, match=r"Cannot write .*result.txt/below/this: (Not a directory|File exists)"):
        write_text(old / "below" / "this", "new")
    assert old.read_text() == "old"


def test_a_path_that_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "folder" / "inside").mkdir(parents=True)
    with pytest.raises(TtapsError, match=r"Cannot write .*folder: Is a directory"):
        write_text(tmp_path / "folder", "new")
    assert names(tmp_path) == ["folder"]


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with (
        file_lock(tmp_path / ".lock", "training here"),
        pytest.raises(TtapsError, match="Another process is training here"),
        file_lock(tmp_path / ".lock", "training here"),
    ):
        pytest.fail("both had it")


def test_a_file_system_without_locks_is_used_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_locks(file: object, how: int) -> NoReturn:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    with file_lock(tmp_path / ".lock", "training here"):
        pass
    assert "no locks" in capsys.readouterr().err


def test_an_old_filelock_on_such_a_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unsupported(lock: object, **options: object) -> NoReturn:
        raise NotImplementedError("FileSystem does not appear to support flock")

    monkeypatch.setattr("filelock.FileLock.acquire", unsupported)
    with file_lock(tmp_path / ".lock", "training here"):
        pass
    assert "no locks" in capsys.readouterr().err


def test_what_killed_processes_left_is_swept(old: Path) -> None:
    (old.parent / f".{old.name}.123.part").touch()
    remove_partials(old.parent)
    assert names(old.parent) == [old.name]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="only there is it known who has ended")
def test_what_a_killed_writer_of_this_file_left_goes_with_the_next_writing(old: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    (old.parent / f".{old.name}.{int(ended.stdout)}.part").touch()
    (old.parent / f".{old.name}.{os.getppid()}.part").touch()  # of one that is still at it
    write_text(old, "new")
    assert names(old.parent) == sorted([f".{old.name}.{os.getppid()}.part", old.name])


def test_a_lock_ends_with_the_process_that_held_it(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from ttaps.files import file_lock\n"
        "with file_lock(Path(sys.argv[1]), 'working'): print('held', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", script, str(tmp_path / ".lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        with pytest.raises(TtapsError, match="Another process is working"), file_lock(tmp_path / ".lock", "working"):
            pytest.fail("both had it")
        process.kill()
        process.wait()
    with file_lock(tmp_path / ".lock", "working"):
        pass
