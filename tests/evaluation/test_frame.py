"""Stored rows as frames and files: every image once, whichever folders hold it, with the names other programs need."""

from __future__ import annotations

import math
import re
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from helpers.small_evaluation import METHODS, small_benchmark, small_model
from ttaps.cli import main
from ttaps.errors import TtapsError
from ttaps.evaluation.frame import COLUMNS, TRACE_COLUMNS, load_rows, load_traces
from ttaps.evaluation.run import evaluate
from ttaps.evaluation.statistics import AVERAGE, accuracy_table
from ttaps.evaluation.store import FILE, Experiment, Row, Store

FIRST = Experiment("net", "f00", "cifar10-c", "d1", "ttaps:tuned", "{}", 0)
DOCUMENT = Path(__file__).parents[2] / "docs" / "evaluation.md"


def row(image: int = 0, corruption: str = "fog", last: int = 1) -> Row:
    return Row(corruption, 5, image, 1, (0, last), (0.5, 0.75), (0.25, 0.125), 0.5, f"dog/{image}.png", (0.75, 1.5))


def fill(folder: Path, rows: Sequence[Row], experiment: Experiment = FIRST) -> Path:
    facts = {"objective": "jt+ent", "seed": 3, "model": {"num_prototypes": 300}}
    with Store(folder) as store:
        store.describe_model("f00", facts, ("cat", "dog", "owl"))
        store.add(store.experiment(experiment), rows)
    return folder


def test_every_image_is_a_row_with_all_that_is_known(tmp_path: Path) -> None:
    rows = load_rows([fill(tmp_path, [row(7, last=2), row(3, "snow")])])
    assert list(rows.columns) == COLUMNS
    assert rows.iloc[0].to_dict() == {
        "model": "net",
        "fingerprint": "f00",
        "objective": "jt+ent",
        "training_seed": 3,
        "num_prototypes": 300,
        "data": "cifar10-c",
        "digest": "d1",
        "spec": "ttaps:tuned",
        "method": "ttaps",
        "protocol": "episodic",
        "seed": 0,
        "corruption": "fog",
        "severity": 5,
        "image": 7,
        "file": "dog/7.png",
        "label": 1,
        "before": 0,
        "after": 2,
        "confidence_before": 0.5,
        "confidence_after": 0.75,
        "correct_before": False,
        "correct_after": False,
        "nll_before": math.log(4),
        "nll_after": math.log(8),
        "brier_before": 0.75,
        "brier_after": 1.5,
        "seconds": 0.5,
        "steps": 1,
    }
    assert rows["correct_after"].tolist() == [False, True]
    with Store(tmp_path, write=False) as store:
        assert store.classes() == {"f00": ("cat", "dog", "owl")}


def test_a_model_of_which_nothing_is_known(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.add(store.experiment(FIRST), [row()])
    assert load_rows([tmp_path])[["objective", "training_seed", "num_prototypes"]].to_numpy().tolist() == [["", -1, 0]]


def test_an_experiment_in_several_folders_is_one(tmp_path: Path) -> None:
    a, b = fill(tmp_path / "a", [row(0), row(1)]), fill(tmp_path / "b", [row(1), row(2)])
    other = fill(tmp_path / "c", [row(1)], replace(FIRST, seed=1))
    assert load_rows([a, b])["image"].tolist() == [0, 1, 2]
    assert load_traces([b, a])["image"].tolist() == [1, 1, 2, 2, 0, 0]
    assert len(load_rows([a, b, other])) == 4


def test_every_step_is_a_row(tmp_path: Path) -> None:
    source = replace(FIRST, spec="source")
    fill(tmp_path, [row(7, last=2)])
    fill(tmp_path, [Row("fog", 5, 7, 1, (1,), (0.5,), (0.5,), 0.1)], source)
    traces = load_traces([tmp_path])
    assert list(traces.columns) == TRACE_COLUMNS
    names = ["spec", "image", "step", "prediction", "confidence", "correct", "label_probability", "nll"]
    assert traces[names].to_numpy().tolist() == [
        ["source", 7, 0, 1, 0.5, True, 0.5, math.log(2)],
        ["ttaps:tuned", 7, 0, 0, 0.5, False, 0.25, math.log(4)],
        ["ttaps:tuned", 7, 1, 2, 0.75, False, 0.125, math.log(8)],
    ]


def test_results_from_before_there_were_brier_scores_are_read_and_merged(tmp_path: Path) -> None:
    fill(tmp_path, [replace(row(0), brier=()), row(1)])
    rows = load_rows([tmp_path])
    assert rows["brier_after"].isna().tolist() == [True, False]
    assert (rows["brier_after"][1], rows["steps"].tolist()) == (1.5, [1, 1])
    assert rows["nll_after"].tolist() == [math.log(8)] * 2
    assert load_traces([tmp_path])["prediction"].tolist() == [0, 1, 0, 1]


def test_a_probability_that_is_none_or_not_a_number_has_a_large_finite_loss(tmp_path: Path) -> None:
    none = replace(row(0), label_probability=(0.0, float("nan")))
    rows = load_rows([fill(tmp_path, [none])])
    assert rows[["nll_before", "nll_after"]].to_numpy().ravel() == pytest.approx([87.3365, 87.3365], abs=1e-3)


def test_results_without_an_image_are_reported(tmp_path: Path) -> None:
    fill(tmp_path, [])
    for load in (load_rows, load_traces):
        with pytest.raises(TtapsError, match="No image has been evaluated yet in"):
            load([tmp_path])


def test_frames_need_no_torch(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from ttaps.evaluation.frame import load_rows; "
        "from ttaps.evaluation.statistics import accuracy_table; "
        "print(accuracy_table(load_rows([Path(sys.argv[1])])).shape, 'torch' in sys.modules)"
    )
    command = [sys.executable, "-c", script, str(fill(tmp_path, [row()]))]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "(2, 22) False\n"


def exported(folder: Path, *options: str, kind: str = "csv") -> pd.DataFrame:
    path = folder / f"table.{kind}"
    assert main(["results", "export", str(folder), str(path), *options]) == 0
    return pd.read_csv(path, keep_default_na=False) if kind == "csv" else pd.read_parquet(path)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_the_table_for_other_programs(kind: str, tmp_path: Path) -> None:
    fill(tmp_path, [row(0), row(1), row(2), row(3, last=2), row(0, "snow")])
    table = exported(tmp_path, kind=kind)
    names = ["spec", "protocol", "corruption", "severity", "n", "before", "after", "fixed"]
    assert table[names].to_numpy().tolist() == [
        ["ttaps:tuned", "episodic", "fog", 5, 4, 0.0, 75.0, 3],
        ["ttaps:tuned", "episodic", "snow", 5, 1, 0.0, 100.0, 1],
        ["ttaps:tuned", "episodic", AVERAGE, 0, 5, 0.0, 87.5, 4],
    ]
    steps = exported(tmp_path, "--steps", kind=kind)
    fog = steps[steps["corruption"] == "fog"]
    assert fog[["step", "n", "before", "after"]].to_numpy().tolist() == [[0, 4, 0.0, 0.0], [1, 4, 0.0, 75.0]]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_every_image_for_other_programs(kind: str, tmp_path: Path) -> None:
    fill(tmp_path, [row(7, last=2), row(3, "snow", last=-1)])
    images = exported(tmp_path, "--images", kind=kind)
    names = ["corruption", "image", "file", "label", "label_name", "before_name", "after", "after_name"]
    assert images[names].to_numpy().tolist() == [
        ["fog", 7, "dog/7.png", 1, "dog", "cat", 2, "owl"],
        ["snow", 3, "dog/3.png", 1, "dog", "cat", -1, ""],
    ]
    steps = exported(tmp_path, "--images", "--steps", kind=kind)
    names = ["image", "file", "step", "prediction", "prediction_name", "confidence", "label_probability"]
    assert steps[names].to_numpy().tolist()[:2] == [
        [7, "dog/7.png", 0, 0, "cat", 0.5, 0.25],
        [7, "dog/7.png", 1, 2, "owl", 0.75, 0.125],
    ]


def test_another_kind_of_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["results", "export", str(tmp_path), str(tmp_path / "table.xlsx")]) == 2
    assert "must end in .csv or .parquet" in capsys.readouterr().err


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(frame: pd.DataFrame, *arguments: object, **options: object) -> None:
        raise ImportError("no pyarrow")

    monkeypatch.setattr(pd.DataFrame, "to_parquet", missing)
    assert main(["results", "export", str(fill(tmp_path, [row()])), str(tmp_path / "table.parquet")]) == 1
    assert "pip install 'ttaps[figures]'" in capsys.readouterr().err
    assert not (tmp_path / "table.parquet").exists()


def test_the_query_of_the_document_gives_the_table(tmp_path: Path) -> None:
    """Somebody with sqlite3 gets accuracy before and after with one query and none of our code."""
    evaluate(small_model(), small_benchmark(), METHODS, (0, 1), folder=tmp_path)
    (query,) = re.findall(r"```sql\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), flags=re.DOTALL)
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        found = pd.read_sql_query(query, connection).set_index(["spec", "corruption"])
    rows = load_rows([tmp_path])
    assert len(found) == 6
    for spec, part in rows.groupby("spec"):
        table = accuracy_table(part, ["corruption"]).drop(AVERAGE)
        for name in ("before", "after"):
            assert found.loc[spec][name].to_dict() == pytest.approx(table[name].to_dict())
