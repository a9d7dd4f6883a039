"""``ttaps tune``: what is computed together equals each method by itself, the choice follows from stored rows, and the model uses it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch

import ttaps
from helpers.small_model import write_model
from ttaps.adaptation import Augment, Ttaps
from ttaps.adaptation.spec import parse_method
from ttaps.data import ImageSet
from ttaps.data.cifar import CIFAR10_CLASSES
from ttaps.evaluation.plan import Item
from ttaps.model import as_network
from ttaps.tuning import candidates, space, tune, tuner
from ttaps.tuning.candidates import Candidate, adapt_candidates, augment_candidate, ttaps_candidate
from ttaps.tuning.choice import Option, Seen, best, fit_temperature, options

IMAGES = torch.randint(0, 256, (3, 3, 32, 32), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
KEYS = [1, 2, 3]


def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make tuning short: few candidates of few views."""
    monkeypatch.setattr(space, "VIEWS", 4)
    monkeypatch.setattr(candidates, "COUNTS", (2, 4))
    monkeypatch.setattr(space, "STEPS", 2)
    monkeypatch.setattr(tune, "RUNGS", ((3, 0.5), (2, 1.0)))
    monkeypatch.setattr(tune, "LEAST", 1)


def own_images(n: int = 40) -> ImageSet:
    draw = np.random.default_rng(0)
    pixels = draw.integers(0, 256, (n, 3, 32, 32), dtype=np.uint8)
    return ImageSet("own", pixels, np.arange(n) % 10, CIFAR10_CLASSES)


@pytest.mark.parametrize(
    "candidate",
    [
        augment_candidate(Augment(num_views=8)),
        ttaps_candidate(
            Ttaps(steps=2, num_pairs=2, view_pool=4, lr=0.5, tau=0.25, epsilon=0.1, class_codes=True),
        ),
        ttaps_candidate(
            Ttaps(
                steps=2, num_pairs=2, view_pool=4, lr=0.01, normalize_step=True, view_weights="agreement", kl_weight=1.0
            )
        ),
    ],
    ids=lambda candidate: candidate.method.name,
)
def test_candidates_together_are_each_by_itself(tmp_path: Path, candidate: Candidate) -> None:
    network = as_network(ttaps.load(write_model(tmp_path)).network)
    (traces,) = adapt_candidates([candidate], network, IMAGES, KEYS)
    for variant, trace in zip(candidate.variants, traces, strict=True):
        assert torch.allclose(trace, variant.adapt(network, IMAGES, KEYS), atol=1e-5)


def test_fewer_steps_are_the_beginning_of_more(tmp_path: Path) -> None:
    network = as_network(ttaps.load(write_model(tmp_path)).network)
    method = Ttaps(steps=3, num_pairs=2, view_pool=4, lr=0.5)
    assert torch.equal(
        method.adapt(network, IMAGES, KEYS)[:, :2], replace(method, steps=1).adapt(network, IMAGES, KEYS)
    )


def test_options_are_what_the_settings_would_do() -> None:
    """Accuracy with a threshold, computed image by image."""
    draw = np.random.default_rng(0)
    items = [Item(("spatter", "lines", "ripple")[n % 3 * (n > 9)], n % 6, n) for n in range(60)]
    labels, predictions = draw.integers(0, 3, 60), draw.integers(0, 3, (60, 3))
    seen = Seen(items, labels, draw.random(60), draw.random(60), np.linspace(0, 1, 101))
    for option in options(Ttaps(steps=2), 0, predictions, seen):
        method = option.method
        assert isinstance(method, Ttaps)
        gains: dict[str, dict[int, list[int]]] = {}
        for n, item in enumerate(items):
            skipped = seen.confidence[n] >= method.confidence_threshold or seen.distance[n] < method.shift_threshold
            step = 0 if skipped else method.steps
            change = int(predictions[n, step] == labels[n]) - int(predictions[n, 0] == labels[n])
            gains.setdefault(item.corruption, {}).setdefault(item.severity, []).append(change)
        each = [100 * np.mean([np.mean(one) for one in own.values()]) for own in gains.values()]
        assert option.gain == pytest.approx(np.mean(each))
        assert option.low == pytest.approx(np.mean(each) - scipy.stats.sem(each))
        assert option.clean == pytest.approx(100 * np.mean([one for own in gains.values() for one in own.get(0, [])]))


def test_a_gain_under_every_corruption_is_chosen_before_a_larger_one_under_one() -> None:
    """Two candidates on 90 images under three corruptions: the first is right about all of one, the second about a fifth of each."""
    items = [Item(("spatter", "lines", "ripple")[n % 3], 1 + n % 2, n) for n in range(90)]
    wrong = np.zeros((90, 2), dtype=np.int64)
    one, every = wrong.copy(), wrong.copy()
    one[0::3, 1], every[:18, 1] = 1, 1
    seen = Seen(items, np.ones(90, dtype=np.int64), np.zeros(90), np.ones(90), np.linspace(0, 1, 101))
    first, second = (max(options(Ttaps(steps=1), n, p, seen), key=lambda o: o.low) for n, p in enumerate((one, every)))
    assert first.gain > second.gain
    assert best([first, second]) is second


def test_the_guard_refuses_what_harms_clean_images() -> None:
    harmful, mild, dear = (
        Option(Ttaps(), 0, 5.0, 5.0, -0.2, 0.5, 1.0),
        Option(Ttaps(), 1, 2.0, 2.0, -0.1, 0.5, 1.0),
        Option(Ttaps(), 1, 2.04, 2.04, 0.0, 0.5, 9.0),
    )
    assert best([harmful, mild, dear]) is mild  # cheaper, and as good within 0.05 points
    assert best([harmful]) is harmful


def test_the_temperature_that_made_the_labels_is_found() -> None:
    draw = np.random.default_rng(0)
    logits = draw.normal(size=(20_000, 5)) * 3
    true = np.exp(logits / 2) / np.exp(logits / 2).sum(1, keepdims=True)
    labels = (true.cumsum(1) < draw.random(20_000)[:, None]).sum(1)
    sharp = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert fit_temperature(sharp, labels) == pytest.approx(2.0, abs=0.1)


def test_a_stopped_run_resumes_to_the_same_choice_and_the_model_uses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch)
    folder = write_model(tmp_path / "model")
    whole = ttaps.tune(folder, own_images(), images=24, results=tmp_path / "whole", out=tmp_path / "elsewhere")
    saved, original = 0, tuner.Tuner._adapt

    def stopped(*arguments: object) -> None:
        nonlocal saved
        saved += 1
        if saved == 3:
            raise KeyboardInterrupt
        original(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(tuner.Tuner, "_adapt", stopped)
    with pytest.raises(KeyboardInterrupt):
        ttaps.tune(folder, own_images(), images=24, results=tmp_path / "part")
    monkeypatch.setattr(tuner.Tuner, "_adapt", original)
    found = ttaps.tune(folder, own_images(), images=24, results=tmp_path / "part")
    assert (found.ttaps, found.augment) == (whole.ttaps, whole.augment)
    model = ttaps.load(folder)
    assert parse_method("ttaps:tuned", presets=model.presets) == found.ttaps
    assert parse_method("augment:tuned", presets=model.presets) == found.augment
    assert torch.equal(ttaps.adapt(model, IMAGES).trace, ttaps.adapt(ttaps.load(folder), IMAGES, found.ttaps).trace)
    assert ttaps.adapt(model, IMAGES[0]).shift is not None
