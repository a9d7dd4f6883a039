"""Figures with images: all that is written in them can be read, and is true."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg

from ttaps.adaptation import Result
from ttaps.evaluation.statistics import AVERAGE, STATISTICS
from ttaps.report.figures import images
from ttaps.report.figures.images import Tile, adaptation_figure, demo_figure, mosaic

CAPTION = (
    "Images whose label changed come first, for better or worse; all images count in the numbers.",
    "Model jt+ent-cifar10 (0123456789ab); severity 5; method ttaps:tuned.",
)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the figures that would have been saved."""
    found: list[Any] = []
    monkeypatch.setattr(images, "save_figure", lambda figure, path: found.append(figure))
    return found


def words_of(figure: Any) -> dict[str, Any]:
    """Return all that is written in a figure, and where."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    return {text.get_text(): text.get_window_extent(renderer) for axes in figure.axes for text in axes.texts}


@pytest.mark.parametrize("count", [1, 5])
def test_words_stay_inside_the_figure_and_off_the_chart(count: int, drawn: list[Any]) -> None:
    tile = Tile(np.zeros((3, 32, 32), dtype=np.uint8), "automobile", "automobile", "truck")
    line = dict.fromkeys(STATISTICS, 0.0) | {"before": 100.0, "after": 100.0, "before_low": 20.0, "after_low": 20.0}
    line |= {"before_high": 100.0, "after_high": 100.0}
    numbers = pd.DataFrame([line] * 2, index=pd.MultiIndex.from_tuples([("gaussian_noise", 5), (AVERAGE, 0)]))
    demo_figure(Path("unused.png"), {"gaussian_noise": [tile] * count}, numbers, f"TTAPS on {count} images", CAPTION)
    (figure,) = drawn
    boxes, chart = words_of(figure), figure.axes[-1]
    assert {words: box for words, box in boxes.items() if box.x0 < 0 or box.x1 > figure.bbox.x1} == {}
    left = chart.get_window_extent().x0
    caption = next(box for words, box in boxes.items() if words.startswith("Images"))
    assert caption.x1 < left
    assert caption.height < chart.get_window_extent().height / len(numbers)


def test_what_is_no_number_has_no_label(drawn: list[Any]) -> None:
    result = Result(torch.tensor([[0.9, 0.1], [float("nan")] * 2]), ("cat", "dog"))
    image, views = torch.zeros(3, 8, 8, dtype=torch.uint8), torch.zeros(0, 3, 8, 8)
    adaptation_figure(Path("one.png"), ["one"], [image], [views], [result])
    assert list(words_of(drawn[0]))[:2] == ["before: cat 90%", "after: none"]


def test_views_are_laid_out_in_rows() -> None:
    views = np.stack([np.full((3, 2, 2), value) for value in (0.1, 0.2, 0.3, 0.4, 0.5)])
    wall = mosaic(views)
    assert wall.shape == (6, 14, 3)
    assert [wall[0, 4 * place, 0] for place in range(4)] == [0.1, 0.2, 0.3, 0.4]
    assert (wall[4, 0, 0], wall[4, 4, 0], wall[2, 0, 0]) == (0.5, 1, 1)


def test_only_twenty_images_are_drawn(drawn: list[Any]) -> None:
    result = Result(torch.tensor([[0.9, 0.1]]), ("cat", "dog"))
    image, views = torch.zeros(3, 8, 8, dtype=torch.uint8), torch.zeros(2, 3, 8, 8)
    adaptation_figure(Path("many.png"), ["$x$"] * 21, [image] * 21, [views] * 21, [result] * 21)
    assert len(drawn[0].axes) == 20 * 4
