"""The report against numbers counted by hand, and against itself: every format says the same."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

import pytest

from helpers.small_results import FOG_SNOW, Traces, accuracy, before, fill, only_table
from ttaps.errors import TtapsError
from ttaps.evaluate import Store, compare, merge, summarize
from ttaps.evaluate.statistics import Z95, t_quantile, wilson
from ttaps.evaluate.summary import AVERAGE, Line
from ttaps.report.figures import draw_all
from ttaps.report.formats import comma_separated, latex, markdown, tex
from ttaps.report.grids import SHORT, grids, main_grid
from ttaps.report.outcomes import read_runs
from ttaps.report.protocol import protocol
from ttaps.report.published import published_columns
from ttaps.report.tables import make_tables, severest

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


def test_mean_and_deviation_over_seeds_are_those_counted_by_hand(two_seeds: Path) -> None:
    table = only_table(two_seeds)
    assert [shown.label for shown in table.ours] == ["JT+ENT", "TTAPS"]
    assert table.rows == ("fog", "snow", AVERAGE)
    for shown, step in zip(table.ours, (0, -1), strict=True):
        for row in ("fog", "snow"):
            by_seed = [accuracy(traces[row], step) for traces in (FOG_SNOW, OTHER)]
            assert shown.cells[row].value == pytest.approx(fmean(by_seed))
            assert shown.cells[row].std == pytest.approx(stdev(by_seed))
        averages = [fmean(accuracy(words, step) for words in traces.values()) for traces in (FOG_SNOW, OTHER)]
        assert shown.cells[AVERAGE].value == pytest.approx(fmean(averages))
        assert shown.cells[AVERAGE].std == pytest.approx(stdev(averages))


def test_one_seed_is_what_evaluate_says(tmp_path: Path) -> None:
    fill(tmp_path, before(OTHER), "source")
    fill(tmp_path, FOG_SNOW)
    with Store(tmp_path, write=False) as store:
        summary, versus = summarize(store, 2), compare(store, 1, 2)
    table = only_table(tmp_path)
    cells = table.ours[1].cells
    for line in (*summary.lines, summary.average):
        found = cells[line.corruption].line
        assert found is not None
        assert (found.n, found.before, found.after, found.difference) == (
            *(line.n, line.before, line.after),
            line.difference,
        )
        assert cells[line.corruption].std is None
    (pair,) = table.comparisons
    assert [line.difference for line in pair.lines] == [line.difference for line in (*versus.lines, versus.average)]


def test_the_same_twice_is_not_twice_the_evidence(tmp_path: Path) -> None:
    fill(tmp_path / "one", FOG_SNOW)
    for seed in (0, 1):
        fill(tmp_path / "two", FOG_SNOW, seed=seed)
    one, two = (only_table(tmp_path / name).ours[0].cells for name in ("one", "two"))
    for row in ("fog", "snow", AVERAGE):
        a, b = one[row].line, two[row].line
        assert a is not None
        assert b is not None
        assert b.difference.p == a.difference.p
        assert b.difference.points == pytest.approx(a.difference.points)
        assert (b.n, b.difference.fixed) == (2 * a.n, 2 * a.difference.fixed)
        if row != AVERAGE:  # the spread around their own mean is that of one picture fewer, and is itself estimated
            pictures = 9 * (Z95 / t_quantile(9)) ** 2
            low, high = wilson(pictures * b.after.percent / 100, pictures)
            assert (b.after.low, b.after.high) == pytest.approx((100 * low, 100 * high))
        assert two[row].std == 0


def test_seeds_of_views_are_no_seeds_of_a_model_that_takes_no_steps(tmp_path: Path) -> None:
    fill(tmp_path, {"fog": ["r", "w"]}, "source", seed=0)
    fill(tmp_path, {"fog": ["r", "w", "w", "w"]}, "source", seed=1)
    cell = only_table(tmp_path).ours[0].cells["fog"]
    assert (cell.value, cell.std, cell.n) == (25.0, None, (4, 4))


def test_the_best_is_bold_and_so_is_what_prints_the_same(tmp_path: Path) -> None:
    fill(tmp_path, {"fog": ["r", "w"], "snow": ["r", "r"]}, "source", objective="jt")
    fill(tmp_path, {"fog": ["rr", "wr"], "snow": ["rr", "rr"]}, objective="jt")
    table = only_table(tmp_path, published=False)
    best = {(shown.label, row) for shown in table.ours for row, cell in shown.cells.items() if cell.best}
    assert best == {("JT TTA", "fog"), ("JT", "snow"), ("JT TTA", "snow"), ("JT TTA", AVERAGE)}
    assert "**100.0**" in markdown([table])
    assert r"\textbf{100.0}" in latex([table])
    fewest = only_table(tmp_path, "error", published=False)
    assert best == {(shown.label, row) for shown in fewest.ours for row, cell in shown.cells.items() if cell.best}


def test_every_format_has_the_same_numbers(two_seeds: Path) -> None:
    table = only_table(two_seeds)
    grid = main_grid(table)
    cells = [cell for row in grid.rows for cell in row[1:]]
    in_markdown = re.findall(r"(?<=\| )[^|]+(?= \|)", markdown([table]).partition("\n\n- ")[0])
    assert [cell for cell in (word.strip(" *") for word in in_markdown) if re.match(r"\d", cell)] == cells
    body = latex([table]).partition(r"\midrule")[2].partition(r"\bottomrule")[0]
    in_latex = re.sub(r"\\textbf\{([^}]*)\}", r"\1", body).replace(r"$\pm$", "±")
    assert [
        cell.strip(" \\\n") for line in in_latex.splitlines() if "&" in line for cell in line.split("&")[1:]
    ] == cells
    lines = list(csv.DictReader(io.StringIO(comma_separated([table]))))
    values = {(line["corruption"], line["column"], line["origin"]): line for line in lines if not line["against"]}
    for shown, origin in [(s, "ours") for s in table.ours] + [(s, "published") for s in table.published]:
        for row, cell in shown.cells.items():
            line = values[row, shown.label, origin]
            assert float(line["value"]) == pytest.approx(cell.value, abs=1e-4)
            assert line["best"] == str(int(cell.best))
    changes = {(line["corruption"], line["column"], line["against"]): line for line in lines if line["against"]}
    assert set(changes) == {(row, "TTAPS", against) for row in table.rows for against in ("before", "JT+ENT")}
    assert float(changes[AVERAGE, "TTAPS", "before"]["value"]) == pytest.approx(
        fmean(accuracy(words, -1) - accuracy(words, 0) for traces in (FOG_SNOW, OTHER) for words in traces.values())
    )


def test_error_is_what_is_left_of_accuracy(two_seeds: Path) -> None:
    right, wrong = only_table(two_seeds), only_table(two_seeds, "error")
    for one, other in zip((*right.ours, *right.published), (*wrong.ours, *wrong.published), strict=True):
        for row, cell in one.cells.items():
            assert other.cells[row].value == pytest.approx(100 - cell.value)
            assert (other.cells[row].std, other.cells[row].best) == (cell.std, cell.best)
            if cell.line and (left := other.cells[row].line):
                assert left.after.low == pytest.approx(100 - cell.line.after.high)
                assert left.difference.points == -cell.line.difference.points
                assert (left.difference.low, left.difference.high) == (
                    -cell.line.difference.high,
                    -cell.line.difference.low,
                )
                assert left.difference.p == cell.line.difference.p


def test_published_numbers_stand_beside_ours(two_seeds: Path) -> None:
    table = only_table(two_seeds)
    assert [shown.label for shown in table.published] == [
        *("TTT", "MT3", "MEMO", "Baseline", "JT", "JT TTA", "JT+ENT", "TTAPS")
    ]
    fog = {shown.label: (shown.cells["fog"].value, shown.cells["fog"].std) for shown in table.published}
    assert (fog["JT+ENT"], fog["TTAPS"], fog["MEMO"]) == ((67.4, 1.19), (68.2, 0.88), (77.2, None))
    ttaps = table.published[-1].cells[AVERAGE]
    assert ttaps.value == pytest.approx((68.2 + 85.1) / 2)  # of the two corruptions shown
    assert ttaps.std is None
    assert "86.2, not 68.2 as printed" in " ".join(protocol(table))
    assert not only_table(two_seeds, published=False).published
    fill(two_seeds / "100", FOG_SNOW, data="cifar100-c")
    assert protocol(only_table(two_seeds / "100"))[-1].endswith("Table IV (MT3 as quoted there).")


@pytest.mark.parametrize(("data", "methods"), [("cifar10-c", 8), ("cifar100-c", 5)])
def test_published_averages_are_averages(data: str, methods: int) -> None:
    """With the corrected number of MT3; all are rounded to a tenth, so that a mean may be off by as much."""
    columns = published_columns(data, 5)
    assert len(columns) == methods
    for cells in columns.values():
        values = [cell.accuracy for row, cell in cells.items() if row != AVERAGE]
        assert len(values) == 15
        assert fmean(values) == pytest.approx(cells[AVERAGE].accuracy, abs=0.1 + 1e-9)
    assert published_columns(data, 3) == {}
    assert published_columns("my-folder", 5) == {}
    if data == "cifar10-c":
        assert columns["mt3"]["brightness"].accuracy == 86.2


def test_a_method_without_steps_is_not_said_to_take_one(tmp_path: Path) -> None:
    fill(tmp_path, FOG_SNOW, "augment")
    words = "\n".join(protocol(only_table(tmp_path)))
    assert "augment, no step, " in words
    assert "reset" not in words


def test_every_table_states_its_protocol(two_seeds: Path) -> None:
    words = "\n".join(protocol(only_table(two_seeds)))
    for fact in (
        *(
            "cifar10-c at severity 5",
            "10 under each corruption",
            "ttaps, 1 step,",
            "reset after every image",
            "objective jt+ent",
        ),
        *(
            "net-jt+ent-300-0",
            "net-jt+ent-300-1",
            "seeds of training 0, 1",
            "seeds of views 0",
            "0.25 s per image",
            "K=300",
        ),
    ):
        assert fact in words
    for text in (markdown, latex, comma_separated):
        assert "net-jt+ent-300-1" in text([only_table(two_seeds)])


def test_what_is_kept_from_image_to_image_is_said(tmp_path: Path) -> None:
    fill(tmp_path, FOG_SNOW)
    fill(tmp_path, FOG_SNOW, protocol="online")
    table = only_table(tmp_path)
    assert [shown.label for shown in table.ours] == ["TTAPS (paper)", "TTAPS (online)"]
    words = "\n".join(protocol(table))
    assert "not everything is reset after an image (online)" in words
    assert "weights and optimizer are reset after every image" in words


def test_partial_results_are_shown_as_what_they_are(tmp_path: Path) -> None:
    fill(tmp_path, before(FOG_SNOW), "source")
    fill(tmp_path, {"fog": ["rr"] * 4})
    table = only_table(tmp_path, published=False)
    grid = main_grid(table)
    assert [row[1] for row in grid.rows] == ["4-10", "10", "4-20"]
    assert [row[3] for row in grid.rows] == ["100.0", "-", "100.0*"]
    assert (
        not grid.bold
    )  # what stands on fewer images, or on fewer corruptions, is not the best, and what is left stands alone
    assert "* TTAPS: some corruptions are missing" in "\n".join(grid.notes)
    assert "numbers of images differ" in "\n".join(grid.notes)
    (pair,) = table.comparisons
    assert [(line.corruption, line.n) for line in pair.lines] == [("fog", 4), (AVERAGE, 4)]
    assert pair.lines[0].difference.points == 100.0  # the first four are wrong before


def test_an_experiment_in_several_folders_is_one(tmp_path: Path) -> None:
    fill(tmp_path / "a", {"fog": FOG_SNOW["fog"][:6]})
    fill(tmp_path / "b", FOG_SNOW)
    merge([tmp_path / "b"], tmp_path / "c")
    (run,) = read_runs([tmp_path / name for name in ("a", "b", "c")])
    (table,) = make_tables([run])
    assert len(run.rows) == 20
    assert table.ours[0].cells["fog"].value == accuracy(FOG_SNOW["fog"])


def test_data_sets_and_severities_have_tables_of_their_own(tmp_path: Path) -> None:
    fill(tmp_path, FOG_SNOW)
    fill(tmp_path, FOG_SNOW, severity=3)
    fill(tmp_path, {"clean": ["rr", "wr"]}, data="mine", severity=0)
    tables = make_tables(read_runs([tmp_path]))
    assert [(table.data, table.severity, len(table.rows)) for table in tables] == [
        *(("cifar10-c", None, 3), ("cifar10-c", 3, 3), ("cifar10-c", 5, 3), ("mine", 0, 1))
    ]
    assert [len(table.published) for table in tables] == [0, 0, 8, 0]
    assert [(table.data, table.severity) for table in severest(tables)] == [("cifar10-c", 5), ("mine", 0)]


def test_accuracy_by_severity_is_that_of_the_tables_of_each(tmp_path: Path) -> None:
    """Its rows are their averages; its own average weighs every severity alike, for each seed."""
    for severity, seeds in ((2, (FOG_SNOW, OTHER)), (4, (FOG_SNOW, FOG_SNOW))):
        for seed, traces in enumerate(seeds):
            fill(tmp_path, traces, training_seed=seed, severity=severity)
    whole, *parts = make_tables(read_runs([tmp_path]))
    assert whole.rows == ("severity 2", "severity 4", AVERAGE)
    cells = whole.ours[0].cells
    for row, part in zip(whole.rows, parts, strict=False):
        average = part.ours[0].cells[AVERAGE]
        assert (cells[row].value, cells[row].std) == (average.value, average.std)
        assert cells[row].line == replace(some(average.line), corruption=row)
    averages = [fmean(accuracy(words) for words in traces.values()) for traces in (FOG_SNOW, OTHER)]
    by_seed = [averages[0], fmean(averages)]
    assert cells[AVERAGE].value == pytest.approx(fmean(by_seed))
    assert cells[AVERAGE].std == pytest.approx(stdev(by_seed))
    assert (cells[AVERAGE].n, some(cells[AVERAGE].line).n) == ((40, 40), 80)
    assert grids(whole)[0].title == "cifar10-c, by severity: accuracy in %"
    lines = csv.DictReader(io.StringIO(comma_separated([whole])))
    assert {(line["severity"], line["corruption"]) for line in lines} == {("all", row) for row in whole.rows}
    names = [drawing.name for drawing in draw_all([whole, *parts], [tmp_path], tmp_path)[0]]
    assert names == [
        "cifar10-c-severities",
        *(f"cifar10-c-4-{kind}" for kind in ("steps", "bars-ttaps", "reliability-ttaps")),
    ]


def some(line: Line | None) -> Line:
    assert line is not None
    return line


def test_short_names_are_the_papers() -> None:
    paper = "brit contr defoc elast fog frost gauss glass impul jpeg motn pixel shot snow zoom"
    names = [name for name in published_columns("cifar10-c", 5)["ttaps"] if name != AVERAGE]
    assert " ".join(SHORT.get(name, name) for name in names) == paper


def test_nothing_to_report_is_an_error(tmp_path: Path) -> None:
    Store(tmp_path / "empty").close()
    with pytest.raises(TtapsError, match="No image has been evaluated yet"):
        read_runs([tmp_path / "empty"])
    with pytest.raises(TtapsError, match="no results in"):
        read_runs([tmp_path / "nowhere"])


def test_signs_that_latex_would_read_are_written_out() -> None:
    assert tex(r"a_b & 95 % $x$ \n ±") == r"a\_b \& 95 \% \$x\$ \textbackslash{}n $\pm$"


def test_all_grids_are_there(two_seeds: Path) -> None:
    titles = [grid.title for grid in grids(only_table(two_seeds))]
    assert len(titles) == 4
    assert titles[2] == "TTAPS: accuracy before and after adaptation, in %"
