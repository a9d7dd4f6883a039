"""Images of any kind come out as uint8 (3, size, size); what is no image is refused before it costs anything."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from PIL import Image

from ttaps.data import load_set, read_image
from ttaps.data.images import open_image_folder, read_arrays
from ttaps.errors import DataError

PIXELS = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)


def save(path: Path, pixels: np.ndarray[Any, Any], **options: Any) -> Path:
    """Save an array as an image and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)
    return path


def png_header(path: Path, width: int, height: int) -> Path:
    """Write a PNG that claims a size and has no pixels."""
    content = b"\x89PNG\r\n\x1a\n"
    for chunk in (b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0), b"IDAT" + zlib.compress(b"")):
        content += struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
    path.write_bytes(content)
    return path


def test_an_image_of_the_right_size_is_unchanged(tmp_path: Path) -> None:
    image, note = read_image(save(tmp_path / "a.png", PIXELS), 32)
    np.testing.assert_array_equal(image, PIXELS.transpose(2, 0, 1))
    assert image.dtype == np.uint8
    assert note is None


def test_grey_palette_and_transparent_images_become_rgb(tmp_path: Path) -> None:
    gray, _ = read_image(save(tmp_path / "gray.png", PIXELS[..., 0]), 32)
    np.testing.assert_array_equal(gray, np.stack([PIXELS[..., 0]] * 3))

    Image.fromarray(PIXELS).quantize(16).save(tmp_path / "palette.png")
    palette, _ = read_image(tmp_path / "palette.png", 32)
    expected = np.asarray(Image.fromarray(PIXELS).quantize(16).convert("RGB")).transpose(2, 0, 1)
    np.testing.assert_array_equal(palette, expected)

    alpha = np.zeros((32, 32, 1), np.uint8)
    alpha[:16] = 255
    clear, _ = read_image(save(tmp_path / "clear.png", np.concatenate([PIXELS, alpha], axis=2)), 32)
    np.testing.assert_array_equal(clear[:, :16], PIXELS[:16].transpose(2, 0, 1))
    assert (clear[:, 16:] == 255).all()


def test_16_bit_grey_keeps_its_contrast(tmp_path: Path) -> None:
    image, _ = read_image(save(tmp_path / "deep.png", PIXELS[..., 0].astype(np.uint16) * 257), 32)
    np.testing.assert_array_equal(image[0], PIXELS[..., 0])


@pytest.mark.parametrize("scale", [1.0, 1 / 255])
def test_grey_floats_keep_their_contrast(scale: float, tmp_path: Path) -> None:
    image, _ = read_image(save(tmp_path / "deep.tiff", PIXELS[..., 0].astype(np.float32) * np.float32(scale)), 32)
    np.testing.assert_array_equal(image[0], PIXELS[..., 0])


def test_a_photograph_lying_on_its_side_is_turned_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees clockwise to see it upright
    image, _ = read_image(save(tmp_path / "side.png", PIXELS, exif=exif), 32)
    np.testing.assert_array_equal(image, np.rot90(PIXELS, k=-1).transpose(2, 0, 1))


def test_other_sizes_are_cropped_and_resized_and_said_so(tmp_path: Path) -> None:
    wide = np.zeros((64, 128, 3), np.uint8)
    wide[:, 32:96] = 200
    image, note = read_image(save(tmp_path / "wide.png", wide), 32)
    assert note == "cropped to a square and resized from 128x64 to 32x32"
    np.testing.assert_array_equal(image, np.full((3, 32, 32), 200))  # nothing of the black sides has leaked in
    _, note = read_image(save(tmp_path / "small.png", PIXELS[:8, :8]), 32)
    assert note == "resized from 8x8 to 32x32"


def test_shrinking_is_antialiased(tmp_path: Path) -> None:
    checks = np.indices((320, 320)).sum(0) % 2 * np.uint8(255)
    image, _ = read_image(save(tmp_path / "checks.png", checks.astype(np.uint8)), 32)
    assert image.min() >= 126  # single pixels would be 0 or 255
    assert image.max() <= 129


def test_absurd_sizes_are_refused_before_decoding(tmp_path: Path) -> None:
    for width, height in ((50_000, 10), (10, 20_001), (10_001, 10_000), (19_000, 19_000)):
        with pytest.raises(DataError, match="too large") as caught:
            read_image(png_header(tmp_path / "huge.png", width, height))
        assert "huge.png" in str(caught.value)
        assert "100 megapixels" in str(caught.value)


def test_the_largest_images_allowed_are_not_warned_about(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="truncated"):  # it has no pixels, but its size is accepted
        read_image(png_header(tmp_path / "large.png", 10_000, 10_000))


def test_no_image_starts_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """EPS is PostScript, which Pillow would give to Ghostscript."""
    monkeypatch.setattr("subprocess.Popen", lambda *arguments, **options: pytest.fail(f"started {arguments}"))
    with pytest.raises(DataError, match="not an image that Pillow can read"):
        read_image(save(tmp_path / "a.eps", PIXELS))


def test_what_is_no_image_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("this is not an image\n" * 20)
    (tmp_path / "empty.jpg").touch()
    for name in ("text.png", "empty.jpg"):
        with pytest.raises(DataError, match=rf"{name} is not an image"):
            read_image(tmp_path / name)
    with pytest.raises(DataError, match="There is no file"):
        read_image(tmp_path / "absent.png")
    with pytest.raises(DataError, match="Is a directory"):
        read_image(tmp_path)


@pytest.mark.parametrize("name", ["cut.png", "cut.jpg", "cut.webp", "cut.gif", "cut.tiff"])
def test_truncated_images_are_refused(name: str, tmp_path: Path) -> None:
    path = save(tmp_path / name, PIXELS)
    whole = path.read_bytes()
    for keep in (len(whole) // 2, len(whole) // 8, 20):
        path.write_bytes(whole[:keep])
        with pytest.raises(DataError, match=rf"{name} is (damaged or truncated .*\n?.*\nRestore|not an image)"):
            read_image(path)


def test_a_folder_has_a_sub_folder_per_class(tmp_path: Path) -> None:
    for index, name in enumerate(["dog/b.png", "cat/1.png", "cat/0.png", "cat/deep/2.png", "dog/a.png"]):
        save(tmp_path / name, PIXELS // (index + 1))
    (tmp_path / "cat" / "notes.txt").write_text("not an image")
    for name in (".cache/a.png", "cat/.hidden.png", "cat/.ipynb_checkpoints/0.png"):
        save(tmp_path / name, PIXELS)
    found = open_image_folder(tmp_path, 32).load()
    assert found.classes == ("cat", "dog")
    assert found.labels.tolist() == [0, 0, 0, 1, 1]
    expected = [PIXELS // k for k in (3, 2, 4, 5, 1)]
    np.testing.assert_array_equal(found.images, np.stack(expected).transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(load_set(str(tmp_path)).images, found.images)


def test_labels_are_int64_where_numpy_counts_in_int32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows with numpy 1."""
    save(tmp_path / "cat" / "a.png", PIXELS)
    arange = np.arange
    monkeypatch.setattr(np, "arange", lambda *span, dtype=np.int32: arange(*span, dtype=dtype))
    assert open_image_folder(tmp_path).load().labels.dtype == load_set("sample").labels.dtype == np.int64


def test_folders_without_classes_or_images_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "flat" / "a.png", PIXELS)
    with pytest.raises(DataError, match=r"no sub-folders.*\nExpected .*CLASS"):
        open_image_folder(tmp_path / "flat").load()
    (tmp_path / "two" / "cat").mkdir(parents=True)
    with pytest.raises(DataError, match="cat holds no images"):
        open_image_folder(tmp_path / "two").load()
    with pytest.raises(DataError, match="is not a folder"):
        open_image_folder(tmp_path / "absent").load()


def test_a_folder_of_splits_is_refused_with_the_folder_to_give(tmp_path: Path) -> None:
    for split in ("test", "train"):
        save(tmp_path / split / "cat" / "a.png", PIXELS)
    remedy = (
        rf"'test' is not a class\.\nGive the folder whose sub-folders are the classes, such as {tmp_path / 'test'}\."
    )
    with pytest.raises(DataError, match=remedy):
        open_image_folder(tmp_path).load()
    assert open_image_folder(tmp_path / "train").load().classes == ("cat",)


def test_resized_images_of_a_folder_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path / "cat" / "a.png", PIXELS)
    save(tmp_path / "cat" / "b.png", PIXELS[:20])
    open_image_folder(tmp_path, 32).load()
    assert "1 of 2 images had another size" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_a_folder_are_mapped(order: Literal["C", "F"], tmp_path: Path) -> None:
    images = np.random.default_rng(2).integers(0, 256, (9, 8, 8, 3), dtype=np.uint8)
    np.save(tmp_path / "images.npy", np.asarray(images, order=order))
    np.save(tmp_path / "labels.npy", np.zeros(9, int))
    found = load_set(str(tmp_path))
    assert isinstance(found.images, np.memmap)
    np.testing.assert_array_equal(found.images, images.transpose(0, 3, 1, 2))
    assert found.classes == ("0",)
    (tmp_path / "images.npy").write_bytes((tmp_path / "images.npy").read_bytes()[:-1])
    with pytest.raises(DataError, match=r"images\.npy is damaged or truncated"):
        load_set(str(tmp_path))
    (tmp_path / "labels.npy").unlink()
    with pytest.raises(DataError, match="has no array 'labels', only: images"):
        load_set(str(tmp_path))


@pytest.mark.parametrize("save_as", [np.savez, np.savez_compressed])
def test_an_unzipped_npz_is_the_same_set(save_as: Callable[..., None], tmp_path: Path) -> None:
    images = np.random.default_rng(2).integers(0, 256, (9, 3, 8, 8), dtype=np.uint8)
    save_as(tmp_path / "set.npz", labels=np.arange(9) % 2, images=images, classes=np.array(["cat", "dog"]))
    with zipfile.ZipFile(tmp_path / "set.npz") as archive:
        archive.extractall(tmp_path / "set")
    read, mapped = load_set(str(tmp_path / "set.npz")), load_set(str(tmp_path / "set"))
    np.testing.assert_array_equal(read.images, mapped.images)
    assert (read.labels.tolist(), read.classes) == (mapped.labels.tolist(), mapped.classes)


def test_an_npz_larger_than_memory_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(*arguments: object, **options: object) -> None:
        raise MemoryError

    np.savez(tmp_path / "set.npz", labels=np.zeros(1))
    monkeypatch.setattr(np, "load", too_large)
    with pytest.raises(DataError, match=r"set\.npz does not fit into memory\.\nUnzip it into a folder"):
        read_arrays(tmp_path / "set.npz")


@pytest.mark.parametrize("save_as", [np.savez, np.savez_compressed])
def test_a_changed_bit_in_an_npz_is_noticed(save_as: Callable[..., None], tmp_path: Path) -> None:
    path = tmp_path / "set.npz"
    save_as(path, images=np.random.default_rng(3).integers(0, 256, (50, 8, 8, 3), np.uint8), labels=np.arange(50))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"set\.npz is not a complete \.npz file \("):
        read_arrays(path)


@pytest.mark.parametrize("channels_last", [True, False])
def test_npz_in_either_layout(channels_last: bool, tmp_path: Path) -> None:
    images = np.random.default_rng(1).integers(0, 256, (5, 3, 8, 9), dtype=np.uint8)
    stored = images.transpose(0, 2, 3, 1) if channels_last else images
    np.savez(tmp_path / "set.npz", images=stored, labels=np.array([0, 1, 2, 1, 0], np.uint8), other=np.zeros(3))
    found = read_arrays(tmp_path / "set.npz")
    np.testing.assert_array_equal(found.images, images)
    assert found.labels.tolist() == [0, 1, 2, 1, 0]
    assert found.classes == ("0", "1", "2")
    np.savez(tmp_path / "set.npz", images=stored, labels=np.zeros(5, int), classes=np.array(["cat", "dog"]))
    assert load_set(str(tmp_path / "set.npz")).classes == ("cat", "dog")


def test_npz_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "set.npz"
    images, labels = np.zeros((4, 8, 8, 3), np.uint8), np.arange(4)
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("no array 'labels', only: images", {"images": images}),
        ("images are float64", {"images": images / 255, "labels": labels}),
        ("images are uint8", {"images": images[..., :2], "labels": labels}),
        ("labels are float64", {"images": images, "labels": labels / 2}),
        ("labels must not be empty", {"images": images, "labels": labels - 1}),
        ("labels must not be empty", {"images": images, "labels": labels * 10**12}),
        ("labels must not be empty", {"images": images[:0], "labels": labels[:0]}),
        ("labels are int64", {"images": images, "labels": labels[:3]}),
        ("expected 0 to 1", {"images": images, "labels": labels, "classes": np.array(["cat", "dog"])}),
        ("not a complete .npz", {"images": np.array([None]), "labels": labels}),
        ("not a complete .npz", {"images": images, "labels": np.array([None])}),
    ]
    for message, arrays in wrong:
        np.savez(path, **arrays)
        with pytest.raises(DataError, match=message):
            read_arrays(path)


def test_npz_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "set.npz"
    np.savez(path, images=np.zeros((4, 8, 8, 3), np.uint8), labels=np.arange(4))
    whole = path.read_bytes()
    for content in (b"", b"text", whole[: len(whole) // 2]):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"not a complete \.npz.*\nRestore it from a copy"):
            read_arrays(path)
    np.save(tmp_path / "one.npy", np.zeros(3))
    (tmp_path / "one.npy").rename(path)
    with pytest.raises(DataError, match=r"not a complete \.npz"):
        read_arrays(path)
    with pytest.raises(DataError, match="There is no file"):
        read_arrays(tmp_path / "absent.npz")


def test_an_archive_in_the_place_of_an_array_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "labels.npy", np.arange(4))
    with (tmp_path / "images.npy").open("wb") as file:
        np.savez(file, images=np.zeros((4, 8, 8, 3), np.uint8))
    with pytest.raises(DataError, match=r"images\.npy is damaged or truncated \(it is an archive\)"):
        load_set(str(tmp_path))


def test_class_names_may_be_bytes(tmp_path: Path) -> None:
    images = np.zeros((2, 8, 8, 3), np.uint8)
    np.savez(tmp_path / "set.npz", images=images, labels=np.arange(2), classes=np.array([b"cat", b"dog"]))
    assert read_arrays(tmp_path / "set.npz").classes == ("cat", "dog")


@pytest.mark.parametrize("kind", ["png", "webp"])
def test_damaged_exif_costs_no_image(tmp_path: Path, kind: str) -> None:
    path = save(tmp_path / f"odd.{kind}", PIXELS, exif=b"Exif\0\0XXXXXXXXXXXXXX")
    assert read_image(path, 32)[0].shape == (3, 32, 32)
