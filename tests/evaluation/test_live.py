"""What is shown while a run works: the numbers of the final table, in 80 columns, at a bounded cost."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from helpers.small_evaluation import METHODS, small_benchmark, small_model, stored_rows
from ttaps import progress
from ttaps.adaptation import Source
from ttaps.evaluation import live, run
from ttaps.evaluation.frame import load_rows
from ttaps.evaluation.live import measure_so_far
from ttaps.evaluation.plan import Coverage, Plan, Shard
from ttaps.evaluation.run import Timing, evaluate
from ttaps.evaluation.statistics import measure
from ttaps.evaluation.store import Store


def watched(monkeypatch: pytest.MonkeyPatch, terminal: bool, quiet: bool = False) -> io.StringIO:
    """Let a run show itself on a console of 80 columns, and return what is written there."""
    file = io.StringIO()
    console = Console(file=file, width=80, force_terminal=terminal, color_system=None, quiet=quiet)
    monkeypatch.setattr(run, "bar", lambda: progress.bar(console))
    monkeypatch.setattr(progress, "stderr", console)
    monkeypatch.setattr(live, "LOOK_EVERY", 0.0)
    monkeypatch.setattr(live, "LOG_EVERY", 0.0)
    monkeypatch.setattr(live, "SHARE", 0)
    return file


def whole_plan(limit: int | None = None, shard: str = "1/1") -> Plan:
    return small_benchmark().plan(limit, Shard.parse(shard))


@pytest.mark.parametrize("shard", ["1/1", "2/3"])
@pytest.mark.parametrize("limit", [None, 4])
def test_the_grid_of_a_plan_has_its_images(shard: str, limit: int | None) -> None:
    plan = whole_plan(limit, shard)
    grid = plan.grid
    assert grid.sum() == len(plan) == len(list(plan))
    assert all(grid[plan.conditions.index(item[:2]), item.image] for item in plan)


def test_the_coverage_says_what_the_final_table_says(tmp_path: Path) -> None:
    numbers = evaluate(small_model(), small_benchmark(), METHODS, (0, 1), folder=tmp_path, plan=whole_plan(5))
    coverages = [Coverage(whole_plan()) for _ in numbers]
    with Store(tmp_path, write=False) as store:
        for coverage, number in zip(coverages, numbers, strict=True):
            coverage.add(store.outcomes(number))
    rows = load_rows([tmp_path])
    for place, (_, part) in enumerate(rows.groupby(["spec", "seed"], sort=False)):
        assert_same_numbers(measure_so_far([coverages[place]]), measure(part))
    assert_same_numbers(measure_so_far(coverages[2:]), measure(rows[rows["method"] == "ttaps"]))
    assert measure_so_far([Coverage(whole_plan())]) is None
    assert sum(coverage.count(whole_plan().grid) for coverage in coverages) == 4 * 15
    assert sum(coverage.count(whole_plan(limit=2).grid) for coverage in coverages) == 4 * 6


def assert_same_numbers(so_far: Any, final: Any) -> None:
    """The final table also has what needs all probabilities, such as NLL."""
    assert {"n", "before", "after", "change", "fixed", "broken"} <= so_far.keys()
    assert so_far == pytest.approx({name: final[name] for name in so_far})


def test_a_terminal_shows_a_table_until_the_run_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    file, plan = watched(monkeypatch, terminal=True), whole_plan()
    source, ttaps = Coverage(plan), Coverage(plan)
    with progress.bar(progress.stderr) as shown:
        table = live.Live(shown, "Evaluating small", {"source": [source], "ttaps:fast[lr=1]": [ttaps]}, plan)
        for image in range(4):
            source.add([("fog", 5, image, image > 0, image > 0), ("snow", 5, image, True, True)])
            ttaps.add([("fog", 5, image, image > 0, True)])
        table.update(12)
        shown.refresh()
        lines = file.getvalue().splitlines()[-4:]
        table.finish()
        assert shown.below is None
    assert "12/36" in lines[0]
    assert [line.split() for line in lines[1:]] == [
        ["average", "so", "far", "n", "before", "after", "95", "%", "change", "95", "%"],
        ["source", "8", "87.5", "87.5", "31.6-99.1"],
        ["ttaps:fast[lr=1]", "4", "75.0", "100.0", "51.0-100.0", "+25.0", "-38.3", "to", "+71.7"],
    ]
    assert "12/36" in file.getvalue().splitlines()[-2]  # the last one brings the cursor back


def test_a_line_of_the_table_fits() -> None:
    """Only the spec is cut, never a number."""
    wide = {"n": 1_350_000, "before": 100.0, "after": 0.0, "after_low": 99.9, "after_high": 100.0}
    wide |= {"change": -99.0, "change_low": -100.0, "change_high": -98.0}
    console = Console(file=io.StringIO(), width=80, color_system=None)
    with console.capture() as captured:
        console.print(live.live_table({"source": wide, "ttaps:tuned[views.scale=[0.5,1]]": wide}, several=False))
    lines = captured.get().splitlines()
    assert len(lines) == 3
    assert all(len(line) <= 80 for line in lines)
    assert lines[2].startswith("ttaps:tun")
    assert lines[2].split()[1:] == ["1,350,000", "100.0", "0.0", "99.9-100.0", "-99.0", "-100.0", "to", "-98.0"]


def test_elsewhere_there_is_a_line_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = watched(monkeypatch, terminal=False)
    evaluate(small_model(), small_benchmark(), [Source()], folder=tmp_path, group=6)
    lines = shown.getvalue().splitlines()
    assert [line.split("; ")[0] for line in lines[:3]] == [f"Evaluating small: {n} of 18 results" for n in (6, 12, 18)]
    assert lines[0].split("; ")[1].startswith("source ")
    assert len(lines) == 4  # and the bar


def test_a_process_that_does_not_speak_does_not_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = watched(monkeypatch, terminal=True, quiet=True)
    monkeypatch.setattr(live, "measure_so_far", None)
    evaluate(small_model(), small_benchmark(), [Source()], folder=tmp_path, distributed=True)
    assert not shown.getvalue()


def test_the_time_of_a_run_has_parts(tmp_path: Path) -> None:
    timing = Timing()
    (number,) = evaluate(small_model(), small_benchmark(), [Source()], folder=tmp_path, timing=timing)
    with Store(tmp_path, write=False) as store:
        seconds = sum(row.seconds for row in stored_rows(store, number))
    parts = timing.parts()
    assert parts["adapting"] == pytest.approx(seconds, rel=0.1)
    assert list(parts) == ["adapting", "reading", "storing", "bookkeeping"]
    assert all(part > 0 for part in parts.values())
