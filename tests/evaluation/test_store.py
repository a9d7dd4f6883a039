"""The store: no row twice, nothing mixed, nothing lost, and a clear word about files that are not what they should be."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, replace
from math import isnan, nan
from pathlib import Path
from threading import Barrier, Timer

import pytest

from helpers.small_evaluation import stored_rows
from ttaps.errors import TtapsError
from ttaps.evaluation.store import FILE, Experiment, Row, Store, merge

FIRST = Experiment("net", "f00", "cifar10-c", "d1", "ttaps[lr=0.1]", '{"lr":0.1}', 0)


def row(image: int = 0, corruption: str = "fog", label: int = 1, last: int = 1) -> Row:
    return Row(corruption, 5, image, label, (0, last), (0.5, 0.75), (0.25, 0.125), 0.5, f"cat/{image}.png")


def test_rows_come_back_as_they_went_in(tmp_path: Path) -> None:
    with Store(tmp_path / "new" / "folder") as store:
        number = store.experiment(FIRST)
        assert store.add(number, [row(3), row(1), row(1, "blur")]) == 3
    with Store(tmp_path / "new" / "folder", write=False) as store:
        assert store.experiments() == {number: FIRST}
        assert list(stored_rows(store, number)) == [row(1, "blur"), row(1), row(3)]
    assert [path.name for path in (tmp_path / "new" / "folder").iterdir()] == [FILE]


def test_a_row_is_stored_once_and_the_first_one_stays(tmp_path: Path) -> None:
    with Store(tmp_path) as store, Store(tmp_path) as second:
        number = store.experiment(FIRST)
        assert second.experiment(FIRST) == number
        assert store.add(number, [row(last=1)]) == 1
        assert second.add(number, [row(last=2), row(7)]) == 1
        assert list(stored_rows(store, number)) == [row(last=1), row(7)]


@pytest.mark.parametrize("change", ["model", "fingerprint", "data", "digest", "spec", "settings", "protocol", "seed"])
def test_any_change_is_another_experiment(tmp_path: Path, change: str) -> None:
    other = Experiment(**{**asdict(FIRST), change: 1 if change == "seed" else "other"})
    with Store(tmp_path) as store:
        one, two = store.experiment(FIRST), store.experiment(other)
        store.add(one, [row()])
        assert list(stored_rows(store, two)) == []
        assert store.experiments() == {one: FIRST, two: other}


def test_the_same_settings_written_another_way_are_the_same_experiment(tmp_path: Path) -> None:
    """A preset that changed since gives the same settings another spec."""
    with Store(tmp_path) as store:
        number = store.experiment(FIRST)
        assert store.experiment(replace(FIRST, spec="ttaps:old")) == number
        store.rename(number, "ttaps:new")
        assert store.experiments()[number] == replace(FIRST, spec="ttaps:new")


def test_a_network_that_was_destroyed_has_no_confidence(tmp_path: Path) -> None:
    nothing = replace(row(), predictions=(0, -1), confidence=(0.5, nan), label_probability=(0.25, nan))
    with Store(tmp_path) as store:
        store.add(store.experiment(FIRST), [nothing])
        (found,) = stored_rows(store, 1)
        assert list(store.select("SELECT after, confidence_before, confidence_after FROM results")) == [(-1, 0.5, None)]
    assert found.predictions == (0, -1)
    assert [isnan(part) for part in (*found.confidence, *found.label_probability)] == [False, True, False, True]


def test_a_new_store_waits_for_whoever_is_making_it(tmp_path: Path) -> None:
    """Switching the log on needs the file alone, and sqlite does not wait for that by itself."""
    with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(TtapsError, match=r"no results in .* yet"):
            Store(tmp_path, write=False)
        leaving = Timer(0.2, other.execute, ["ROLLBACK"])
        leaving.start()
        Store(tmp_path).close()
        leaving.join()


def test_a_new_store_may_be_opened_by_many_at_once(tmp_path: Path) -> None:
    """As torchrun's processes do: one makes the tables, the others wait for it, and nobody is told that the file is locked."""
    ready = Barrier(4, timeout=30)

    def store_one(image: int) -> int:
        added = 0
        for attempt in range(10):
            ready.wait()
            with Store(tmp_path / str(attempt)) as store:
                added += store.add(store.experiment(FIRST), [row(image)])
        return added

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(store_one, range(4))) == [10] * 4
    for attempt in range(10):
        with Store(tmp_path / str(attempt), write=False) as store:
            assert [one.image for one in stored_rows(store, 1)] == [0, 1, 2, 3]


def test_a_group_of_rows_is_stored_whole_or_not_at_all(tmp_path: Path) -> None:
    def failing() -> list[Row]:
        raise RuntimeError("in flight")

    with Store(tmp_path) as store:
        number = store.experiment(FIRST)
        with pytest.raises(RuntimeError):
            store.add(number, (one for part in ([row(1)], None) for one in (part or failing())))
        assert list(stored_rows(store, number)) == []
        assert store.add(number, [row(1)]) == 1


def test_merging_adds_what_is_new(tmp_path: Path) -> None:
    with Store(tmp_path / "a") as a, Store(tmp_path / "b") as b:
        a.add(a.experiment(replace(FIRST, seed=9)), [row(5)])
        a.add(a.experiment(FIRST), [row(0), row(1)])
        b.add(b.experiment(FIRST), [row(1), row(2)])
    assert merge([tmp_path / "a", tmp_path / "b"], tmp_path / "c") == 4
    assert merge([tmp_path / "a", tmp_path / "b"], tmp_path / "c") == 0
    with Store(tmp_path / "c", write=False) as c:
        rows = {experiment.seed: list(stored_rows(c, number)) for number, experiment in c.experiments().items()}
    assert rows == {9: [row(5)], 0: [row(0), row(1), row(2)]}
    with pytest.raises(TtapsError, match="no results"):
        merge([tmp_path / "nowhere"], tmp_path / "c")


def test_what_is_known_about_a_model_is_kept_and_merged(tmp_path: Path) -> None:
    with Store(tmp_path / "old") as old:
        assert old.models() == {}
    with Store(tmp_path / "a") as a:
        a.describe_model("f00", {"objective": "jt"})
        a.describe_model("f00", {"objective": "jt+ent", "model": {"num_prototypes": 300}}, ("cat", "dog"))
    merge([tmp_path / "a", tmp_path / "old"], tmp_path / "c")
    with Store(tmp_path / "c", write=False) as c:
        assert c.models() == {"f00": {"objective": "jt+ent", "model": {"num_prototypes": 300}}}
        assert c.classes() == {"f00": ("cat", "dog")}


def test_results_can_be_read_where_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(tmp_path) as store:
        store.add(store.experiment(FIRST), [row()])
        monkeypatch.setattr("os.access", lambda path, mode: False)
        with Store(tmp_path, write=False) as reader:  # rows are still in the writer's log
            assert list(stored_rows(reader, 1)) == [row()]
    with Store(tmp_path, write=False) as reader:
        assert list(stored_rows(reader, 1)) == [row()]


def test_nothing_is_made_where_one_only_reads(tmp_path: Path) -> None:
    with pytest.raises(TtapsError, match="no results in"):
        Store(tmp_path / "typo", write=False)
    assert not (tmp_path / "typo").exists()


@pytest.mark.parametrize("write", [True, False])
def test_other_files_are_refused_and_left_alone(tmp_path: Path, write: bool) -> None:
    path = tmp_path / FILE
    path.write_text("these are my notes\n" * 100)
    with pytest.raises(TtapsError, match="no results file"):
        Store(tmp_path, write)
    assert path.read_text().startswith("these are my notes")
    path.unlink()
    _sql(path, "CREATE TABLE recipes (name)")
    before = path.read_bytes()
    with pytest.raises(TtapsError, match="not a file of ttaps results"):
        Store(tmp_path, write)
    assert path.read_bytes() == before


def test_another_format_is_named(tmp_path: Path) -> None:
    Store(tmp_path).close()
    for version in (1, 99):
        _sql(tmp_path / FILE, f"PRAGMA user_version = {version}")
        with pytest.raises(TtapsError, match=f"format {version}, this version of ttaps writes format 2"):
            Store(tmp_path)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        number = store.experiment(FIRST)
        store.add(number, map(row, range(500)))
    content = bytearray((tmp_path / FILE).read_bytes())
    content[8192:] = b"\x55" * (len(content) - 8192)
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(TtapsError, match="damaged"), Store(tmp_path, write=False) as store:
        list(stored_rows(store, number))


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        number = store.experiment(FIRST)
        store.add(number, [row(0)])
        store._connection.execute("PRAGMA max_page_count = 5")
        with pytest.raises(TtapsError, match="full"):
            store.add(number, map(row, range(1, 1000)))
        assert list(stored_rows(store, number)) == [row(0)]


def test_a_folder_that_is_a_file_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("")
    with pytest.raises(TtapsError, match="Cannot write"):
        Store(tmp_path / "results")


def _sql(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()
