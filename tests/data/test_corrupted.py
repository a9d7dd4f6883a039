"""ImageNet-C's layout: what is written is what ``corrupt_set`` gives, complete or absent, and is read as it was written."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ttaps.cli import main
from ttaps.data import CORRUPTIONS
from ttaps.data.corrupted import MANIFEST, corrupt_folder, open_corrupted_folder, stored_conditions
from ttaps.data.corruptions import corrupt_set
from ttaps.data.images import open_image_folder, split_folder
from ttaps.errors import TtapsError

SIZE, CHOSEN, LEVELS = 16, ("fog", "gaussian_noise"), (2, 5)
CONDITIONS = [(name, level) for name in CHOSEN for level in LEVELS]
SHAPES = {"cat/a.jpg": (40, 31), "cat/a.k.png": (16, 16), "dog/deep/b.webp": (20, 90), "dog/c.PNG": (33, 33)}


def write_image(path: Path, shape: tuple[int, int] = (20, 20), seed: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (*shape, 3), dtype=np.uint8)).save(path)
    return path


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for seed, (name, shape) in enumerate(SHAPES.items()):
        write_image(tmp_path / "photos" / name, shape, seed)
    return tmp_path / "photos"


def write(photos: Path, out: str = "photos-c", **options: Any) -> Path:
    return corrupt_folder(photos, photos.parent / out, CHOSEN, LEVELS, **{"size": SIZE, "workers": 1, **options})


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_files_are_what_corrupting_the_whole_set_gives(photos: Path) -> None:
    out = write(photos, seed=3)
    clean = open_image_folder(photos, SIZE).load()
    names = ["cat/a.jpg.png", "cat/a.k.png", "dog/c.PNG", "dog/deep/b.webp.png"]
    for name, level in CONDITIONS:
        expected = corrupt_set(clean.images.transpose(0, 2, 3, 1), name, level, seed=3)
        for file, image in zip(names, expected, strict=True):
            assert np.array_equal(np.asarray(Image.open(out / name / str(level) / file)), image)
    assert len(contents(out)) == len(CONDITIONS) * len(names) + 1


def test_it_is_read_in_the_order_of_the_clean_images(photos: Path) -> None:
    found = open_corrupted_folder(write(photos, "elsewhere"), CONDITIONS, SIZE)
    clean = open_image_folder(photos, SIZE)
    assert list(found.files) == clean.names  # also where other endings sort the files another way
    assert (found.name, found.classes, found.labels.tolist()) == ("photos-c", ("cat", "dog"), clean.labels.tolist())
    for name, level in CONDITIONS:
        expected = corrupt_set(clean.load().images.transpose(0, 2, 3, 1), name, level).transpose(0, 3, 1, 2)
        assert np.array_equal(np.stack([found.read(name, level, index) for index in range(4)]), expected)


def test_what_is_missing_is_written_and_nothing_else(photos: Path) -> None:
    out = write(photos)
    whole, lost = contents(out), out / "fog" / "5" / "cat" / "a.k.png"
    kept = out / "fog" / "2" / "cat" / "a.k.png"
    before = kept.stat().st_mtime_ns
    lost.rename(lost.with_name(f".{lost.name}.1.part"))  # as a killed process leaves it
    with pytest.raises(TtapsError, match=r"fog/5: 1 images .* such as cat/a\.k\.png\.\nComplete it"):
        open_corrupted_folder(out, CONDITIONS, SIZE)
    write(photos)
    assert contents(out) == whole
    assert kept.stat().st_mtime_ns == before


def test_what_was_killed_at_its_very_first_file_resumes(photos: Path) -> None:
    left = photos.parent / "photos-c" / f".{MANIFEST}.{2**30}.part"  # no process has such a number
    left.parent.mkdir()
    left.touch()
    assert not [name for name in contents(write(photos)) if name.endswith(".part")]


def test_several_processes_write_the_same(photos: Path) -> None:
    assert contents(write(photos, workers=2)) == contents(write(photos, "one", workers=1))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"size": 17}, "made with size 16, not 17"),
        ({"seed": 1}, "made with seed 0, not 1"),
        ({"size": 7}, "8 to 4096 pixels a side, not 7"),
        ({"out": "photos/classes"}, "whose sub-folders are classes"),
        ({"out": "other"}, "not written here"),
    ],
)
def test_what_would_be_mixed_is_refused(photos: Path, options: dict[str, Any], words: str) -> None:
    whole = contents(write(photos))
    write_image(photos.parent / "other" / "mine.png")
    with pytest.raises(TtapsError, match=words):
        write(photos, **options)
    write_image(photos / "cat" / "new.png")
    with pytest.raises(TtapsError, match="made with other images"):
        write(photos)
    assert contents(photos.parent / "photos-c") == whole


def test_two_images_never_become_one_file(photos: Path) -> None:
    write_image(photos / "cat" / "a.jpg.png")
    with pytest.raises(TtapsError, match=r"cat/a\.jpg\.png\.\nRename one"):
        write(photos)
    assert not (photos.parent / "photos-c").exists()


def test_the_layout_of_others_is_read_too(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = write(photos)
    (out / MANIFEST).unlink()
    assert stored_conditions(out) == {"fog": [2, 5], "gaussian_noise": [2, 5]}
    found = open_corrupted_folder(out, CONDITIONS, SIZE)
    assert (found.name, found.files[0]) == ("photos-c", "cat/a.jpg.png")
    assert open_corrupted_folder(out, CONDITIONS[1:], SIZE).digest == found.digest
    assert capsys.readouterr().err.count("weakens") == 0
    open_corrupted_folder(out, CONDITIONS, 8)
    assert "resized from 16x16 to 8x8 after they were corrupted" in " ".join(capsys.readouterr().err.split())
    (out / "gaussian_noise" / "5" / "cat" / "a.k.png").unlink()
    with pytest.raises(TtapsError, match=r"such as cat/a\.k\.png\.\nEvery corruption must have the same"):
        open_corrupted_folder(out, CONDITIONS, SIZE)
    with pytest.raises(TtapsError, match="has no snow at severity 5"):
        open_corrupted_folder(out, [("snow", 5)], SIZE)
    with pytest.raises(TtapsError, match=rf"'fog' is not a class\.\nGive .* such as {out / 'fog' / '2'}\."):
        open_image_folder(out)


def test_a_folder_may_have_splits(photos: Path, tmp_path: Path) -> None:
    for part in ("train", "val"):
        shutil.copytree(photos, tmp_path / "set" / part)
    whole = tmp_path / "set"
    assert split_folder(whole, "train") == whole / "train"
    assert split_folder(whole, "test") == whole / "val"
    (whole / "val").rename(whole / "test")
    assert split_folder(whole, "test") == whole / "test"
    write_image(whole / "train" / "locomotive.png")  # so it is a class
    assert split_folder(whole, "train") == split_folder(whole, "test") == whole
    assert split_folder(photos, "train") == photos


def test_the_command_writes_all_severities_of_the_papers_corruptions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_image(tmp_path / "one" / "cat" / "a.png")
    command = ["data", "corrupt", str(tmp_path / "one"), "--out", str(tmp_path / "c"), "--size", "8", "--workers", "1"]
    assert main(command) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "c")
    assert stored_conditions(tmp_path / "c") == {name: [1, 2, 3, 4, 5] for name in CORRUPTIONS}


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--corruptions", "fogg"), 2, "did you mean 'fog'"),
        (("--severity", "0"), 2, "Severity must be 1, 2, 3, 4 or 5, not 0"),
        (("--severity", "x"), 2, "--severity must be comma-separated whole numbers, not 'x'"),
        (("--workers", "0"), 2, "--workers must be at least 1"),
        (("--size", "0"), 2, "not 0"),
    ],
)
def test_wrong_options_get_a_sentence(
    photos: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], code: int, words: str
) -> None:
    assert main(["data", "corrupt", str(photos), "--out", str(photos.parent / "c"), *options]) == code
    shown = capsys.readouterr().err
    assert words in shown
    assert len(shown.strip().splitlines()) <= 2
