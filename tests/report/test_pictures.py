"""Figures of pictures: all that is written in them can be read, and is true."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg

from ttaps.adaptation import Result
from ttaps.cli.demo import METHOD
from ttaps.evaluate.summary import AVERAGE, Accuracy, Difference, Line
from ttaps.report import pictures
from ttaps.report.pictures import Tile, adaptation_figure, demo_figure

CAPTION = (
    "Pictures whose label changed come first, for better or worse; all pictures count in the numbers.",
    f"Model jt+ent-cifar10 (0123456789ab); severity 5; method {METHOD}.",
)


@pytest.mark.parametrize("count", [1, 5])
def test_words_stay_inside_the_figure_and_off_the_chart(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(pictures, "save_figure", lambda figure, path: drawn.append(figure))
    tile = Tile(np.zeros((3, 32, 32), dtype=np.uint8), "automobile", "automobile", "truck")
    all_right = Accuracy(100.0, 20.0, 100.0)
    lines = [Line(name, 5, 1, all_right, all_right, Difference(0.0, -9.0, 9.0, 1.0, 0, 0)) for name in ("fog", AVERAGE)]
    demo_figure(Path("unused.png"), {"fog": [tile] * count}, lines, f"TTAPS on {count} pictures", CAPTION)
    (figure,) = drawn
    renderer = FigureCanvasAgg(figure).get_renderer()
    wall, chart = figure.axes
    boxes = {words.get_text(): words.get_window_extent(renderer) for axes in (wall, chart) for words in axes.texts}
    assert {words: box for words, box in boxes.items() if box.x0 < 0 or box.x1 > figure.bbox.x1} == {}
    left = chart.get_window_extent(renderer).x0
    caption = next(box for words, box in boxes.items() if words.startswith("Pictures"))
    assert caption.x1 < left
    assert caption.height < chart.get_window_extent(renderer).height / len(lines)


def test_what_is_no_number_has_no_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words: list[str] = []
    monkeypatch.setattr("ttaps.report.pictures.write", lambda axes, x, y, text, **style: words.append(text))
    result = Result(torch.tensor([[0.9, 0.1], [float("nan")] * 2]), ("cat", "dog"))
    picture, views = torch.zeros(3, 8, 8, dtype=torch.uint8), torch.zeros(0, 3, 8, 8)
    adaptation_figure(tmp_path / "one.png", ["one"], [picture], [views], [result])
    assert words[:2] == ["before: cat 90%", "after: none"]
