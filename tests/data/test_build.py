"""The builder of CIFAR-C: a function of seed and index, whole after any interruption, never mixed."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from numpy.typing import NDArray

from ttaps.data import ImageSet
from ttaps.data import build as builder
from ttaps.data.build import build, build_from
from ttaps.data.corruptions import corrupt_set
from ttaps.data.sample import read_sample
from ttaps.data.verify import C_FILES
from ttaps.errors import DataError, TtapsError, UsageError
from ttaps.files import file_lock

NAMES = ("fog", "contrast")
SLOW_BUILD = """
import sys, time
from pathlib import Path
from ttaps.data import build as builder
from test_build import clean
corrupt_set = builder.corrupt_set
builder.corrupt_set = lambda *arguments: (time.sleep(0.2), corrupt_set(*arguments))[1]
builder.CHUNK = 4
builder.build_from(clean(), Path(sys.argv[1]), corruptions=("fog", "contrast"), workers=1)
"""


KILLED_WITH_A_WORKER = """
import os, signal, sys, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from ttaps.data.build import _start_worker
if __name__ == "__main__":
    pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_start_worker)
    worker = pool.submit(os.getpid).result()
    Path(sys.argv[1]).write_text(str(worker))
    pool.submit(time.sleep, 60)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def clean() -> ImageSet:
    """Return ten real images."""
    images = read_sample()
    return replace(images, images=images.images[:10], labels=images.labels[:10])


def pixels() -> NDArray[np.uint8]:
    """Return them as (N, 32, 32, 3)."""
    return clean().images.transpose(0, 2, 3, 1)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build once, without interruption, in one process."""
    folder = tmp_path_factory.mktemp("whole") / "CIFAR-10-C"
    build_from(clean(), folder, corruptions=NAMES, workers=1)
    return folder


def test_all_are_the_nineteen_of_cifar_10_c(tmp_path: Path) -> None:
    images = clean()
    build_from(replace(images, images=images.images[:1], labels=images.labels[:1]), tmp_path / "C", workers=1)
    assert {path.name for path in (tmp_path / "C").glob("*.npy")} == {*C_FILES}
    assert len(C_FILES) == 20  # and the labels


def test_files_have_the_official_layout(whole: Path) -> None:
    assert np.array_equal(np.load(whole / "labels.npy"), np.tile(clean().labels, 5))
    for name in NAMES:
        expected = np.concatenate([corrupt_set(pixels(), name, severity, seed=0) for severity in range(1, 6)])
        built = np.load(whole / f"{name}.npy")
        assert built.dtype == np.uint8
        assert built.flags.c_contiguous
        assert np.array_equal(built, expected)
    assert sorted(content(whole)) == ["build.json", "contrast.npy", "fog.npy", "labels.npy"]


def test_the_record_names_seed_checksums_and_versions(whole: Path) -> None:
    record = json.loads((whole / "build.json").read_text())
    assert record["seed"] == 0
    for file, entry in record["files"].items():
        assert entry["md5"] == hashlib.md5((whole / file).read_bytes()).hexdigest()
        assert entry["versions"]["numpy"] == np.__version__


def test_processes_and_chunks_change_nothing(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "CHUNK", 3)
    build_from(clean(), tmp_path / "two", corruptions=NAMES[::-1], workers=2)
    both = content(tmp_path / "two"), content(whole)
    assert all(both[0][f"{name}.npy"] == both[1][f"{name}.npy"] for name in NAMES)


def test_killed_and_started_again_gives_the_same_bytes(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "CIFAR-10-C"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
    }
    process = subprocess.Popen([sys.executable, "-c", SLOW_BUILD, str(folder)], env=environment)
    while len(list(folder.glob(".build/fog/*.npy"))) < 3:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (folder / ".fog.npy.1.part").write_bytes(b"half a file")  # as a kill while the file is written leaves it
    kept = len(list(folder.glob(".build/fog/*.npy")))
    calls: list[str] = []

    def count(images: Any, name: str, *rest: Any) -> Any:
        calls.append(name)
        return corrupt_set(images, name, *rest)

    monkeypatch.setattr(builder, "corrupt_set", count)
    monkeypatch.setattr(builder, "CHUNK", 4)
    build_from(clean(), folder, corruptions=NAMES, workers=1)
    assert content(folder) == content(whole)
    assert calls.count("fog") == 15 - kept
    assert calls.count("contrast") == 15


def test_a_corruption_named_twice_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def count(images: Any, name: str, *rest: Any) -> Any:
        calls.append(name)
        return corrupt_set(images, name, *rest)

    monkeypatch.setattr(builder, "corrupt_set", count)
    build_from(clean(), tmp_path / "CIFAR-10-C", corruptions=["contrast", "contrast"], workers=1)
    assert calls == ["contrast"] * 5


def test_what_a_build_with_another_seed_left_is_not_used(whole: Path, tmp_path: Path) -> None:
    left = tmp_path / "new" / ".build" / "fog" / "1-00000.npy"
    left.parent.mkdir(parents=True)
    np.save(left, np.zeros((10, 32, 32, 3), np.uint8))
    build_from(clean(), tmp_path / "new", seed=1, corruptions=["fog"], workers=1)
    expected = np.concatenate([corrupt_set(pixels(), "fog", severity, seed=1) for severity in range(1, 6)])
    assert np.array_equal(np.load(tmp_path / "new" / "fog.npy"), expected)
    assert sorted(content(tmp_path / "new")) == ["build.json", "fog.npy", "labels.npy"]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="looks at processes as Linux shows them")
def test_workers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED_WITH_A_WORKER, str(tmp_path / "worker")])
    assert process.wait() == -9
    worker = int((tmp_path / "worker").read_text())
    for _ in range(500):
        try:
            if "Z (" in Path(f"/proc/{worker}/status").read_text():
                return
        except (FileNotFoundError, ProcessLookupError):
            return
        time.sleep(0.02)
    os.kill(worker, signal.SIGKILL)
    pytest.fail("the worker went on")


def test_a_finished_build_does_nothing(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = content(whole)
    monkeypatch.delattr(builder, "corrupt_set")
    build_from(clean(), whole, corruptions=NAMES, workers=1)
    assert content(whole) == before


def test_another_seed_or_source_is_not_mixed_in(whole: Path) -> None:
    with pytest.raises(DataError, match=r"seed 0, not 1\.\nRemove that folder"):
        build_from(clean(), whole, seed=1, corruptions=NAMES, workers=1)
    with pytest.raises(DataError, match="source_md5"):
        build_from(replace(clean(), images=clean().images[::-1]), whole, corruptions=NAMES, workers=1)


def test_files_from_elsewhere_are_not_mixed_in(tmp_path: Path) -> None:
    np.save(tmp_path / "fog.npy", np.zeros(3))
    with pytest.raises(DataError, match="not built here"):
        build_from(clean(), tmp_path, corruptions=NAMES, workers=1)
    assert sorted(content(tmp_path)) == ["fog.npy"]


@pytest.mark.parametrize("text", ["{", "[]", '{"seed": 0}', '{"files": {"fog.npy": "a"}}', "[" * 9999])
def test_a_damaged_record_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "build.json").write_text(text)
    with pytest.raises(DataError, match="build again"):
        build_from(clean(), tmp_path, corruptions=NAMES, workers=1)


def test_a_full_disk_is_said_and_loses_nothing(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_arguments: Any) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    folder = tmp_path / "CIFAR-10-C"
    with monkeypatch.context() as patch:
        patch.setattr(np, "save", full)
        with pytest.raises(TtapsError, match="No space left on device"):
            build_from(clean(), folder, corruptions=NAMES, workers=1)
    build_from(clean(), folder, corruptions=NAMES, workers=1)
    assert content(folder) == content(whole)


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(TtapsError, match="file"):
        build_from(clean(), tmp_path / "file" / "CIFAR-10-C", corruptions=NAMES, workers=1)


def test_wrong_requests_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cifar10-c, cifar100-c"):
        build("cifar10", tmp_path)
    with pytest.raises(UsageError, match="Unknown corruption 'rain'"):
        build("cifar10-c", tmp_path, corruptions=["rain"])
    assert not content(tmp_path)


def test_without_clean_images_the_remedy_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="ttaps data download cifar10"):
        build("cifar10-c", tmp_path)


def test_two_builds_at_once_do_not_meet(tmp_path: Path) -> None:
    with (
        file_lock(tmp_path / ".CIFAR-10-C.lock", "building"),
        pytest.raises(TtapsError, match="Another process is building"),
    ):
        build_from(clean(), tmp_path / "CIFAR-10-C", corruptions=["contrast"], workers=1)
