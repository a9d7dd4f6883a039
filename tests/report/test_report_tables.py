"""The report against numbers counted by hand, and against itself: every format has the same numbers."""

from __future__ import annotations

import csv
import io
import math
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pandas as pd
import pytest

from helpers.small_results import FOG_SNOW, Traces, accuracy, before, fill, only_table
from ttaps.errors import DataError, TtapsError
from ttaps.evaluation.statistics import AVERAGE, STATISTICS, Z95, accuracy_table, compare_table, t_quantile, wilson
from ttaps.evaluation.store import FILE, Store, merge
from ttaps.report.columns import load_published, load_results
from ttaps.report.page import draw_all
from ttaps.report.render import latex, main_table, markdown, tex, text_tables, to_csv
from ttaps.report.tables import Table, highest_severity, make_tables, protocol

OTHER: Traces = {
    "fog": ["ww", "ww", "wr", "wr", "rw", "rr", "rr", "rr", "wr", "wr"],
    "snow": ["rr", "rr", "rr", "rw", "rr", "wr", "ww", "ww", "ww", "ww"],
}


@pytest.fixture
def two_seeds(tmp_path: Path) -> Path:
    """TTAPS with two seeds of training, and the source models."""
    for seed, traces in enumerate((FOG_SNOW, OTHER)):
        fill(tmp_path, traces, training_seed=seed)
        fill(tmp_path, before(traces), "source", training_seed=seed)
    return tmp_path


def labels(table: Table) -> list[str]:
    return [column.label for column in table.columns]


def best_cells(numbers: pd.DataFrame) -> set[tuple[str, str]]:
    return set(numbers.index[numbers["best"].astype(bool)])


def test_a_report_needs_no_torch_unless_it_shows_images(tmp_path: Path) -> None:
    fill(tmp_path, {"fog": ["rr", "ww", "rr"]})  # no label becomes right or wrong: there is no image to show
    fill(tmp_path, {"fog": ["rrr", "www", "rrr"]}, "memo")
    arguments = ["report", str(tmp_path), "--html", str(tmp_path / "page.html"), "--figures", str(tmp_path / "figures")]
    imports = "import sys, ttaps.report.figures.learning; from ttaps.cli import main"
    export = ["results", "export", str(tmp_path), str(tmp_path / "rows.csv")]
    code = f"{imports}; assert main({arguments}) == main({export}) == 0; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert len(list((tmp_path / "figures").iterdir())) == 10


def test_mean_and_deviation_over_seeds_are_those_counted_by_hand(two_seeds: Path) -> None:
    table = only_table(two_seeds)
    assert labels(table) == ["source", "ttaps"]
    assert [column.paper_name for column in table.columns] == ["JT+ENT", "TTAPS"]
    assert table.rows == ("fog", "snow", AVERAGE)
    for label, step in (("source", 0), ("ttaps", -1)):
        cells = table.numbers.loc[label]
        for row in ("fog", "snow"):
            by_seed = [accuracy(traces[row], step) for traces in (FOG_SNOW, OTHER)]
            assert cells["value"][row] == pytest.approx(fmean(by_seed))
            assert cells["std"][row] == pytest.approx(stdev(by_seed))
        averages = [fmean(accuracy(words, step) for words in traces.values()) for traces in (FOG_SNOW, OTHER)]
        assert cells["value"][AVERAGE] == pytest.approx(fmean(averages))
        assert cells["std"][AVERAGE] == pytest.approx(stdev(averages))


def test_one_seed_has_the_numbers_of_evaluate(tmp_path: Path) -> None:
    fill(tmp_path, before(OTHER), "source")
    fill(tmp_path, FOG_SNOW)
    rows = load_results([tmp_path]).rows
    source, ttaps = (rows[rows["spec"] == spec] for spec in ("source", "ttaps"))
    table = only_table(tmp_path)
    alone = accuracy_table(ttaps, ["corruption"])
    assert table.numbers.loc["ttaps", STATISTICS].to_numpy().tolist() == alone[STATISTICS].to_numpy().tolist()
    assert table.numbers["std"].isna().all()
    versus = compare_table(source, ttaps, ["corruption"])
    assert table.comparisons.loc["source", "ttaps"].to_numpy().tolist() == versus.to_numpy().tolist()


def test_the_same_twice_is_not_twice_the_evidence(tmp_path: Path) -> None:
    fill(tmp_path / "one", FOG_SNOW)
    for seed in (0, 1):
        fill(tmp_path / "two", FOG_SNOW, seed=seed)
    one, two = (only_table(tmp_path / name).numbers.loc["ttaps"] for name in ("one", "two"))
    for row in ("fog", "snow", AVERAGE):
        a, b = one.loc[row], two.loc[row]
        assert b["p"] == pytest.approx(a["p"])
        assert b["change"] == pytest.approx(a["change"])
        assert (b["n"], b["fixed"]) == (2 * a["n"], 2 * a["fixed"])
        if row != AVERAGE:  # the spread around their own mean is that of one image fewer, and is itself estimated
            images = 9 * (Z95 / t_quantile(9)) ** 2
            low, high = wilson(images * b["after"] / 100, images)
            assert (b["after_low"], b["after_high"]) == pytest.approx((100 * low, 100 * high))
        assert b["std"] == 0


def test_seeds_of_views_are_no_seeds_of_a_model_that_does_not_adapt(tmp_path: Path) -> None:
    fill(tmp_path, {"fog": ["r", "w"]}, "source", seed=0)
    fill(tmp_path, {"fog": ["r", "w", "w", "w"]}, "source", seed=1)
    cell = only_table(tmp_path).numbers.loc["source", "fog"]
    assert (cell["value"], cell["n_min"], cell["n_max"]) == (25.0, 4, 4)
    assert pd.isna(cell["std"])


def test_the_best_is_bold_and_so_is_what_prints_the_same(tmp_path: Path) -> None:
    fill(tmp_path, {"fog": ["r", "w"], "snow": ["r", "r"]}, "source", objective="jt")
    fill(tmp_path, {"fog": ["rr", "wr"], "snow": ["rr", "rr"]}, objective="jt")
    table = only_table(tmp_path, published=False)
    best = {("ttaps", "fog"), ("source", "snow"), ("ttaps", "snow"), ("ttaps", AVERAGE)}
    assert best_cells(table.numbers) == best
    assert "**100.0**" in markdown([table])
    assert r"\textbf{100.0}" in latex([table])
    assert best_cells(only_table(tmp_path, "error", published=False).numbers) == best


def test_every_format_has_the_same_numbers(two_seeds: Path) -> None:
    table = only_table(two_seeds)
    cells = [cell for row in main_table(table).rows for cell in row[1:]]
    in_markdown = re.findall(r"(?<=\| )[^|]+(?= \|)", markdown([table]).partition("\n\n- ")[0])
    assert [cell for cell in (word.strip(" *") for word in in_markdown) if re.match(r"\d", cell)] == cells
    body = latex([table]).partition(r"\midrule")[2].partition(r"\bottomrule")[0]
    in_latex = re.sub(r"\\textbf\{([^}]*)\}", r"\1", body).replace(r"$\pm$", "±")
    assert [
        cell.strip(" \\\n") for line in in_latex.splitlines() if "&" in line for cell in line.split("&")[1:]
    ] == cells
    lines = [line for line in csv.DictReader(io.StringIO(to_csv([table]))) if line["metric"] == "accuracy"]
    values = {(line["column"], line["corruption"], line["origin"]): line for line in lines if not line["against"]}
    for numbers, origin in ((table.numbers, "ours"), (table.published, "published")):
        for index, cell in numbers.iterrows():
            line = values[(*index, origin)]
            assert float(line["value"]) == pytest.approx(cell["value"], abs=1e-4)
            assert line["best"] == str(int(cell["best"]))
    changes = {(line["corruption"], line["column"], line["against"]): line for line in lines if line["against"]}
    assert set(changes) == {(row, "ttaps", against) for row in table.rows for against in ("before", "source")}
    assert float(changes[AVERAGE, "ttaps", "before"]["value"]) == pytest.approx(
        fmean(accuracy(words, -1) - accuracy(words, 0) for traces in (FOG_SNOW, OTHER) for words in traces.values())
    )
    assert {(line["spec"], line["paper_column"]) for line in lines if line["column"] == "ttaps"} == {("ttaps", "TTAPS")}


def test_calibration_before_and_after_is_in_the_report_and_in_its_csv(tmp_path: Path) -> None:
    """One corruption of four images, always 0.75 sure: one is right before, four after; all have probability 0.75 of the true class."""
    fill(tmp_path, {"fog": ["wr", "wr", "wr", "rr"]}, confidence=0.75)
    fill(tmp_path, {"fog": ["w", "w", "w", "r"]}, "source", confidence=0.75)
    table = only_table(tmp_path)
    calibration = text_tables(table)[-1]
    nll = f"{-math.log(0.75):.3f}"
    assert calibration.title == "Calibration"
    assert {row[0]: row[1:] for row in calibration.rows} == {
        "source": ("75.0", "-", nll, "-", "50.0"),
        "ttaps": ("75.0 → 0.0", "0.0", f"{nll} → {nll}", "- → -", "50.0 → 25.0"),
    }
    lines = [line for line in csv.DictReader(io.StringIO(to_csv([table]))) if line["column"] == "ttaps"]
    found = {(line["metric"], line["against"]): float(line["value"]) for line in lines if line["metric"] != "accuracy"}
    want = {("nll", ""): -math.log(0.75), ("nll", "before"): 0, ("ece", ""): 25, ("ece", "before"): -25}
    assert found == pytest.approx({**want, ("mce", "before"): 0}, abs=1e-4)


def test_error_is_what_is_left_of_accuracy(two_seeds: Path) -> None:
    right, wrong = only_table(two_seeds), only_table(two_seeds, "error")
    for one, other in ((right.numbers, wrong.numbers), (right.published, wrong.published)):
        assert other["value"].to_numpy() == pytest.approx(100 - one["value"].to_numpy())
        pd.testing.assert_frame_equal(other[["std", "best"]], one[["std", "best"]])
    for one, other in ((right.numbers, wrong.numbers), (right.comparisons, wrong.comparisons)):
        assert (other["after_low"] == 100 - one["after_high"]).all()
        assert (other["change"] == -one["change"]).all()
        assert (other["change_low"] == -one["change_high"]).all()
        assert (other["change_high"] == -one["change_low"]).all()
        assert (other["p"] == one["p"]).all()


def test_published_numbers_stand_beside_ours(two_seeds: Path) -> None:
    table = only_table(two_seeds)
    assert list(table.published.index.unique("column")) == [
        *("TTT", "MT3", "MEMO", "Baseline", "JT", "JT TTA", "JT+ENT", "TTAPS")
    ]
    fog = table.published.xs("fog", level="row")
    assert fog.loc[["JT+ENT", "TTAPS"], ["value", "std"]].to_numpy().tolist() == [[67.4, 1.19], [68.2, 0.88]]
    assert fog["value"]["MEMO"] == 77.2
    assert pd.isna(fog["std"]["MEMO"])
    average = table.published.loc["TTAPS", AVERAGE]
    assert average["value"] == pytest.approx((68.2 + 85.1) / 2)  # of the two corruptions shown
    assert pd.isna(average["std"])
    assert "86.2, not 68.2 as printed" in " ".join(protocol(table))
    assert only_table(two_seeds, published=False).published.empty
    fill(two_seeds / "100", FOG_SNOW, data="cifar100-c")
    assert protocol(only_table(two_seeds / "100"))[-1].endswith("Table IV (MT3 as quoted there).")


@pytest.mark.parametrize(("data", "methods"), [("cifar10-c", 8), ("cifar100-c", 5)])
def test_published_averages_are_averages(data: str, methods: int) -> None:
    """With the corrected number of MT3; all are rounded to a tenth, so that a mean may be off by as much."""
    numbers = load_published(data, 5)["value"].unstack("column")
    assert numbers.shape == (16, methods)
    means = numbers.drop(index=AVERAGE).mean()
    assert means.to_numpy() == pytest.approx(numbers.loc[AVERAGE].to_numpy(), abs=0.1 + 1e-9)
    assert load_published(data, 3).empty
    assert load_published("my-folder", 5).empty
    if data == "cifar10-c":
        assert numbers["MT3"]["brightness"] == 86.2


@pytest.mark.parametrize(
    "content",
    ["", "data,column,row\na,b,c\n", "data,column,row,value,std\na,b,fog,x,\n", "data,column,row,value,std\na,b,fog,inf,\n",
     "data,column,row,value,std\na,b,fog,,\n", "data,column,row,value,std\na,,fog,1,\n",
     "data,column,row,value,std\na,b,fog,1,\na,b,fog,2,\n", '"'],
)  # fmt: skip
def test_damaged_published_numbers_are_reported(content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = tmp_path / "published.csv"
    damaged.write_text(content)
    monkeypatch.setattr("ttaps.report.columns.PUBLISHED", damaged)
    with pytest.raises(DataError, match=r"published.csv is damaged(.|\n)*Install the package again"):
        load_published("cifar10-c", 5)


def test_every_table_states_its_protocol(two_seeds: Path) -> None:
    words = "\n".join(protocol(only_table(two_seeds)))
    for fact in (
        *("cifar10-c at severity 5", "10 under each corruption", "method ttaps;", "reset after every image"),
        *("objective jt+ent", "net-jt+ent-300-0", "net-jt+ent-300-1", "seeds of training 0, 1"),
        *("seeds of views 0", "0.25 s per image", "K=300", "method source; no adaptation"),
    ):
        assert fact in words
    for text in (markdown, latex, to_csv):
        assert "net-jt+ent-300-1" in text([only_table(two_seeds)])


def test_what_is_kept_from_image_to_image_is_said(tmp_path: Path) -> None:
    fill(tmp_path, FOG_SNOW, "tent")
    fill(tmp_path, FOG_SNOW, "tent", online=True)
    table = only_table(tmp_path)
    assert labels(table) == ["tent", "tent[online=true]"]
    words = "\n".join(protocol(table))
    assert "not everything is reset after each image (online)" in words
    assert "weights and optimizer are reset after every image" in words


def test_partial_results_are_shown_as_what_they_are(tmp_path: Path) -> None:
    fill(tmp_path, before(FOG_SNOW), "source")
    fill(tmp_path, {"fog": ["rr"] * 4})
    table = only_table(tmp_path, published=False)
    text = main_table(table)
    assert [row[1] for row in text.rows] == ["4-10", "10", "4-20"]
    assert [row[3] for row in text.rows] == ["100.0", "-", "100.0*"]
    # What has fewer images, or fewer corruptions, is not the best, and what is left stands alone.
    assert not text.bold
    assert "* ttaps: some corruptions are missing" in "\n".join(text.notes)
    assert "numbers of images differ" in "\n".join(text.notes)
    pair = table.comparisons.loc["source", "ttaps"]
    assert pair["n"].to_dict() == {"fog": 4, AVERAGE: 4}
    assert pair["change"]["fog"] == 100.0  # the first four are wrong before


def test_an_experiment_in_several_folders_is_one(tmp_path: Path) -> None:
    fill(tmp_path / "a", {"fog": FOG_SNOW["fog"][:6]})
    fill(tmp_path / "b", FOG_SNOW)
    merge([tmp_path / "b"], tmp_path / "c")
    results = load_results([tmp_path / name for name in ("a", "b", "c")])
    (table,) = make_tables(results)
    assert len(results.rows) == 20
    assert table.numbers["value"]["ttaps", "fog"] == accuracy(FOG_SNOW["fog"])


def test_images_of_a_model_that_was_renamed_count_once(tmp_path: Path) -> None:
    fill(tmp_path, FOG_SNOW)
    with closing(sqlite3.connect(tmp_path / FILE)) as database, database:
        database.execute("UPDATE experiments SET model = 'old name'")
    fill(tmp_path, FOG_SNOW)
    table = only_table(tmp_path)
    assert labels(table) == ["ttaps"]
    assert table.numbers["n"].tolist() == [10, 10, 20]


def test_columns_without_a_common_image_are_not_compared(tmp_path: Path) -> None:
    fill(tmp_path, {"fog": ["rr"]})
    fill(tmp_path, {"snow": ["rr"]}, "memo")
    table = only_table(tmp_path)
    assert table.comparisons.empty
    assert len(text_tables(table)) == 5
    assert to_csv([table])


def test_data_sets_and_severities_have_tables_of_their_own(tmp_path: Path) -> None:
    fill(tmp_path, FOG_SNOW)
    fill(tmp_path, FOG_SNOW, severity=3)
    fill(tmp_path, {"clean": ["rr", "wr"]}, data="mine", severity=0)
    tables = make_tables(load_results([tmp_path]))
    assert [(table.data, table.severity, len(table.rows)) for table in tables] == [
        *(("cifar10-c", None, 3), ("cifar10-c", 3, 3), ("cifar10-c", 5, 3), ("mine", 0, 1))
    ]
    assert [table.published.index.unique("column").size for table in tables] == [0, 0, 8, 0]
    assert [(table.data, table.severity) for table in highest_severity(tables)] == [("cifar10-c", 5), ("mine", 0)]


def test_accuracy_by_severity_is_that_of_the_tables_of_each(tmp_path: Path) -> None:
    """Its rows are their averages; its own average weighs every severity alike, for each seed."""
    for severity, seeds in ((2, (FOG_SNOW, OTHER)), (4, (FOG_SNOW, FOG_SNOW))):
        for seed, traces in enumerate(seeds):
            fill(tmp_path, traces, training_seed=seed, severity=severity)
    results = load_results([tmp_path])
    tables: Any = make_tables(results)
    whole, *parts = tables
    assert whole.rows == ("severity 2", "severity 4", AVERAGE)
    cells = whole.numbers.loc["ttaps"]
    for row, part in zip(whole.rows, parts, strict=False):
        pd.testing.assert_series_equal(
            cells.drop(columns="best").loc[row],
            part.numbers.drop(columns="best").loc["ttaps", AVERAGE],
            check_names=False,
        )
    averages = [fmean(accuracy(words) for words in traces.values()) for traces in (FOG_SNOW, OTHER)]
    by_seed = [averages[0], fmean(averages)]
    assert cells["value"][AVERAGE] == pytest.approx(fmean(by_seed))
    assert cells["std"][AVERAGE] == pytest.approx(stdev(by_seed))
    assert cells.loc[AVERAGE, ["n_min", "n_max", "n"]].tolist() == [40, 40, 80]
    assert main_table(whole).title == "cifar10-c, by severity: accuracy in %"
    lines = csv.DictReader(io.StringIO(to_csv([whole])))
    assert {(line["severity"], line["corruption"]) for line in lines} == {("all", row) for row in whole.rows}
    names = [figure.name for figure in draw_all(results, [whole, *parts], tmp_path)[0]]
    assert names == ["cifar10-c-severities", "cifar10-c-4-bars-ttaps", "cifar10-c-4-reliability-ttaps"]


def test_nothing_to_report_is_an_error(tmp_path: Path) -> None:
    Store(tmp_path / "empty").close()
    with pytest.raises(TtapsError, match="No image has been evaluated yet"):
        load_results([tmp_path / "empty"])
    with pytest.raises(TtapsError, match="no results in"):
        load_results([tmp_path / "nowhere"])


def test_characters_that_latex_would_interpret_are_escaped() -> None:
    assert tex(r"a_b & 95 % $x$ \n ±") == r"a\_b \& 95 \% \$x\$ \textbackslash{}n $\pm$"


def test_all_tables_are_there(two_seeds: Path) -> None:
    texts = text_tables(only_table(two_seeds))
    assert len(texts) == 5
    assert texts[0].head[:4] == ("", "n", "source\nJT+ENT", "ttaps\nTTAPS")
    assert texts[0].head[4] == "TTT†"
    assert texts[2].title == "ttaps: accuracy before and after adaptation, in %"
