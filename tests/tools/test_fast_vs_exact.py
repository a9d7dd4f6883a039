"""What fast mode costs in accuracy, against rows written by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

import fast_vs_exact
from fast_vs_exact import fast_minus_exact
from helpers.bonett_price import paired_difference
from helpers.small_model import write_model
from helpers.small_results import FOG_SNOW, Traces, fill
from ttaps.cli import main
from ttaps.errors import TtapsError

NET = "net-jt+ent-300-0"
"""The fingerprint of the model whose rows are written by hand."""
FAST: Traces = {
    "fog": ["wr", "wr", "wr", "ww", "rw", "rr", "rr", "rr", "ww", "ww"],
    "snow": FOG_SNOW["snow"],
}
"""One image of fog better than exact mode's, one worse."""


def test_fast_minus_exact_is_the_paired_difference_of_stored_rows(tmp_path: Path) -> None:
    fill(tmp_path, FOG_SNOW)
    fill(tmp_path, FAST, "ttaps:fast")
    fill(tmp_path, FAST, "ttaps:fast", lr=0.3)
    found = fast_minus_exact(tmp_path, NET)
    assert found is not None
    assert (found["points"], found["n"], found["fixed"], found["broken"], found["corruptions"]) == (0.0, 20, 1, 1, 2)
    assert found["low"] < 0 < found["high"]
    assert fast_minus_exact(tmp_path, "other weights") is None


def test_fast_minus_exact_takes_the_larger_data_set_of_corrupted_images(tmp_path: Path) -> None:
    for method, words in (("ttaps", ["rw", "rw", "rr"]), ("ttaps:fast", ["rr", "rr", "rr"])):
        fill(tmp_path, {"fog": words}, method, data="sample", digest="d2")
        fill(tmp_path, {"fog": words[:2]}, method)
        fill(tmp_path, {"clean": words * 9}, method, data="cifar10", digest="d3", severity=0)
    found = fast_minus_exact(tmp_path, NET)
    points, interval = paired_difference(2, 0, 3)
    assert found is not None
    assert (found["data"], found["n"]) == ("sample", 3)
    assert (found["points"], found["low"], found["high"]) == pytest.approx(
        (100 * points, *(100 * end for end in interval))
    )


@pytest.mark.parametrize("traces", [{"fog": ["rr"]}, {}])
def test_fast_alone_is_no_comparison(tmp_path: Path, traces: Traces) -> None:
    fill(tmp_path, traces)
    fill(tmp_path, {"snow": ["rr"]}, "ttaps:fast")
    assert fast_minus_exact(tmp_path, NET) is None


def test_the_difference_is_printed_from_an_evaluation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results, model = tmp_path / "results", write_model(tmp_path / "small")
    options = ("--data", "sample", "--corruptions", "fog,snow", "--limit", "2", "--methods", "ttaps,ttaps:fast")
    assert main(["evaluate", str(model), *options, "--out", str(results)]) == 0
    fast_vs_exact.main(str(model), str(results))
    assert capsys.readouterr().out.endswith(" 95 %), on 4 images of sample.\n")
    with pytest.raises(TtapsError, match="no images evaluated by both"):
        fast_vs_exact.main("cifar10", str(results))
