"""Evaluation: killed, resumed, doubled, sharded and merged, the rows are always the same."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from helpers.small_evaluation import CLASSES, GROUP, METHODS, results, small_benchmark, small_model, stored, stored_rows
from ttaps.adaptation import Source, Ttaps
from ttaps.data import EXTRA_CORRUPTIONS, ImageSet, split_train
from ttaps.data.corruptions import corrupt_set
from ttaps.data.sample import read_sample
from ttaps.errors import DataError, UsageError
from ttaps.evaluation.benchmark import clean_benchmark, open_benchmark
from ttaps.evaluation.plan import Item, Shard
from ttaps.evaluation.run import default_group, evaluate, make_row
from ttaps.evaluation.store import Store, merge

WORKER = Path(__file__).parents[1] / "helpers" / "small_evaluation.py"
SIDE = 100
ROWS = 4 * 18  # methods and seeds times images and corruptions


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Sums in another order would differ in the last bit."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the results of an evaluation that nothing happened to."""
    folder = tmp_path_factory.mktemp("whole")
    torch.set_num_threads(1)
    run(folder)
    return folder


def run(folder: Path, shard: str = "1/1", group: int = GROUP, limit: int | None = None) -> list[int]:
    data = small_benchmark()
    plan = data.plan(limit, Shard.parse(shard))
    return evaluate(small_model(), data, METHODS, (0, 1), folder=folder, plan=plan, group=group)


def start(folder: Path, *groups: str) -> subprocess.Popen[bytes]:
    """Start the same evaluation in another process and return when it is in the middle of it."""
    process = subprocess.Popen([sys.executable, str(WORKER), str(folder), *groups], stderr=subprocess.DEVNULL)
    while stored(folder) < 2 * GROUP:
        assert process.poll() is None
        time.sleep(0.02)
    return process


def test_every_image_is_a_row_of_its_own(whole: Path) -> None:
    found = results(whole)
    assert {key: len(rows) for key, rows in found.items()} == {
        (method, seed): 18 for method in ("source", "ttaps") for seed in (0, 1)
    }
    for before, after in zip(found["source", 0], found["ttaps", 0], strict=True):
        assert before.item == after.item
        assert len(after.predictions) == 3
        assert before.predictions[0] == after.predictions[0]
        assert before.confidence[0] == pytest.approx(after.confidence[0], abs=1e-6)
    assert found["source", 0] == found["source", 1]
    assert found["ttaps", 0] != found["ttaps", 1]


def test_results_from_before_a_setting_existed_are_continued(whole: Path, tmp_path: Path) -> None:
    with Store(whole, write=False) as store, Store(tmp_path) as older:
        for number, experiment in store.experiments().items():
            settings = {name: value for name, value in json.loads(experiment.settings).items() if name != "patience"}
            before = dataclasses.replace(experiment, settings=json.dumps(settings))
            older.add(older.experiment(before), stored_rows(store, number))
    assert run(tmp_path) == [1, 2, 3, 4]
    assert stored(tmp_path) == ROWS
    data = small_benchmark()
    other = evaluate(small_model(), data, [Ttaps(patience=1)], folder=tmp_path, plan=data.plan(1))
    assert other == [5]  # that setting makes a difference now


def test_a_spec_follows_the_presets_of_today(whole: Path, tmp_path: Path) -> None:
    """Settings are the identity: results whose spec names a preset that has changed since are continued and renamed."""
    merge([whole], tmp_path)
    with Store(tmp_path) as store:
        before = [experiment.spec for experiment in store.experiments().values()]
        store.rename(3, "ttaps:fast")
    assert run(tmp_path) == [1, 2, 3, 4]
    with Store(tmp_path, write=False) as store:
        assert [experiment.spec for experiment in store.experiments().values()] == before


def test_killed_and_resumed_gives_the_same_rows(whole: Path, tmp_path: Path) -> None:
    process = start(tmp_path, "4")
    process.kill()
    assert process.wait() == -9
    assert 0 < stored(tmp_path) < ROWS
    run(tmp_path)
    assert results(tmp_path) == results(whole)


def test_two_processes_at_once_give_the_same_rows(whole: Path, tmp_path: Path) -> None:
    process = start(tmp_path)
    run(tmp_path)
    assert process.wait() == 0
    assert results(tmp_path) == results(whole)


def test_nothing_is_done_twice(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    merge([whole], tmp_path)
    monkeypatch.setattr(Ttaps, "adapt", None)
    monkeypatch.setattr(Source, "adapt", None)
    assert run(tmp_path) == [1, 2, 3, 4]


def test_a_limit_can_be_raised(whole: Path, tmp_path: Path) -> None:
    run(tmp_path, limit=2)
    assert stored(tmp_path) == ROWS // 3
    run(tmp_path)
    assert results(tmp_path) == results(whole)


def test_shards_merged_are_the_whole(whole: Path, tmp_path: Path) -> None:
    for index in (1, 2, 3):
        run(tmp_path / str(index), shard=f"{index}/3")
    assert merge([tmp_path / str(index) for index in (1, 2, 3)], tmp_path / "all") == ROWS
    assert results(tmp_path / "all") == results(whole)


@pytest.mark.parametrize("group", [1, 8])
def test_the_size_of_groups_changes_nothing(whole: Path, tmp_path: Path, group: int) -> None:
    run(tmp_path, group=group)
    assert results(tmp_path) == results(whole)


def test_another_setting_is_another_experiment(tmp_path: Path) -> None:
    with_settings = [Ttaps(steps=1, num_pairs=2, lr=lr) for lr in (0.1, 0.2)]
    numbers = evaluate(small_model(), small_benchmark(2), with_settings, folder=tmp_path)
    with Store(tmp_path, write=False) as store:
        settings = [json.loads(store.experiments()[number].settings) for number in numbers]
        assert [len(list(stored_rows(store, number))) for number in numbers] == [6, 6]
    assert [values["lr"] for values in settings] == [0.1, 0.2]
    assert settings[0]["views"]["scale"] == [0.14, 1.0]


def test_a_report_can_know_how_the_model_was_trained(tmp_path: Path) -> None:
    model = dataclasses.replace(small_model(), info={"objective": "jt", "seed": 3, "hours": 0.1})
    evaluate(model, small_benchmark(1), [Source()], folder=tmp_path)
    with Store(tmp_path, write=False) as store:
        facts = store.models()[model.fingerprint]
    assert (facts["objective"], facts["seed"], facts["model"]["num_prototypes"]) == ("jt", 3, 5)
    assert "hours" not in facts


def test_a_destroyed_network_predicts_nothing() -> None:
    trace = np.array([[0.25, 0.75], [np.nan, np.nan]], dtype=np.float32)
    assert make_row(Item("fog", 5, 0), 0, trace, 0.0).predictions == (1, -1)


@pytest.mark.parametrize(("threads", "group"), [(1, 8), (3, 9), (6, 12), (8, 8), (32, 32)])
def test_no_thread_is_left_without_an_image(threads: int, group: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.get_num_threads", lambda: threads)
    assert default_group(small_model().network) == group


def test_other_classes_are_refused_and_another_order_is_understood() -> None:
    model, data = small_model(), small_benchmark()
    for classes in (("cat", "dog", "emu"), ("0", "1", "2", "3")):
        with pytest.raises(UsageError, match=classes[-1] if "emu" in classes else "4 classes"):
            dataclasses.replace(data, classes=classes).aligned_to(model)
    with pytest.raises(UsageError, match=r"knows 3 .*\nName those of your network: --classes"):
        data.aligned_to(dataclasses.replace(model, classes=("0", "1", "2")))
    turned = dataclasses.replace(data, classes=("owl", "cat", "dog")).aligned_to(model)
    assert [CLASSES[label] for label in turned.labels] == [("owl", "cat", "dog")[label] for label in data.labels]
    numbered = dataclasses.replace(data, classes=("0", "1", "2")).aligned_to(model)
    assert (numbered.labels == data.labels).all()
    assert numbered.classes == CLASSES


def test_classes_of_a_part_and_with_numbers_for_names_are_matched_by_name() -> None:
    data = small_benchmark()
    some = dataclasses.replace(data, classes=("owl", "dog"), labels=data.labels % 2).aligned_to(small_model())
    assert [CLASSES[label] for label in some.labels] == [("owl", "dog")[label] for label in data.labels % 2]
    twisted = dataclasses.replace(small_model(), classes=("0", "2", "1"))  # as folders 0, 1, 10, 11, 2, ... are read
    numbered = dataclasses.replace(data, classes=("0", "1", "2")).aligned_to(twisted)
    assert [twisted.classes[label] for label in numbered.labels] == [str(label) for label in data.labels]


def test_images_of_another_size_are_refused() -> None:
    large = ImageSet("large", np.zeros((3, 3, 9, 9), np.uint8), np.arange(3), CLASSES)
    with pytest.raises(UsageError, match=r"\(3, 9, 9\)"):
        clean_benchmark(large).aligned_to(small_model())


def test_a_set_of_ones_own_is_known_by_its_content_not_its_place(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
    (tmp_path / "elsewhere").mkdir()
    for folder in (tmp_path, tmp_path / "elsewhere"):
        np.savez(folder / "mine.npz", images=images, labels=np.arange(6) % 3)
    here, there = (open_benchmark(str(folder / "mine.npz"), size=8) for folder in (tmp_path, tmp_path / "elsewhere"))
    assert (here.name, here.digest) == (there.name, there.digest) == ("mine.npz", "13025daa7e56")
    (number,) = evaluate(small_model(), here, [Source()], folder=tmp_path / "results")
    with Store(tmp_path / "results", write=False) as store:
        assert sorted(row.item for row in stored_rows(store, number)) == [("clean", 0, image) for image in range(6)]
    images[0, 0, 0, 0] ^= 1
    np.savez(tmp_path / "mine.npz", images=images, labels=np.arange(6) % 3)
    assert open_benchmark(str(tmp_path / "mine.npz"), size=8).digest != here.digest


def test_images_in_a_folder_or_a_file_are_the_same_set(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
    for index, image in enumerate(images):
        path = tmp_path / "folder" / CLASSES[index // 2] / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    np.savez_compressed(tmp_path / "file.npz", images=images, labels=np.arange(6) // 2, classes=np.array(CLASSES))
    folder, file = (open_benchmark(str(tmp_path / name), size=8) for name in ("folder", "file.npz"))
    assert folder.digest == file.digest
    assert (folder.labels.tolist(), folder.classes) == (file.labels.tolist(), file.classes)
    items = [Item("clean", 0, image) for image in (5, 0, 3)]
    assert torch.equal(folder.read(items), file.read(items))


def peak(path: Path, results: Path) -> int:
    """Return the most memory, in bytes, that Python and numpy had while some of a set's images were evaluated."""
    tracemalloc.start()
    data = open_benchmark(str(path), size=SIDE)
    evaluate(small_model(SIDE), data, [Source()], folder=results, plan=data.plan(16))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


@pytest.mark.parametrize("kind", ["folder", "npy"])
def test_memory_does_not_grow_with_the_number_of_images(kind: str, tmp_path: Path) -> None:
    """Five times as many images, 30,000 bytes each, may cost 600 bytes each more: names, labels, what is done."""
    peaks: list[int] = []
    for count in (60, 60, 300):  # the first time, things are set up once and for all
        path = tmp_path / f"{count}"
        images = np.random.default_rng(0).integers(0, 256, (count, SIDE, SIDE, 3), dtype=np.uint8)
        if kind == "folder":
            for index, image in enumerate(images):
                (path / CLASSES[index % 3]).mkdir(parents=True, exist_ok=True)
                Image.fromarray(image).save(path / CLASSES[index % 3] / f"{index}.bmp")
        else:
            path.mkdir(exist_ok=True)
            for name, array in (("images", images), ("labels", np.arange(count) % 3), ("classes", np.array(CLASSES))):
                np.save(path / f"{name}.npy", array)
        peaks.append(peak(path, tmp_path / f"results {len(peaks)}"))
    assert peaks[2] - peaks[1] < 240 * 600


def test_the_sample_is_read_image_by_image() -> None:
    data = open_benchmark("sample", corruptions=["fog", "snow", "fog"])
    assert (data.corruptions, data.severities, len(data.labels)) == (("fog", "snow"), (5,), 200)
    images = data.read([Item("fog", 5, 3), Item("snow", 5, 199)])
    assert torch.equal(images[0], torch.from_numpy(read_sample("fog").images[3].copy()))
    assert torch.equal(images[1], torch.from_numpy(read_sample("snow").images[199].copy()))


def test_validation_images_are_held_out_and_each_is_corrupted_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 3, 32, 32), dtype=np.uint8)
    train = ImageSet("cifar10", pixels, np.arange(20) % 3, CLASSES)
    monkeypatch.setattr("ttaps.evaluation.benchmark.load_set", lambda name, root, split: train)
    data = open_benchmark("cifar10-val-c", severities=[4])
    held_out = split_train(20)[1]
    assert data.corruptions == EXTRA_CORRUPTIONS
    assert data.labels.tolist() == train.labels[held_out].tolist()
    for corruption in data.corruptions:
        whole = corrupt_set(pixels.transpose(0, 2, 3, 1), corruption, 4, seed=1)[held_out].transpose(0, 3, 1, 2)
        alone = data.read([Item(corruption, 4, image) for image in range(4)])
        assert np.array_equal(alone.numpy(), whole)


def test_corruptions_of_different_images_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str, root: Path | None, corruption: str, severity: int) -> ImageSet:
        return ImageSet(name, np.zeros((2, 3, 8, 8), np.uint8), np.array([0, len(corruption) % 2]), CLASSES)

    monkeypatch.setattr("ttaps.evaluation.benchmark.load_set", load)
    with pytest.raises(DataError, match="snow at severity 5 has other labels than fog"):
        open_benchmark("cifar10-c", corruptions=["fog", "snow"])


def test_a_wrong_choice_is_named() -> None:
    with pytest.raises(UsageError, match="did you mean 'fog'"):
        open_benchmark("cifar10-c", corruptions=["fogg"])
    with pytest.raises(UsageError, match="severity 6"):
        open_benchmark("cifar10-c", severities=[6])
    assert open_benchmark("sample", severities="all").severities == (5,)
    with pytest.raises(UsageError, match="no corruptions"):
        open_benchmark("cifar10", corruptions=["fog"])
    with pytest.raises(UsageError, match="not 0"):
        evaluate(small_model(), small_benchmark(), [Source()], folder=Path("never"), group=0)
