"""Every method: two shards in groups of one give the rows of one process in larger groups, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from helpers.small_evaluation import CLASSES, results, small_benchmark
from ttaps.adaptation import METHODS
from ttaps.adaptation.spec import parse_method
from ttaps.evaluation.plan import Shard
from ttaps.evaluation.run import evaluate
from ttaps.model import ModelConfig, Network
from ttaps.model.checkpoint import Model, fingerprint

STEPS = {"tent": {"steps": 1}, "memo": {"num_views": 2}, "ttt": {"steps": 1, "num_views": 2}, "mt3": {"num_pairs": 2}}
STEPS["ttaps"] = {"steps": 1, "num_pairs": 2}
STEPS |= {
    "t3a": {"online": False},
    "lame": {"batch_size": 1},
    "cotta": {"online": False, "num_views": 2},
}  # else the order counts


def model_for(method: str) -> Model:
    """Return an untrained network that has what the method needs."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        norm = "batch" if method == "bn" else "group"
        shape = ModelConfig(
            num_classes=3, width=4, num_groups=4, depth=8, num_prototypes=5, image_size=8, classifier_scale=30.0
        )
        config = ModelConfig(**{**vars(shape), "norm": norm, "heads": ("rotation", "predictor")})
        network = Network(config).eval()
    return Model(network, CLASSES, "small", fingerprint(network))


@pytest.mark.parametrize("name", METHODS)
def test_shards_of_every_method_are_the_whole(name: str, tmp_path: Path) -> None:
    model, data, method = model_for(name), small_benchmark(4), parse_method(name, STEPS.get(name, {}))
    evaluate(model, data, [method], folder=tmp_path / "whole")
    for shard in ("1/2", "2/2"):
        evaluate(model, data, [method], folder=tmp_path / "parts", plan=data.plan(shard=Shard.parse(shard)), group=1)
    whole = results(tmp_path / "whole")
    assert len(whole[name, 0]) == 12
    assert results(tmp_path / "parts") == whole
