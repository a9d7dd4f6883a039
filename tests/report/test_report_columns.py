"""What the columns of a table are called, and how they look."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helpers.small_results import FOG_SNOW, fill, only_table
from ttaps.report.outcomes import read_runs
from ttaps.report.protocol import protocol
from ttaps.report.style import METHOD_COLOURS
from ttaps.report.tables import make_tables


@pytest.mark.parametrize(
    ("options", "label"),
    [
        ({"objective": "baseline", "method": "source"}, "Baseline"),
        ({"objective": "jt", "method": "source"}, "JT"),
        ({"objective": "jt"}, "JT TTA"),
        ({"objective": "jt+ent", "method": "source"}, "JT+ENT"),
        ({}, "TTAPS"),
        ({"objective": "baseline"}, "Baseline TTAPS"),
        ({"objective": None, "method": "source"}, "net"),
        ({"objective": None}, "net TTAPS"),
        ({"method": "ttaps:fast"}, "TTAPS (fast)"),
        ({"lr": 0.3}, "TTAPS (lr 0.3)"),
        ({"method": "ttaps:fast", "lr": 0.3}, "TTAPS (fast, lr 0.3)"),
        ({"method": "ttaps:tuned", "adapt_params": "stage3"}, "TTAPS (tuned, adapt_params stage3)"),
        ({"protocol": "online", "lr": 0.3}, "TTAPS (online, lr 0.3)"),
        ({"method": "ttaps:reference", "protocol": "momentum leak"}, "TTAPS (reference)"),
        ({"method": "ttaps:reference"}, "TTAPS (reference, episodic)"),
        ({"objective": "mt3", "method": "source"}, "MT3 source"),
        ({"lr": 0.3, "tau": 0.1, "epsilon": 0.1, "momentum": 0.9}, "TTAPS (epsilon 0.1, lr 0.3, …)"),
    ],
)
def test_columns_have_the_papers_names(tmp_path: Path, options: dict[str, Any], label: str) -> None:
    word = "r" if options.get("method") == "source" else "rr"
    fill(tmp_path, {"fog": [word]}, **options)
    assert only_table(tmp_path).ours[0].label == label


def test_columns_that_would_have_the_same_name_are_told_apart(tmp_path: Path) -> None:
    for prototypes in (30, 300):
        fill(tmp_path / "k", FOG_SNOW, prototypes=prototypes)
    assert [shown.label for shown in only_table(tmp_path / "k").ours] == ["TTAPS, K=30", "TTAPS, K=300"]
    for model in ("long", "short"):  # two trainings with the same seed are not two seeds
        fill(tmp_path / "m", FOG_SNOW, model=model)
    table = only_table(tmp_path / "m")
    assert [shown.label for shown in table.ours] == ["TTAPS, long", "TTAPS, short"]
    colors = {shown.column.color for shown in table.ours if shown.column}
    assert len(colors) == 2


def test_settings_of_one_model_are_columns_of_their_own(tmp_path: Path) -> None:
    """Each named, the default ones first; where there are several K, each says its own. One color in shades, and markers."""
    for prototypes in (30, 300):
        fill(tmp_path, FOG_SNOW, prototypes=prototypes)
    fill(tmp_path, FOG_SNOW, "ttaps:fast")
    fill(tmp_path, FOG_SNOW, "ttaps:reference", protocol="momentum leak")
    fill(tmp_path, FOG_SNOW, "memo", objective="baseline")
    table = only_table(tmp_path)
    assert [shown.label for shown in table.ours] == [
        *("MEMO", "TTAPS (paper), K=30", "TTAPS (paper), K=300", "TTAPS (reference), K=300", "TTAPS (fast), K=300")
    ]
    words = protocol(table)
    assert "ttaps, 1 step, default settings ('paper');" in words[2]
    assert "ttaps, 1 step, settings 'reference': directions mean, momentum 0.9, weight_decay 1e-05;" in words[4]
    assert "settings 'fast': num_pairs 24," in words[5]
    looks = [shown.column.look for shown in table.ours if shown.column]
    assert len({look.color for look in looks}) == len({(look.marker, look.dashes) for look in looks[1:]}) + 1 == 5
    assert (looks[0].color, looks[1].color) == (METHOD_COLOURS["memo"], METHOD_COLOURS["ttaps"])


def test_settings_too_long_for_a_label_are_told_apart_by_all_of_them(tmp_path: Path) -> None:
    for steps in (1, 2):
        fill(tmp_path, FOG_SNOW, num_pairs=2, epsilon=0.1, momentum=0.5, steps=steps)
    ends = [shown.label.rpartition(" ")[2] for shown in only_table(tmp_path).ours]
    assert ends == ["1", "2"]


def test_a_name_has_one_color_everywhere(tmp_path: Path) -> None:
    fill(tmp_path, FOG_SNOW, lr=0.3)
    fill(tmp_path, FOG_SNOW, lr=0.5)
    fill(tmp_path, FOG_SNOW, lr=0.5, data="mine")
    fill(tmp_path, FOG_SNOW, data="mine")
    columns = [shown.column for table in make_tables(read_runs([tmp_path])) for shown in table.ours if shown.column]
    colors = {(column.label, column.color) for column in columns}
    assert len(colors) == len({label for label, _ in colors}) == len({color for _, color in colors}) == 3
