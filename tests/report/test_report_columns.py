"""What the columns of a table are called, and how they look."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helpers.small_results import FOG_SNOW, fill, only_table
from ttaps.adaptation.spec import method_spec, parse_method
from ttaps.report.columns import load_results
from ttaps.report.figures.style import METHOD_COLORS
from ttaps.report.tables import make_tables


@pytest.mark.parametrize(
    ("options", "label", "paper"),
    [
        ({"objective": "baseline", "method": "source"}, "source", "Baseline"),
        ({"objective": "jt", "method": "source"}, "source", "JT"),
        ({"objective": "jt"}, "ttaps", "JT TTA"),
        ({"objective": "jt+ent", "method": "source"}, "source", "JT+ENT"),
        ({}, "ttaps", "TTAPS"),
        ({"objective": "baseline"}, "ttaps", ""),
        ({"objective": None, "method": "source"}, "source", ""),
        ({"method": "ttaps:fast"}, "ttaps:fast", "TTAPS"),
        ({"lr": 0.3}, "ttaps[lr=0.3]", "TTAPS"),
        ({"method": "ttaps:tuned", "adapt_params": "stage3"}, "ttaps:tuned[adapt_params=stage3]", "TTAPS"),
        ({"method": "ttaps:reference"}, "ttaps:reference", "TTAPS"),
        ({"objective": "mt3", "method": "source"}, "source", ""),
        ({"objective": "mt3", "method": "mt3"}, "mt3", "MT3"),
    ],
)
def test_a_label_is_the_spec_and_the_papers_name_stands_beside_it(
    tmp_path: Path, options: dict[str, Any], label: str, paper: str
) -> None:
    fill(tmp_path, {"fog": ["r" if options.get("method") == "source" else "rr"]}, **options)
    (column,) = only_table(tmp_path).columns
    assert (column.label, column.paper_name) == (label, paper)
    assert method_spec(parse_method(column.label)) == label, "a label can be pasted into --methods"


def test_models_are_named_where_there_are_several(tmp_path: Path) -> None:
    for prototypes in (30, 300):
        fill(tmp_path / "k", FOG_SNOW, prototypes=prototypes)
    table = only_table(tmp_path / "k")
    assert [column.label for column in table.columns] == ["ttaps (net, K=30)", "ttaps (net, K=300)"]
    assert [column.head for column in table.columns] == ["ttaps\nTTAPS (net, K=30)", "ttaps\nTTAPS (net, K=300)"]
    for model in ("long", "short"):  # two trainings with the same seed are not two seeds
        fill(tmp_path / "m", FOG_SNOW, model=model)
    table = only_table(tmp_path / "m")
    assert [column.label for column in table.columns] == ["ttaps (long)", "ttaps (short)"]
    assert len({column.style.color for column in table.columns}) == 2
    for objective in ("jt", "jt+ent"):
        for seed in (0, 1):
            fill(tmp_path / "o", FOG_SNOW, model=f"{objective}-seed{seed}", objective=objective, training_seed=seed)
    table = only_table(tmp_path / "o")
    assert [column.label for column in table.columns] == ["ttaps (jt)", "ttaps (jt+ent)"]


def test_models_of_which_nothing_is_known_are_told_apart_by_their_fingerprint(tmp_path: Path) -> None:
    for seed in (1, 2):
        fill(tmp_path, FOG_SNOW, objective=None, model="n", training_seed=seed)
    labels = [column.label for column in only_table(tmp_path).columns]
    assert labels == ["ttaps (n, n-None-300-1)", "ttaps (n, n-None-300-2)"]


def test_settings_of_one_model_are_columns_of_their_own(tmp_path: Path) -> None:
    """In the order of the paper, then of specs; where there are several K, each says its own. One color in shades, and markers."""
    for prototypes in (30, 300):
        fill(tmp_path, FOG_SNOW, prototypes=prototypes)
    fill(tmp_path, FOG_SNOW, "ttaps:fast")
    fill(tmp_path, FOG_SNOW, "ttaps:reference")
    fill(tmp_path, FOG_SNOW, "memo", objective="baseline")
    columns = only_table(tmp_path).columns
    assert [column.label for column in columns] == [
        *("memo (net, baseline)", "ttaps (net, jt+ent, K=30)", "ttaps (net, jt+ent, K=300)"),
        *("ttaps:fast (net, jt+ent, K=300)", "ttaps:reference (net, jt+ent, K=300)"),
    ]
    styles = [column.style for column in columns]
    assert (
        len({style.color for style in styles}) == len({(style.marker, style.dashes) for style in styles[1:]}) + 1 == 5
    )
    assert (styles[0].color, styles[1].color) == (METHOD_COLORS["memo"], METHOD_COLORS["ttaps"])


def test_a_label_has_one_color_everywhere(tmp_path: Path) -> None:
    fill(tmp_path, FOG_SNOW, lr=0.3)
    fill(tmp_path, FOG_SNOW, lr=0.5)
    fill(tmp_path, FOG_SNOW, lr=0.5, data="mine")
    fill(tmp_path, FOG_SNOW, data="mine")
    columns = [column for table in make_tables(load_results([tmp_path])) for column in table.columns]
    colors = {(column.label, column.style.color) for column in columns}
    assert len(colors) == len({label for label, _ in colors}) == len({color for _, color in colors}) == 3
