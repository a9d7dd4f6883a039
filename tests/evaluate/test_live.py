"""What is shown while a run goes on: the numbers of the final table, in 80 columns, at a bounded cost."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import pytest
from rich.console import Console

from helpers.small_evaluation import METHODS, small_benchmark, small_model
from ttaps import progress
from ttaps.adaptation import Source
from ttaps.evaluate import Plan, Shard, Store, evaluate, live, run, summarize
from ttaps.evaluate.coverage import Tally, found, stored
from ttaps.evaluate.summary import Accuracy, Difference, Line
from ttaps.evaluate.timing import Spent


def watched(monkeypatch: pytest.MonkeyPatch, terminal: bool, quiet: bool = False) -> io.StringIO:
    """Let a run show itself to a console of 80 columns, and return what that is given."""
    file = io.StringIO()
    console = Console(file=file, width=80, force_terminal=terminal, color_system=None, quiet=quiet)
    monkeypatch.setattr(run, "bar", lambda: progress.bar(console))
    monkeypatch.setattr(progress, "stderr", console)
    monkeypatch.setattr(live, "LOOK_EVERY", 0.0)
    monkeypatch.setattr(live, "SAY_EVERY", 0.0)
    monkeypatch.setattr(live, "SELDOM", 0)
    return file


def whole_plan(limit: int | None = None, shard: str = "1/1") -> Plan:
    data = small_benchmark()
    return Plan(data.labels, data.corruptions, data.severities, limit, Shard.parse(shard))


@pytest.mark.parametrize("shard", ["1/1", "2/3"])
@pytest.mark.parametrize("limit", [None, 4])
def test_the_grid_of_a_plan_has_its_images(shard: str, limit: int | None) -> None:
    plan = whole_plan(limit, shard)
    grid = plan.grid()
    assert grid.sum() == len(plan) == len(list(plan))
    assert all(grid[plan.places.index(item[:2]), item.image] for item in plan)


def test_a_tally_says_what_the_final_table_says(tmp_path: Path) -> None:
    numbers = evaluate(small_model(), small_benchmark(), METHODS, (0, 1), folder=tmp_path, limit=5)
    tallies = [Tally(whole_plan()) for _ in numbers]
    with Store(tmp_path, write=False) as store:
        for tally, number in zip(tallies, numbers, strict=True):
            tally.add(store.outcomes(number))
            assert found([tally]) == summarize(store, number).average
        assert stored(store, numbers, whole_plan()) == 4 * 15
        assert stored(store, numbers, whole_plan(limit=2)) == 4 * 6
    assert found([Tally(whole_plan())]) is None
    once, twice = found(tallies[:1]), found(tallies[:2])
    assert once
    assert twice
    # The same again with another seed: no more is known than before.
    assert twice.n == 2 * once.n
    assert dataclasses.astuple(twice.after) == pytest.approx(dataclasses.astuple(once.after))


def test_a_terminal_shows_a_table_until_the_run_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    file, plan = watched(monkeypatch, terminal=True), whole_plan()
    source, ttaps = Tally(plan), Tally(plan)
    with progress.bar(progress.stderr) as shown:
        table = live.Live(shown, "Evaluating small", {"source": [source], "ttaps fast": [ttaps]}, plan)
        for image in range(4):
            source.add([("fog", 5, image, image > 0, image > 0), ("snow", 5, image, True, True)])
            ttaps.add([("fog", 5, image, image > 0, True)])
        table.more(12)
        shown.refresh()
        lines = file.getvalue().splitlines()[-4:]
        table.end()
        assert shown.below is None
    assert "12/36" in lines[0]
    assert [line.rstrip() for line in lines[1:]] == [
        "average so far         n  before  after        95 % change             95 %",
        "source                 8    87.5   87.5   31.6-99.1",
        "ttaps fast             4    75.0  100.0  51.0-100.0  +25.0   -38.3 to +71.7",
    ]
    assert "12/36" in file.getvalue().splitlines()[-2]  # the last one brings the cursor back


def test_a_line_of_the_table_fits() -> None:
    wide = Line(
        "Avg.", None, 1_350_000, Accuracy(100, 99.9, 100), Accuracy(0, 0, 0.1), Difference(-99, -100, -98, 0, 0, 0)
    )
    table = live.live_table({"source": wide, "ttaps with a very long name": wide}, 80 - live.NUMBERS, several=False)
    assert [len(line) for line in table.splitlines()] == [80] * 3
    assert table.splitlines()[2].startswith("ttaps with a very …")


def test_elsewhere_there_is_a_line_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = watched(monkeypatch, terminal=False)
    evaluate(small_model(), small_benchmark(), [Source()], folder=tmp_path, group=6)
    lines = shown.getvalue().splitlines()
    assert [line.split("; ")[0] for line in lines[:3]] == [f"Evaluating small: {n} of 18 results" for n in (6, 12, 18)]
    assert lines[0].split("; ")[1].startswith("source ")
    assert len(lines) == 4  # and the bar


def test_a_process_that_does_not_speak_does_not_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = watched(monkeypatch, terminal=True, quiet=True)
    monkeypatch.setattr(live, "found", None)
    evaluate(small_model(), small_benchmark(), [Source()], folder=tmp_path, together=True)
    assert not shown.getvalue()


def test_the_time_of_a_run_has_parts(tmp_path: Path) -> None:
    spent = Spent()
    (number,) = evaluate(small_model(), small_benchmark(), [Source()], folder=tmp_path, spent=spent)
    with Store(tmp_path, write=False) as store:
        seconds = sum(row.seconds for row in store.rows(number))
    assert spent.adapting == pytest.approx(seconds, rel=0.1)
    assert sum(spent.parts().values()) == pytest.approx(spent.whole)
    assert all(part > 0 for part in spent.parts().values())
