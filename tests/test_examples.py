"""Every example runs as it stands; those that train do so for one epoch."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from ttaps.adaptation import METHODS

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
WORDS = {
    "adapt_one_image": "label:",
    "new_method": "mirror[weight=0.3]",
    "own_data": "ttaps:tuned",
    "own_module": "tent",
    "sweep": "ttaps:tuned[steps=1]",
}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(example), *(["--epochs", "0.25"] if example.stem == "own_data" else [])])
    monkeypatch.setitem(METHODS, "mirror", METHODS["source"])  # taken back afterwards
    runpy.run_path(str(example), run_name="__main__")
    assert WORDS[example.stem] in capsys.readouterr().out
    assert example.stem != "own_data" or {"learning.png", "report.html"} <= {
        path.name for path in (tmp_path / "runs" / "mine").iterdir()
    }
