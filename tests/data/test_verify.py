"""``data verify`` tells apart what is right, built here, incomplete, damaged and missing, and says what to do."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from helpers.small_cifar import SMALL10, SMALL100, write_files
from ttaps.data.cifar import FOLDERS, LAYOUTS
from ttaps.data.verify import C_FILES, OFFICIAL_MD5, Status, verify
from ttaps.files import file_md5


@pytest.fixture(autouse=True)
def small_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets of a few images."""
    for layout in (SMALL10, SMALL100):
        monkeypatch.setitem(LAYOUTS, layout.name, layout)


def write_cifar_c(root: Path, folder: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write all files of a corrupted set and make them the official ones."""
    path = root / folder
    path.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name in C_FILES:
        shape = (20,) if name == "labels.npy" else (20, 32, 32, 3)
        np.save(path / name, rng.integers(0, 10, shape, dtype=np.uint8))
    official = {name: file_md5(path / name) for name in C_FILES}
    monkeypatch.setitem(OFFICIAL_MD5, folder, official)
    return path


def change(path: Path) -> None:
    """Change the last byte of a file."""
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def whole(root: Path, name: str) -> Status:
    """Return the line for a whole set."""
    (row,) = (row for row in verify(root) if row.name == name and not row.file)
    return row


def test_nothing_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = verify(tmp_path)
    assert [(row.name, row.state) for row in rows] == [
        ("cifar10", "missing"),
        ("cifar100", "missing"),
        ("cifar10-c", "missing"),
        ("cifar100-c", "missing"),
    ]
    assert [row.remedy for row in rows] == [
        f"ttaps data download cifar10 --data-root {tmp_path}",
        f"ttaps data download cifar100 --data-root {tmp_path}",
        f"ttaps data build cifar10-c --data-root {tmp_path}",
        f"ttaps data build cifar100-c --data-root {tmp_path}",
    ]
    assert verify(tmp_path / "my data")[0].remedy.endswith(f" --data-root '{tmp_path}/my data'")
    monkeypatch.setenv("TTAPS_DATA", str(tmp_path))
    assert verify(tmp_path)[0].remedy == "ttaps data download cifar10"
    assert not any(row.ok for row in rows)


def test_plain_sets(tmp_path: Path) -> None:
    folder = write_files(SMALL10, tmp_path)
    write_files(SMALL100, tmp_path)
    assert whole(tmp_path, "cifar10").ok
    assert whole(tmp_path, "cifar10").detail == "24 images, every pixel and label right"
    assert whole(tmp_path, "cifar100").detail.endswith("not in the official order")
    change(folder / "data_batch_1")
    assert whole(tmp_path, "cifar10").state == "damaged"
    (folder / "data_batch_4").unlink()
    row = whole(tmp_path, "cifar10")
    assert (row.state, row.remedy) == ("incomplete", f"ttaps data download cifar10 --data-root {tmp_path}")
    assert "data_batch_4" in row.detail


def test_an_official_corrupted_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cifar_c(tmp_path, "CIFAR-10-C", monkeypatch)
    rows = [row for row in verify(tmp_path) if row.name == "cifar10-c"]
    assert [row.file for row in rows] == ["", *C_FILES]
    assert {row.state for row in rows[1:]} == {"official"}
    assert rows[0] == Status("cifar10-c", "", "right", "20 files, 20 official, 0 built here")


def note_as_built(folder: Path, *names: str) -> None:
    md5 = {name: {"md5": hashlib.md5((folder / name).read_bytes()).hexdigest()} for name in names}
    (folder / "build.json").write_text(json.dumps({"seed": 0, "files": md5}))


def test_random_corruptions_may_differ_and_deterministic_ones_may_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_cifar_c(tmp_path, "CIFAR-10-C", monkeypatch)
    change(folder / "fog.npy")
    assert whole(tmp_path, "cifar10-c").state == "unknown"  # nobody says who made it
    note_as_built(folder, "fog.npy")
    assert whole(tmp_path, "cifar10-c").detail == "20 files, 19 official, 1 built here"
    change(folder / "contrast.npy")
    states = {row.file: row for row in verify(tmp_path) if row.name == "cifar10-c"}
    assert (states["fog.npy"].state, states["fog.npy"].ok) == ("built here", True)
    assert states["contrast.npy"].state == "damaged"
    assert states[""].remedy.startswith(f"remove these files from {folder}, then: ttaps data build cifar10-c")
    assert (states[""].state, states[""].detail) == ("damaged", "damaged: contrast.npy")


def test_a_built_file_that_changed_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_cifar_c(tmp_path, "CIFAR-10-C", monkeypatch)
    change(folder / "fog.npy")
    note_as_built(folder, "fog.npy")
    whole_file = (folder / "fog.npy").read_bytes()
    (folder / "fog.npy").write_bytes(whole_file[:-1] + bytes([whole_file[-1] ^ 2]))
    row = whole(tmp_path, "cifar10-c")
    assert (row.state, row.detail) == ("damaged", "damaged: fog.npy")


def test_a_partly_built_set_and_truncated_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_cifar_c(tmp_path, "CIFAR-10-C", monkeypatch)
    (folder / "snow.npy").unlink()
    (folder / "frost.npy").unlink()
    row = whole(tmp_path, "cifar10-c")
    assert (row.state, row.detail) == ("incomplete", "18 of 20 files; missing: frost.npy, snow.npy")
    build = f"ttaps data build cifar10-c --data-root {tmp_path}"
    assert row.remedy == f"put the official file there; or move {folder} away, then: {build}"  # it is not of our making
    note_as_built(folder, "fog.npy")
    assert whole(tmp_path, "cifar10-c").remedy == build
    (folder / "fog.npy").write_bytes((folder / "fog.npy").read_bytes()[:-1])
    assert whole(tmp_path, "cifar10-c").detail == "damaged: fog.npy"


def test_cifar100_c_from_images_in_another_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_cifar_c(tmp_path, "CIFAR-100-C", monkeypatch)
    change(folder / "labels.npy")
    change(folder / "contrast.npy")
    note_as_built(folder, "labels.npy", "contrast.npy")
    rows = {row.file: row for row in verify(tmp_path) if row.name == "cifar100-c"}
    assert rows[""].ok
    assert rows["contrast.npy"].state == "built here"
    assert "order" in rows["contrast.npy"].detail


def test_the_official_table_covers_every_file() -> None:
    for folder in FOLDERS.values():
        assert set(OFFICIAL_MD5[folder]) == set(C_FILES)
