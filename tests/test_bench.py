"""``ttaps bench``: operations against counts by layer, and what is printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from helpers.small_model import SMALL, write_model
from ttaps.adaptation import Ttaps
from ttaps.bench import (
    TRAIN_BATCH,
    Suite,
    exact_operations,
    interleaved,
    make_trainer,
    operations,
    quartiles,
    sample_images,
)
from ttaps.cli import main
from ttaps.cli.bench import MEANING
from ttaps.model import Network
from ttaps.views import CropViews, SwavViews


def test_half_of_the_rounds_lie_between_the_quartiles() -> None:
    assert quartiles(np.array([5.0, 1.0, 4.0, 2.0, 3.0])) == [2.0, 4.0]
    assert quartiles(np.array([7.0])) == [7.0, 7.0]


def test_functions_take_turns_and_each_is_timed_alone() -> None:
    now, order = [0.0], []

    def taking(name: str, seconds: float) -> Callable[[], None]:
        def work() -> None:
            order.append(name)
            now[0] += seconds

        return work

    times = interleaved({"a": taking("a", 1.0), "b": taking("b", 3.0)}, 2, clock=lambda: now[0])
    assert order == ["a", "b", "a", "b"]
    assert {name: taken.tolist() for name, taken in times.items()} == {"a": [1.0, 1.0], "b": [3.0, 3.0]}


def test_there_are_images_for_any_number_of_threads() -> None:
    images = sample_images(18 * 64)
    assert len(images.flatten(1).unique(dim=0)) == 18 * 64


def test_operations_are_counted_forwards_and_backwards() -> None:
    layer, image = nn.Conv2d(3, 5, 3, padding=1, bias=False), torch.rand(2, 3, 8, 8)
    # a product and a sum for each image, pixel, output, input and place in the window
    forward = 2 * 2 * 8 * 8 * 5 * 3 * 3 * 3
    assert operations(lambda: layer(image)) == forward
    assert operations(lambda: layer(image).sum().backward()) == 2 * forward
    assert operations(lambda: layer(image.clone().requires_grad_()).sum().backward()) == 3 * forward


def by_layer(network: Network) -> dict[str, int]:
    """Return the operations of every layer for one image, from the shapes of what it takes and gives."""
    found: dict[str, int] = {}

    def note(name: str) -> Callable[[nn.Module, Any, torch.Tensor], None]:
        return lambda layer, _, out: found.update({name: 2 * out[0].numel() * layer.get_parameter("weight")[0].numel()})

    layers = {name: layer for name, layer in network.named_modules() if isinstance(layer, nn.Conv2d | nn.Linear)}
    handles = [layer.register_forward_hook(note(name)) for name, layer in layers.items()]
    with torch.no_grad():
        network(torch.rand(1, 3, network.config.image_size, network.config.image_size))
    for handle in handles:
        handle.remove()
    return found


def test_exact_mode_needs_what_its_layers_need(tiny_network: Network) -> None:
    method = Ttaps(steps=3, num_pairs=4)
    layers = by_layer(tiny_network)
    adapted = sum(count for name, count in layers.items() if name.startswith("backbone.stage3"))
    # nobody asks for its input's gradient
    entrance = layers["backbone.stage3.0.conv1"] + layers["backbone.stage3.0.shortcut.0"]
    projector = sum(count for name, count in layers.items() if name.startswith("projector"))
    frozen = sum(layers.values()) - adapted - projector - layers["classifier"]
    scores = 2 * tiny_network.prototypes.numel()
    # no gradient for the projector's weights or the prototypes
    step = frozen + 3 * adapted - entrance + 2 * (projector + scores)
    predict = adapted + projector + layers["classifier"]
    image = torch.zeros(1, 3, 8, 8, dtype=torch.uint8)
    expected = frozen + predict + 3 * (8 * step + predict)
    assert exact_operations(tiny_network, method, image) == expected


def test_a_training_step_needs_what_its_layers_need() -> None:
    run = make_trainer(Network(SMALL))
    layers, batch = by_layer(run.network), run.batch(0)
    encoder = sum(layers.values()) - layers["classifier"]
    # two for SwAV and a crop; nobody asks for an image's gradient
    views = 3 * (3 * encoder - layers["backbone.stem.0"])
    scores, classes = 2 * 3 * 2 * run.network.prototypes.numel(), 3 * layers["classifier"]
    # the last is the entropy term's
    expected = TRAIN_BATCH * (views + scores + classes) + SMALL.num_prototypes * classes
    kinds: dict[str, SwavViews | CropViews] = {"s": SwavViews(), "t": SwavViews(), "crop": CropViews()}
    making = operations(lambda: [batch.views(kind, name) for name, kind in kinds.items()])
    assert operations(lambda: run.step(0)) - making == expected


def test_everything_is_measured_and_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_model(tmp_path / "small")
    assert main(["bench", "--model", str(folder), "--rounds", "1", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert all(result[name] > 0 and result["quartiles"][name] == [result[name]] * 2 for name in MEANING)
    assert (result["threads"], result["rounds"], result["fast_skipped"]) == (1, 1, 0.0)

    monkeypatch.setattr(Suite, "run", lambda suite, rounds, done: result)
    assert main(["bench", "--model", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in MEANING)
    assert "threads: 1, rounds: 1" in printed


def test_wrong_rounds_are_refused_before_anything_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--rounds", "0"]) == 2
    assert "--rounds must be at least 1" in capsys.readouterr().err
