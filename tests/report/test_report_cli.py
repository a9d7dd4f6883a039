"""``ttaps report`` and ``ttaps results``, run as a user runs them."""

from __future__ import annotations

import csv
import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from helpers.small_model import write_model
from helpers.small_results import FOG_SNOW, before, fill
from ttaps.cli import main
from ttaps.evaluation.benchmark import open_benchmark
from ttaps.evaluation.statistics import accuracy_table
from ttaps.evaluation.store import FILE, Store
from ttaps.model.checkpoint import load_model
from ttaps.report.columns import load_results
from ttaps.report.render import accuracy_text, text_tables
from ttaps.report.tables import make_tables


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Results on the sample, with K of two kinds, so that every figure can be drawn."""
    results, digest = tmp_path / "results", open_benchmark("sample").digest
    fill(results, before(FOG_SNOW), "source", data="sample", digest=digest)
    for prototypes in (30, 300):
        two_steps = {corruption: [f"{word}{word[-1]}" for word in words] for corruption, words in FOG_SNOW.items()}
        fill(results, two_steps, data="sample", digest=digest, prototypes=prototypes)
    return str(results)


class Page(HTMLParser):
    """What a page holds, and whether every tag that opens also closes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.sources: list[str] = []
        self.words: list[str] = []
        self.feed(text.replace("<wbr>", ""))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.sources += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "action", "data")]
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_tables_go_to_stdout_and_nothing_else(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", folder]) == 0
    shown = capsys.readouterr()
    head = "**sample, severity 5: accuracy in %**\n\n|      |   n | source<br>JT+ENT (net, K=300) | ttaps<br>TTAPS (net, K=30) |"
    assert shown.out.startswith(head)
    assert not shown.err
    assert main(["report", folder, "--table", "tex", "--metric", "error", "--no-published"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("\\begin{table*}")
    assert "dagger" not in shown.out
    assert "error in" in shown.out
    assert shown.out.isascii()  # pdflatex knows few other letters


@pytest.mark.parametrize("room", [60, 80, 200])
def test_a_terminal_never_folds_a_number(
    room: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in (0, 1):
        fill(tmp_path, {"elastic_transform": ["wr", "rr", "ww"], "fog": ["wr", "rr", "rr"]}, training_seed=seed)
        fill(tmp_path, FOG_SNOW, training_seed=seed, lr=0.3, steps=2, momentum=0.25, confidence_threshold=0.5)
    (table,) = make_tables(load_results([tmp_path]))
    monkeypatch.setenv("COLUMNS", str(room))
    assert main(["report", str(tmp_path), "--table", "text"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= room
    numbers = {cell for text in text_tables(table) for row in text.rows for cell in row[1:]}
    assert numbers <= {cell for line in lines for cell in re.split(r"  +", line.strip())}


def test_the_table_of_evaluate_fits_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, {"elastic_transform": FOG_SNOW["fog"], "snow": FOG_SNOW["snow"]})
    found = accuracy_table(load_results([tmp_path]).rows)
    monkeypatch.setenv("COLUMNS", "200")
    whole = accuracy_text(found)
    monkeypatch.setenv("COLUMNS", "80")
    narrow = accuracy_text(found)
    above, below = narrow.split("\n\n")
    assert max(map(len, narrow.splitlines())) <= 80
    whole_lines, above_lines, below_lines = (
        [line.split() for line in text.splitlines() if "─" not in line] for text in (whole, above, below)
    )
    assert whole_lines[0] == above_lines[0] + below_lines[0]
    for line, first, second in zip(whole_lines[1:], above_lines[1:], below_lines[1:], strict=True):
        assert line == first + second[1:]


def test_csv_and_json_are_for_machines(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", folder, "--table", "csv"]) == 0
    lines = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert main(["report", folder, "--json"]) == 0
    (table,) = json.loads(capsys.readouterr().out)
    cells = {(cell["column"], cell["row"]): cell["value"] for cell in table["numbers"]}
    ours = [line for line in lines if (line["origin"], line["against"], line["metric"]) == ("ours", "", "accuracy")]
    assert {(line["column"], line["corruption"]): float(line["value"]) for line in ours} == pytest.approx(
        cells, abs=1e-4
    )
    assert len({(pair["first"], pair["second"]) for pair in table["comparisons"]}) == 3
    column = table["columns"][1]
    assert (column["spec"], column["paper_column"]) == ("ttaps", "TTAPS")
    assert column["experiments"][0]["fingerprint"] == "net-jt+ent-30-0"
    assert table["numbers"][0]["std"] is None


def test_figures_and_a_page_that_needs_nothing_else(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures, page = tmp_path / "figures", tmp_path / "pages" / "report.html"
    assert main(["report", folder, "--figures", str(figures), "--html", str(page)]) == 0
    names = {path.stem for path in figures.iterdir()}
    kinds = [f"{kind}-ttaps-net-k-{k}" for kind in ("bars", "reliability", "flips") for k in (30, 300)]
    assert names == {f"sample-5-{kind}" for kind in ("steps", "steps-k-ttaps", *kinds)}
    for name in names:
        assert (figures / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (figures / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    assert '<th scope="col">ttaps<br><small>TTAPS (net, K=30)</small>' in page.read_text()
    found = Page(page.read_text())
    assert found.open == []
    assert found.sources == [source for source in found.sources if source.startswith("data:image/png;base64,")]
    assert len(found.sources) == len(names)
    assert not {"script", "link", "iframe", "object"} & set(found.tags)
    assert "url(" not in page.read_text()
    assert found.tags.count("table") == 7  # in short, and the six of the Markdown
    words = {word.strip() for word in found.words}
    out = capsys.readouterr().out
    for line in out.splitlines():
        if line.startswith("|") and "---" not in line:
            cells = [cell.strip(" *") for cell in line.replace("<br>", "|").strip("|").split("|")]
            assert set(cells) <= {word.strip("*") for word in words}
        elif line.startswith("- "):
            assert line[2:] in words


@pytest.mark.parametrize("option", ["--html", "--figures"])
def test_a_place_that_cannot_be_written_is_refused_before_any_work(
    option: str, folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    assert main(["report", folder, option, str(tmp_path / "file" / "page.html")]) == 1
    shown = capsys.readouterr()
    assert not shown.out
    assert "A part of that path is a file, not a folder" in shown.err
    assert main(["report", folder, "--html", str(tmp_path)]) == 1
    assert "it is a folder" in capsys.readouterr().err


def test_what_cannot_be_drawn_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(tmp_path / "results", {"fog": ["r", "w"]}, "source")
    page = tmp_path / "page.html"
    assert main(["report", str(tmp_path / "results"), "--html", str(page)]) == 0
    assert "nothing was adapted there" in capsys.readouterr().err
    assert "nothing was adapted there" in page.read_text()


def test_names_cannot_break_the_page(tmp_path: Path) -> None:
    fill(tmp_path / "results", {"<fog>": ["r", "w"]}, "source", objective=None, model="<script>alert(1)</script>")
    page = tmp_path / "page.html"
    assert main(["report", str(tmp_path / "results"), "--html", str(page)]) == 0
    assert "<script" not in page.read_text()
    assert Page(page.read_text()).open == []


def test_projections_go_from_evaluate_to_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "umap", None)  # umap takes its time
    model, results, figures = (str(tmp_path / name) for name in ("model", "results", "figures"))
    write_model(Path(model))
    options = ["--methods", "source", "--corruptions", "fog", "--limit", "2", "--out", results]
    assert main(["evaluate", model, *options, "--projections", "20"]) == 0
    assert main(["report", results, "--figures", figures]) == 0
    names = {path.stem for path in Path(figures).iterdir()}
    assert names == {f"projections-sample-model-{load_model(Path(model)).fingerprint}"}
    assert main(["results", "merge", str(tmp_path / "all"), results, results]) == 0
    assert capsys.readouterr().out.endswith("\nNew projections there: 1\n")
    copied, stored = (
        [path.read_bytes() for path in folder.glob("projections/*.npz")] for folder in (tmp_path / "all", Path(results))
    )
    assert copied == stored
    assert len(stored) == 1
    assert main(["evaluate", model, *options, "--projections", "-1"]) == 2


def test_nothing_to_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report"]) == 2
    assert "Name a folder of results" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "typo")]) == 1
    assert "There are no results in" in capsys.readouterr().err
    Store(tmp_path).close()
    assert main(["report", str(tmp_path)]) == 1
    assert "No image has been evaluated yet" in capsys.readouterr().err
    assert main(["results", "export", str(tmp_path), str(tmp_path / "out.csv")]) == 1
    assert "No image has been evaluated yet" in capsys.readouterr().err
    assert not (tmp_path / "out.csv").exists()


def test_merge_joins_folders_and_can_be_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(tmp_path / "a", {"fog": FOG_SNOW["fog"]})
    fill(tmp_path / "b", {"snow": FOG_SNOW["snow"]})
    command = ["results", "merge", *(str(tmp_path / name) for name in ("all", "a", "b"))]
    assert main(command) == 0
    assert capsys.readouterr().out == f"20 new rows in {tmp_path / 'all'}\n"
    assert main(command) == 0
    assert capsys.readouterr().out.startswith("0 new rows")
    assert main(["report", str(tmp_path / "all"), "--no-published"]) == 0
    merged = capsys.readouterr().out
    assert main(["report", str(tmp_path / "a"), str(tmp_path / "b"), "--no-published"]) == 0
    assert capsys.readouterr().out == merged
    assert "TTAPS" in merged  # what is known about the model came along


def test_merge_writes_nothing_if_a_folder_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(tmp_path / "a", FOG_SNOW)
    assert main(["results", "merge", *(str(tmp_path / name) for name in ("all", "a", "typo"))]) == 1
    assert "There are no results in" in capsys.readouterr().err
    assert not (tmp_path / "all" / FILE).exists()
    assert main(["results", "merge", str(tmp_path / "all")]) == 2
    assert "Name the folders to merge" in capsys.readouterr().err
