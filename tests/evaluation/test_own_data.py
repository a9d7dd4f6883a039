"""Images of one's own under corruptions: while they are evaluated or from files, in whatever form, the rows are the same."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import ttaps
from helpers.small_evaluation import CLASSES, METHODS, results, small_model, stored
from ttaps.data import CORRUPTIONS, ImageSet, load_set
from ttaps.data.corrupted import MANIFEST, corrupt_folder
from ttaps.data.corruptions import corrupt_set
from ttaps.data.images import open_image_folder
from ttaps.errors import TtapsError, UsageError
from ttaps.evaluation.benchmark import open_benchmark
from ttaps.evaluation.plan import EVERYTHING, Item, Shard
from ttaps.evaluation.run import evaluate
from ttaps.evaluation.store import Store, merge
from ttaps.report.columns import load_results
from ttaps.report.figures.images import find_flips

SIDE = 8
CHOSEN: dict[str, Any] = {"corruptions": ["glass_blur", "snow"], "severities": [1, 4]}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for index in range(6):
        path = tmp_path / "photos" / CLASSES[index % 3] / f"{index}.{'jpg' if index % 2 else 'png'}"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (9 + index, 14, 3), dtype=np.uint8)).save(path)
    return tmp_path / "photos"


def run(path: Path, folder: Path, shard: Shard = EVERYTHING, group: int | None = None) -> Any:
    """Evaluate, and return every row with its file."""
    data = open_benchmark(str(path), size=SIDE, **CHOSEN)
    evaluate(small_model(), data, METHODS, folder=folder, plan=data.plan(shard=shard), group=group)
    return results(folder)


def test_rows_of_files_are_those_of_images_corrupted_on_the_fly(photos: Path, tmp_path: Path) -> None:
    files = corrupt_folder(photos, tmp_path / "written", *CHOSEN.values(), size=SIDE, workers=1)
    found = run(photos, tmp_path / "rows")
    assert {row.file for row in found["ttaps", 0]} == {
        f"{CLASSES[index % 3]}/{index}.{'jpg' if index % 2 else 'png'}" for index in range(6)
    }
    assert len(found["ttaps", 0]) == 6 * 4
    assert run(files, tmp_path / "other") == found
    run(files, tmp_path / "rows")
    assert stored(tmp_path / "rows") == 2 * 6 * 4  # the same experiments: nothing was done again


def test_order_groups_and_shards_change_no_row(photos: Path, tmp_path: Path) -> None:
    whole = run(photos, tmp_path / "whole", group=5)
    for index in range(2):
        run(photos, tmp_path / f"{index}", shard=Shard(index, 2))
    merge([tmp_path / "1", tmp_path / "0"], tmp_path / "merged")
    assert results(tmp_path / "merged") == whole


def test_folders_arrays_sets_and_pairs_are_corrupted_alike(photos: Path, tmp_path: Path) -> None:
    clean = open_image_folder(photos, SIDE).load()
    arrays: dict[str, Any] = {"images": clean.images, "labels": clean.labels, "classes": np.array(clean.classes)}
    np.savez(tmp_path / "photos.npz", **arrays)
    (tmp_path / "arrays").mkdir()
    for name, array in arrays.items():
        np.save(tmp_path / "arrays" / f"{name}.npy", array)
    model = small_model()
    ways: list[Any] = [photos, tmp_path / "photos.npz", tmp_path / "arrays", clean, (clean.images, clean.labels)]
    found = []
    for data in ways:
        rows = ttaps.evaluate(model, data, "source", **CHOSEN, out=tmp_path / "rows").to_pandas()
        assert len(rows) == 6 * 4
        columns = rows.sort_values(["corruption", "severity", "image"], ignore_index=True)
        found.append(columns[["corruption", "severity", "image", "label", "before", "confidence_before"]])
    assert all(one.equals(found[0]) for one in found)


def test_pixels_are_a_function_of_corruption_severity_and_index(photos: Path) -> None:
    clean = open_image_folder(photos, SIDE).load()
    data = open_benchmark(str(photos), size=SIDE, corruptions=["all"], severities="all")
    assert (data.name, data.corruptions, data.severities) == ("photos-c", CORRUPTIONS, (1, 2, 3, 4, 5))
    expected = corrupt_set(clean.images.transpose(0, 2, 3, 1), "fog", 3).transpose(0, 3, 1, 2)
    assert np.array_equal(data.read([Item("fog", 3, index) for index in (4, 1)]).numpy(), expected[[4, 1]])


def test_arrays_of_any_size_are_resized_before_they_are_corrupted(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 3, 20, 30), dtype=np.uint8)
    data = ImageSet("wide", images, np.arange(3), CLASSES)
    for index, image in enumerate(images):
        (tmp_path / "wide" / CLASSES[index]).mkdir(parents=True)
        Image.fromarray(image.transpose(1, 2, 0)).save(tmp_path / "wide" / CLASSES[index] / "a.png")
    found = [ttaps.evaluate(small_model(), one, "source", corruptions="fog") for one in (data, tmp_path / "wide")]
    assert found[0].data == found[1].data == "wide-c"
    first, second = (one.to_pandas().drop(columns=["seconds", "file"]) for one in found)
    assert first.equals(second)


def test_without_corruptions_nothing_is_corrupted(photos: Path) -> None:
    data = open_benchmark(str(photos), size=SIDE)
    assert (data.name, data.corruptions, data.severities) == ("photos", ("clean",), (0,))
    assert np.array_equal(data.pixels(Item("clean", 0, 2)), open_image_folder(photos, SIDE).read(2))


def test_imagenet_cs_layout_has_what_its_folders_say(photos: Path, tmp_path: Path) -> None:
    out = corrupt_folder(photos, tmp_path / "c", ("fog", "saturate"), (1, 3), size=SIDE, workers=1)
    (out / MANIFEST).unlink()
    data = open_benchmark(str(out), size=SIDE)
    assert (data.name, data.corruptions, data.severities) == ("c", ("fog",), (3,))
    assert open_benchmark(str(out), size=SIDE, corruptions=["saturate"], severities="all").severities == (1, 3)
    for wrong, words in (
        ({"corruptions": ["snow"]}, "no corruption 'snow'"),
        ({"severities": [5]}, "choose from 1, 3"),
    ):
        with pytest.raises(UsageError, match=words):
            open_benchmark(str(out), size=SIDE, **wrong)


def test_evaluate_takes_the_second_split_and_train_the_first(photos: Path, tmp_path: Path) -> None:
    for part in ("train", "test"):
        shutil.copytree(photos, tmp_path / "set" / part)
    (tmp_path / "set" / "test" / "cat" / "0.png").unlink()
    assert len(open_benchmark(str(tmp_path / "set"), size=SIDE).labels) == 5
    assert open_benchmark(str(tmp_path / "set"), size=SIDE).name == "set"
    assert len(load_set(str(tmp_path / "set"), split="train", size=SIDE)) == 6


def test_severities_alone_are_refused(photos: Path) -> None:
    with pytest.raises(UsageError, match="severities need corruptions"):
        open_benchmark(str(photos), severities=[3], size=SIDE)
    with pytest.raises(UsageError, match="cifar10-c has"):
        open_benchmark("cifar10", corruptions=["fog"])


@pytest.mark.parametrize("way", ["on the fly", "files", "clean", "moved"])
def test_a_report_finds_the_images_wherever_they_lie(
    photos: Path, tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    data, chosen = photos, {} if way == "clean" else CHOSEN
    if way == "files":
        data = corrupt_folder(photos, tmp_path / "c", *CHOSEN.values(), size=SIDE, workers=1)
    evaluate(small_model(), open_benchmark(str(data), size=SIDE, **chosen), METHODS[:1], folder=tmp_path / "rows")
    monkeypatch.chdir(tmp_path / "elsewhere")
    root = None
    if way == "moved":
        root = tmp_path / "elsewhere"
        photos.rename(root / "photos")
    stored = load_results([tmp_path / "rows"])
    rows = stored.rows[stored.rows["severity"] == stored.rows["severity"].max()]
    rows = rows.assign(before=(rows["label"] + 1) % 3, after=rows["label"], correct_before=False, correct_after=True)
    tiles, problem = find_flips(rows, stored, root, {})
    assert problem == ""
    opened = open_benchmark(str(root / "photos" if root else data), size=SIDE, **chosen)
    by_file = {opened.file(index): index for index in range(6)}
    for tile in tiles:
        item = Item(tile.corruption, int(rows["severity"].iat[0]), by_file[tile.file])
        assert np.array_equal(tile.image, opened.pixels(item))
        assert tile.truth == tile.after == tile.file.split("/")[0]


def test_results_from_before_sources_were_kept_are_read(photos: Path, tmp_path: Path) -> None:
    run(photos, tmp_path / "rows")
    with Store(tmp_path / "rows") as store:
        (kept,) = store.sources().values()
        assert kept[0] == str(photos)
        store._write("DROP TABLE sources", [()])
        assert store.sources() == {}
    assert load_results([tmp_path / "rows"]).sources == {}
    with pytest.raises(TtapsError, match="no results"):
        load_results([tmp_path])
