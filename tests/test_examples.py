"""Every example runs as it stands; training starts from a tiny network, and the notebook evaluates few images."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

import ttaps
from helpers.small_model import SIZES, write_model
from ttaps.adaptation import METHODS

EXAMPLES = Path(__file__).parents[1] / "examples"
WORDS = {
    "adapt_one_image": "label:",
    "new_method": "mirror[weight=0.3]",
    "own_data": "ttaps:tuned",
    "own_module": "tent",
    "sweep": "ttaps:tuned[steps=2,lr=0.01]",
}


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_runs(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(example), *(["--epochs", "1"] if example.stem == "own_data" else [])])
    monkeypatch.setitem(METHODS, "mirror", METHODS["source"])  # taken back afterwards
    small: dict[str, Any] = {"init_from": str(write_model(tmp_path / "small")), "model": SIZES}
    train = ttaps.train
    monkeypatch.setattr(ttaps, "train", lambda *args, **options: train(*args, **{**options, **small}), raising=False)
    runpy.run_path(str(example), run_name="__main__")
    assert WORDS[example.stem] in capsys.readouterr().out
    assert example.stem != "own_data" or {"learning.png", "report.html"} <= {
        path.name for path in (tmp_path / "runs" / "mine").iterdir()
    }


def test_the_notebook_runs_and_has_its_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setitem(sys.modules, "umap", None)  # a map by PCA takes no time
    text = (EXAMPLES / "ttaps.ipynb").read_text("utf-8")
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] for cell in cells), "python tools/run_notebook.py stores them"
    assert len(text) < 1_000_000
    code = "\n".join("".join(cell["source"]) for cell in cells)
    for many, few in (("images_per_corruption=50", "images_per_corruption=4"), ("projections=500", "projections=40")):
        assert many in code
        code = code.replace(many, few)
    exec(code, {})
    assert (tmp_path / "report.html").exists()
