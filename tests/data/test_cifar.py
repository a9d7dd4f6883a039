"""Readers give back exactly what was written, and refuse everything that is not a data set."""

from __future__ import annotations

import pickle
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.small_cifar import SMALL10, SMALL100, batches, random_set, write_files
from ttaps.data import CORRUPTIONS, EXTRA_CORRUPTIONS, ImageSet, data_root, load_set, split_train
from ttaps.data.cifar import (
    CIFAR10,
    CIFAR100,
    LAYOUTS,
    Layout,
    digest,
    find_problem,
    read_cifar,
    read_cifar_c,
    read_pickle,
)
from ttaps.errors import DataError, UsageError


@pytest.mark.parametrize("layout", [SMALL10, SMALL100], ids=["cifar10", "cifar100"])
@pytest.mark.parametrize("split", ["train", "test"])
def test_read_gives_what_was_written(layout: Layout, split: str, tmp_path: Path) -> None:
    write_files(layout, tmp_path)
    found, expected = read_cifar(layout, tmp_path, split), random_set(layout, split)
    np.testing.assert_array_equal(found.images, expected.images)
    np.testing.assert_array_equal(found.labels, expected.labels)
    assert found.classes == layout.classes
    assert len(found) == len(expected)
    assert not find_problem(layout, tmp_path)


def python2_pickle(data: np.ndarray[Any, Any], labels: list[int]) -> bytes:
    """Return the bytes Python 2 and numpy 1 wrote for the official files, opcode by opcode."""
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR"
        + b"(K\x01(K%cM\x00\x0ct" % len(data)
        + b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        + b"\x89T"
        + struct.pack("<i", data.size)
        + data.tobytes()
        + b"tb"
    )
    numbers = b"](" + b"".join(b"K%c" % label for label in labels) + b"e"
    return b"\x80\x02}(U\x04data" + array + b"U\x06labels" + numbers + b"u."


def test_read_files_written_by_python_2(tmp_path: Path) -> None:
    folder = write_files(SMALL10, tmp_path)
    expected = random_set(SMALL10, "test")
    (folder / "test_batch").write_bytes(python2_pickle(expected.images.reshape(-1, 3072), expected.labels.tolist()))
    found = read_cifar(SMALL10, tmp_path, "test")
    np.testing.assert_array_equal(found.images, expected.images)
    np.testing.assert_array_equal(found.labels, expected.labels)


@pytest.mark.parametrize("module", [b"numpy.core.multiarray", b"numpy._core.multiarray"])
def test_read_arrays_of_either_numpy(module: bytes, tmp_path: Path) -> None:
    content = pickle.dumps({b"data": np.arange(6, dtype=np.uint8)}, protocol=2)
    for written in (b"numpy._core.multiarray", b"numpy.core.multiarray"):
        content = content.replace(b"c" + written + b"\n", b"c" + module + b"\n")
    (tmp_path / "batch").write_bytes(content)
    np.testing.assert_array_equal(read_pickle(tmp_path / "batch", "")[b"data"], np.arange(6))


class Evil:
    """An object whose pickle calls a function when it is read."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.call


def test_a_pickle_that_runs_something_is_refused(tmp_path: Path) -> None:
    folder = write_files(SMALL10, tmp_path)
    trace = tmp_path / "was_here"
    (folder / "test_batch").write_bytes(pickle.dumps({b"data": Evil(exec, f"open({str(trace)!r}, 'w')")}, protocol=2))
    with pytest.raises(DataError, match=r"test_batch was refused: it tries to load .*\.exec") as caught:
        read_cifar(SMALL10, tmp_path, "test")
    assert "ttaps data download cifar10" in str(caught.value)
    assert not trace.exists()


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (b"cos\nsystem\n(U\x02lstR.", "os.system"),
        (b"cbuiltins\neval\n(U\x011tR.", "builtins.eval"),
        (b"cnumpy\nload\n(U\x01xtR.", "numpy.load"),
        (b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93.", "numpy.ndarray.tofile"),
        (b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x03\x00\x00\x00hex\x86R.", "'hex'"),
    ],
)
def test_every_other_global_is_refused_by_name(content: bytes, wanted: str, tmp_path: Path) -> None:
    (tmp_path / "batch").write_bytes(content)
    with pytest.raises(DataError, match="refused") as caught:
        read_pickle(tmp_path / "batch", "the remedy")
    assert wanted in str(caught.value)
    assert str(caught.value).endswith("the remedy")


def test_truncated_and_garbled_files_are_named(tmp_path: Path) -> None:
    path = write_files(SMALL10, tmp_path) / "test_batch"
    whole = path.read_bytes()
    for content in [whole[: len(whole) * k // 7] for k in range(7)] + [b"<html>not found</html>", b"\x80\x02K\x01."]:
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"test_batch .*\n.*ttaps data download cifar10"):
            read_cifar(SMALL10, tmp_path, "test")


@pytest.mark.parametrize(
    "batch",
    [
        {},
        {b"data": np.zeros((3, 3072), np.uint8), b"labels": [0] * 4},
        {b"data": np.zeros((4, 3072), np.float32), b"labels": [0] * 4},
        {b"data": [0], b"labels": [0] * 4},
        {b"data": np.zeros((4, 3072), np.uint8), b"labels": [0] * 3},
        {b"data": np.zeros((4, 3072), np.uint8), b"labels": [0, 1, 2, 10]},
        {b"data": np.zeros((4, 3072), np.uint8), b"labels": [0, 1, 2, b"3"]},
    ],
)
def test_wrong_shapes_and_labels_are_refused(batch: dict[bytes, Any], tmp_path: Path) -> None:
    path = write_files(SMALL10, tmp_path) / "test_batch"
    path.write_bytes(pickle.dumps(batch, protocol=2))
    with pytest.raises(DataError, match=r"test_batch: .*expected.*\n.*ttaps data download cifar10"):
        read_cifar(SMALL10, tmp_path, "test")


def test_missing_files_and_unknown_splits(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"test_batch is missing\.\n.*ttaps data download cifar10"):
        read_cifar(CIFAR10, tmp_path)
    with pytest.raises(UsageError, match=r"'validation'; choose one of: train, test"):
        read_cifar(CIFAR10, tmp_path, "validation")


def test_an_image_set_refuses_arrays_that_do_not_fit() -> None:
    images, labels = np.zeros((2, 3, 4, 4), np.uint8), np.array([0, 1])
    assert len(ImageSet("x", images, labels, ("a", "b"))) == 2
    for wrong in (
        (images.transpose(0, 2, 3, 1), labels, ("a", "b")),
        (images, labels[:1], ("a", "b")),
        (images, labels, ("a",)),
        (images, labels - 1, ("a", "b")),
    ):
        with pytest.raises(DataError, match=r"^x: "):
            ImageSet("x", *wrong)


def test_split_train_is_a_fixed_partition() -> None:
    train, validation = split_train()
    assert (len(train), len(validation)) == (40_000, 10_000)
    np.testing.assert_array_equal(np.sort(np.concatenate([train, validation])), np.arange(50_000))
    np.testing.assert_array_equal(validation, split_train(50_000, seed=0)[1])
    assert set(validation) != set(split_train(seed=1)[1])
    # Written down, so that no change of code or numpy can quietly move images between the two.
    assert validation[:5].tolist() == [25556, 20554, 16026, 47310, 38162]


def test_digests_see_every_change_and_only_the_ordered_one_sees_order() -> None:
    whole = random_set(CIFAR10, "train")
    pixel, label = whole.images.copy(), whole.labels.copy()
    pixel[3, 1, 5, 7] ^= 1
    label[[0, 1]] = (label[[0, 1]] + 1) % 10
    mirrored = ImageSet("x", whole.images[::-1], whole.labels[::-1], whole.classes)
    changed = [ImageSet("x", pixel, whole.labels, whole.classes), ImageSet("x", whole.images, label, whole.classes)]
    for ordered in (True, False):
        assert len({digest(whole, ordered), *(digest(other, ordered) for other in changed)}) == 3
        assert (digest(mirrored, ordered) != digest(whole, ordered)) == ordered


def write_cifar_c(root: Path, corruption: str = "fog") -> np.ndarray[Any, Any]:
    """Write a corrupted set of four images per severity; return its images."""
    folder = root / "CIFAR-10-C"
    folder.mkdir(exist_ok=True)
    images = np.random.default_rng(0).integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)
    np.save(folder / f"{corruption}.npy", images)
    np.save(folder / "labels.npy", np.tile(np.arange(4, dtype=np.uint8), 5))
    return images


def test_cifar_c_is_mapped_severity_by_severity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LAYOUTS, "cifar10", SMALL10)
    images = write_cifar_c(tmp_path)
    for severity in range(1, 6):
        found = read_cifar_c(SMALL10, tmp_path, "fog", severity)
        expected = images[4 * (severity - 1) : 4 * severity].transpose(0, 3, 1, 2)
        np.testing.assert_array_equal(found.images, expected)
        assert found.labels.tolist() == [0, 1, 2, 3]
        assert isinstance(found.images, np.memmap)
    np.testing.assert_array_equal(
        load_set("cifar10-c", tmp_path, corruption="fog", severity=2).images,
        images[4:8].transpose(0, 3, 1, 2),
    )


def test_cifar_c_refuses_what_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'foggy' \(did you mean 'fog'"):
        read_cifar_c(SMALL10, tmp_path, "foggy")
    for severity in (0, 6, -1):
        with pytest.raises(UsageError, match=f"5, not {severity}"):
            read_cifar_c(SMALL10, tmp_path, "fog", severity)
    with pytest.raises(DataError, match=r"fog\.npy is missing\.\n.*ttaps data build cifar100-c"):
        read_cifar_c(SMALL100, tmp_path, "fog")


def test_cifar_c_refuses_damaged_files(tmp_path: Path) -> None:
    images = write_cifar_c(tmp_path)
    path = tmp_path / "CIFAR-10-C" / "fog.npy"
    whole = path.read_bytes()
    for content in (b"", b"text", whole[:50], whole[:-1]):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"fog\.npy is damaged.*\n.*ttaps data build cifar10-c"):
            read_cifar_c(SMALL10, tmp_path, "fog")
    for wrong in (images[:-1], images.astype(np.int16)):
        np.save(path, wrong)
        with pytest.raises(DataError, match=r"expected uint8 \(20, 32, 32, 3\)"):
            read_cifar_c(SMALL10, tmp_path, "fog")
    np.save(path, np.array([Evil(print, "run")], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match=r"fog\.npy is damaged"):
        read_cifar_c(SMALL10, tmp_path, "fog")


def test_the_names_of_corruptions_and_classes() -> None:
    assert (len(CORRUPTIONS), len(EXTRA_CORRUPTIONS), len({*CORRUPTIONS, *EXTRA_CORRUPTIONS})) == (15, 4, 19)
    assert list(CORRUPTIONS) == sorted(CORRUPTIONS)
    assert (len(CIFAR10.classes), len(set(CIFAR100.classes))) == (10, 100)
    assert list(CIFAR100.classes) == sorted(CIFAR100.classes)


def test_load_set_knows_its_names(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'cifar10-c'"):
        load_set("cifar10c", tmp_path)
    with pytest.raises(UsageError, match=r"Which corruption of cifar10-c\?\n.*brightness"):
        load_set("cifar10-c", tmp_path)
    with pytest.raises(UsageError, match=r"cifar10 has no corruption 'fog'\.\n.*cifar10-c"):
        load_set("cifar10", tmp_path, corruption="fog")
    with pytest.raises(DataError, match="test_batch is missing"):
        load_set("cifar10", tmp_path)
    with pytest.raises(UsageError, match="'/nowhere/at/all'"):
        load_set("/nowhere/at/all", tmp_path)


def test_data_root_is_option_then_environment_then_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTAPS_DATA", "/from/environment")
    assert data_root(Path("/from/option")) == Path("/from/option")
    assert data_root() == Path("/from/environment")
    monkeypatch.delenv("TTAPS_DATA")
    assert data_root() == Path("data")


def test_batches_really_are_the_official_names() -> None:
    names = [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch", "batches.meta"]
    assert sorted(batches(SMALL10)) == sorted(names)
    assert sorted(batches(SMALL100)) == ["meta", "test", "train"]


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, ttaps.data; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
