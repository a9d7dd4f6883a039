"""``ttaps bench``: counts against counts by layer, memory against memory that is known, accuracy against rows written by hand."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from helpers.small_model import SMALL, write_model
from helpers.small_results import FOG_SNOW, Traces, fill
from ttaps.adaptation import Ttaps
from ttaps.adaptation.presets import PRESETS
from ttaps.api import load
from ttaps.bench import fast_vs_exact
from ttaps.bench.fast_vs_exact import fast_minus_exact
from ttaps.bench.measure import Rounds, interleaved, operations, peak_memory
from ttaps.bench.suite import GROWTH, TRAIN_BATCH, Suite, exact_operations, sample_images, training_run, utilisation
from ttaps.cli import main
from ttaps.cli.bench import MEANING
from ttaps.errors import TtapsError
from ttaps.evaluate.statistics import paired_difference
from ttaps.model import Network
from ttaps.views import CropViews, SwavViews

NET = "net-jt+ent-300-0"
"""The fingerprint of the model whose rows are written by hand."""
FAST: Traces = {
    "fog": ["wr", "wr", "wr", "ww", "rw", "rr", "rr", "rr", "ww", "ww"],
    "snow": FOG_SNOW["snow"],
}
"""One image of fog better than exact mode's, one worse."""


def test_rounds_have_the_middle_and_the_quartiles_of_their_numbers() -> None:
    five = Rounds((5.0, 1.0, 4.0, 2.0, 3.0))
    assert (five.median, five.quartiles) == (3.0, (2.0, 4.0))
    assert Rounds((7.0,)).quartiles == (7.0, 7.0)
    assert five.times(2).over(five).values == (2.0,) * 5
    assert utilisation(6, five, 2.0).values == (0.6, 3.0, 0.75, 1.5, 1.0)


def test_functions_take_turns_and_each_is_timed_alone() -> None:
    now, order = [0.0], []

    def taking(name: str, seconds: float) -> Callable[[], None]:
        def work() -> None:
            order.append(name)
            now[0] += seconds

        return work

    times = interleaved({"a": taking("a", 1.0), "b": taking("b", 3.0)}, 2, clock=lambda: now[0])
    assert order == ["a", "b", "a", "b"]
    assert times == {"a": Rounds((1.0, 1.0)), "b": Rounds((3.0, 3.0))}


def test_peak_memory_is_that_of_the_call_and_not_of_its_parent() -> None:
    held = b"x" * (400 << 20)  # more than the call needs: a child that began with this would find nothing
    assert peak_memory(operator.mul, b"x", 200 << 20) == pytest.approx(200, abs=5)
    assert len(held) == 400 << 20


def test_there_are_images_for_any_number_of_threads() -> None:
    images = sample_images(18 * 64)
    assert len(images.flatten(1).unique(dim=0)) == 18 * 64


def test_operations_are_counted_forwards_and_backwards() -> None:
    layer, image = nn.Conv2d(3, 5, 3, padding=1, bias=False), torch.rand(2, 3, 8, 8)
    forward = (
        2 * 2 * 8 * 8 * 5 * 3 * 3 * 3
    )  # a product and a sum for each image, pixel, output, input and place in the window
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
    entrance = (
        layers["backbone.stage3.0.conv1"] + layers["backbone.stage3.0.shortcut.0"]
    )  # nobody asks for its input's gradient
    projector = sum(count for name, count in layers.items() if name.startswith("projector"))
    frozen = sum(layers.values()) - adapted - projector - layers["classifier"]
    scores = 2 * tiny_network.prototypes.numel()
    step = (
        frozen + 3 * adapted - entrance + 2 * (projector + scores)
    )  # no gradient for the projector's weights or the prototypes
    predict = adapted + projector + layers["classifier"]
    image = torch.zeros(1, 3, 8, 8, dtype=torch.uint8)
    expected = frozen + predict + 3 * (8 * step + predict)
    assert exact_operations(tiny_network, method, image) == expected


def test_a_training_step_needs_what_its_layers_need() -> None:
    run = training_run(Network(SMALL))
    layers, batch = by_layer(run.network), run.batch(0)
    encoder = sum(layers.values()) - layers["classifier"]
    views = 3 * (
        3 * encoder - layers["backbone.stem.0"]
    )  # two for SwAV and a crop; nobody asks for a picture's gradient
    scores, classes = 2 * 3 * 2 * run.network.prototypes.numel(), 3 * layers["classifier"]
    expected = (
        TRAIN_BATCH * (views + scores + classes) + SMALL.num_prototypes * classes
    )  # the last is the entropy term's
    kinds: dict[str, SwavViews | CropViews] = {"s": SwavViews(), "t": SwavViews(), "crop": CropViews()}
    making = operations(lambda: [batch.views(kind, name) for name, kind in kinds.items()])
    assert operations(lambda: run.step(0)) - making == expected


def test_fast_minus_exact_is_the_paired_difference_of_stored_rows(tmp_path: Path) -> None:
    fill(tmp_path, FOG_SNOW)
    fill(tmp_path, FAST, "ttaps:fast")
    fill(tmp_path, FAST, "ttaps:fast", lr=0.3)
    found = fast_minus_exact("net", NET, tmp_path)
    assert found is not None
    assert (found["points"], found["n"], found["fixed"], found["broken"], found["corruptions"]) == (0.0, 20, 1, 1, 2)
    assert found["low"] < 0 < found["high"]
    assert fast_minus_exact("net", "other weights", tmp_path) is None


def test_fast_minus_exact_takes_the_larger_data_set_of_corrupted_images(tmp_path: Path) -> None:
    for method, words in (("ttaps", ["rw", "rw", "rr"]), ("ttaps:fast", ["rr", "rr", "rr"])):
        fill(tmp_path, {"fog": words}, method, data="sample", digest="d2")
        fill(tmp_path, {"fog": words[:2]}, method)
        fill(tmp_path, {"clean": words * 9}, method, data="cifar10", digest="d3", severity=0)
    found = fast_minus_exact("net", NET, tmp_path)
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
    assert fast_minus_exact("net", NET, tmp_path) is None


def test_the_file_beside_a_model_counts_for_its_weights_and_settings_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, model = tmp_path / "results", write_model(tmp_path / "small")
    options = ("--data", "sample", "--corruptions", "fog,snow", "--limit", "2", "--methods", "ttaps,ttaps:fast")
    assert main(["evaluate", str(model), *options, "--out", str(results)]) == 0
    weights = load(str(model)).fingerprint
    assert fast_minus_exact(str(model), weights) is None
    fast_vs_exact.main(str(model), str(results))
    found = fast_minus_exact(str(model), weights)
    assert found is not None
    assert found == fast_minus_exact(str(model), weights, results)
    assert fast_minus_exact(str(model), "other weights") is None
    with monkeypatch.context() as patch:
        patch.setitem(PRESETS["ttaps"], "fast", {"view_pool": 64})
        assert fast_minus_exact(str(model), weights) is None
    (model / fast_vs_exact.FILE).write_text("{}")
    with pytest.raises(TtapsError, match="is damaged"):
        fast_minus_exact(str(model), weights)
    with pytest.raises(TtapsError, match="no images evaluated by both"):
        fast_vs_exact.main("cifar10", str(results))


def test_everything_is_measured_printed_and_said_to_machines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ttaps.bench.suite.peak_memory", lambda function, *arguments: 12.0)
    model = str(write_model(tmp_path / "small"))
    assert main(["bench", "--model", model, "--rounds", "1", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["fast_minus_exact_points"] is None
    ratios = [name for name in MEANING if name != "fast_minus_exact_points"]
    assert all(result[name] > 0 and result["quartiles"][name] == [result[name]] * 2 for name in ratios)
    assert list(result["time_per_image_relative_to_one"]) == [str(count) for count in GROWTH]
    assert (result["threads"], result["rounds"], result["fast_left_alone"]) == (1, 1, 0.0)

    fill(tmp_path, FOG_SNOW)
    fill(tmp_path, FAST, "ttaps:fast")
    monkeypatch.setattr(Suite, "measure", lambda suite, rounds, done: result)
    monkeypatch.setattr("ttaps.cli.bench.fast_minus_exact", lambda name, _, folder: fast_minus_exact(name, NET, folder))
    assert main(["bench", "--model", model, "--results", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in MEANING)
    assert "20 paired images of cifar10-c, 2 corruptions" in printed
    assert "1 thread, 1 round in turns" in printed


def test_wrong_options_are_told_before_anything_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--rounds", "0"]) == 2
    assert "--rounds must be at least 1" in capsys.readouterr().err
    assert main(["bench", "--results", str(tmp_path)]) == 1
    assert "There are no results in" in capsys.readouterr().err
