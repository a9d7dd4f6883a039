"""Training against independent references, and that a killed run ends as if nothing had happened."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partialmethod
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from torch import nn

from helpers.small_training import SHORT, TINY
from ttaps.data import ImageSet
from ttaps.errors import CheckpointError, TtapsError, UsageError
from ttaps.files import file_lock
from ttaps.losses import prototype_entropy, sinkhorn_codes, swapped_prediction
from ttaps.model import Network
from ttaps.model.checkpoint import load_model
from ttaps.training.batch import Batch, batch_indices
from ttaps.training.config import LossConfig, OptimizerConfig, TrainConfig
from ttaps.training.loop import Run
from ttaps.training.objectives import OBJECTIVES
from ttaps.training.optimizer import Optimizer, WeightEMA, newton_schulz, orthogonalized, smooth
from ttaps.training.schedule import Schedule
from ttaps.training.split import Split
from ttaps.training.state import load_state, rewind_metrics
from ttaps.training.stop import graceful_interrupt
from ttaps.training.validation import accuracy
from ttaps.views import CropViews, SwavViews

# --- optimizer


def three_weights() -> dict[str, nn.Parameter]:
    draw = torch.Generator().manual_seed(0)
    return {name: nn.Parameter(torch.randn(shape, generator=draw)) for name, shape in
            (("kernel", (4, 3, 3, 3)), ("matrix", (5, 7)), ("vector", (6,)))}  # fmt: skip


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_sgd_is_torchs_sgd(momentum: float, nesterov: bool) -> None:
    ours, theirs = three_weights(), three_weights()
    config = OptimizerConfig(lr=0.3, momentum=momentum, nesterov=nesterov, weight_decay=0.01)
    own = Optimizer(ours, config)
    reference = torch.optim.SGD(theirs.values(), lr=0.3, momentum=momentum, nesterov=nesterov, weight_decay=0.01)
    for step in range(6):
        scale = 1 / (1 + step)
        reference.param_groups[0]["lr"] = 0.3 * scale
        for weights in (ours, theirs):
            for weight in weights.values():
                weight.grad = torch.sin(3 * weight.detach() + step)
        own.step(scale)
        reference.step()
        for name in ours:
            assert torch.equal(ours[name], theirs[name]), (step, name)


def test_weights_without_gradient_rest() -> None:
    weights = three_weights()
    before = weights["matrix"].detach().clone()
    weights["vector"].grad = torch.ones(6)
    Optimizer(weights, OptimizerConfig(weight_decay=0.1)).step(1.0)
    assert torch.equal(weights["matrix"], before)


@pytest.mark.parametrize("shape", [(3, 5, 9), (2, 9, 5), (1, 6, 6)])
def test_newton_schulz_moves_only_the_singular_values(shape: tuple[int, ...]) -> None:
    """M = U S Vᵀ becomes U p(S / ‖M‖) Vᵀ, where p is Muon's quintic, iterated: the same singular vectors, by the SVD."""
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    u, s, vh = torch.linalg.svd(matrices, full_matrices=False)
    s = s / matrices.norm(dim=(1, 2))[:, None]
    for _ in range(3):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    torch.testing.assert_close(newton_schulz(matrices, 3), u * s[:, None] @ vh, rtol=0, atol=1e-6)


def test_newton_schulz_ends_near_the_orthogonal_matrix() -> None:
    """Muon's quintic holds all but the very smallest singular values between 0.68 and 1.14 from the fifth iteration on."""
    matrices = torch.randn(4, 16, 64, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(newton_schulz(matrices, 5))
    assert values.min() > 0.68
    assert values.max() < 1.14


def test_orthogonalized_updates_keep_their_places() -> None:
    draw = torch.Generator().manual_seed(0)
    kernels = {str(i): torch.randn(4 + 2 * (i == 2), 3, 3, 3, generator=draw) for i in range(4)}
    together = orthogonalized(kernels)
    for name, kernel in kernels.items():
        assert together[name].shape == kernel.shape
        torch.testing.assert_close(together[name], orthogonalized({name: kernel})[name])


def test_muon_moves_kernels_by_orthogonal_steps_and_the_rest_by_sgd() -> None:
    sgd, muon = three_weights(), three_weights()
    for weights in (sgd, muon):
        for weight in weights.values():
            weight.grad = weight.detach().cos()
    gradient, before = sgd["kernel"].detach().cos(), sgd["kernel"].detach().clone()
    Optimizer(sgd, OptimizerConfig(weight_decay=0)).step(0.5)
    Optimizer(muon, OptimizerConfig(name="muon", muon_lr=0.2, weight_decay=0)).step(0.5)
    assert torch.equal(sgd["matrix"], muon["matrix"])
    expected = before - 0.1 * newton_schulz(gradient.reshape(1, 4, 27), 3).reshape(4, 3, 3, 3)
    torch.testing.assert_close(muon["kernel"].detach(), expected)


def test_muon_leaves_parts_of_the_network_to_sgd() -> None:
    names = ("backbone.stem.0.weight", "backbone.stage1.0.conv1.weight")
    ends = {}
    for config in (
        OptimizerConfig(weight_decay=0),
        OptimizerConfig(name="muon", weight_decay=0),
        OptimizerConfig(name="muon", weight_decay=0, muon_exclude=("stem",)),
    ):
        torch.manual_seed(0)
        weights = {name: nn.Parameter(torch.randn(4, 3, 3, 3)) for name in names}
        for weight in weights.values():
            weight.grad = torch.randn_like(weight)
        Optimizer(weights, config).step(1.0)
        ends[config.name, config.muon_exclude] = weights
    mixed = ends["muon", ("stem",)]
    assert torch.equal(mixed[names[0]], ends["sgd", ()][names[0]])
    assert torch.equal(mixed[names[1]], ends["muon", ()][names[1]])
    assert not torch.equal(ends["muon", ()][names[0]], ends["sgd", ()][names[0]])
    with pytest.raises(UsageError, match="no part 'stam'"):
        Optimizer(weights, OptimizerConfig(name="muon", muon_exclude=("stam",)))


def test_smoothing_keeps_smooth_kernels_and_shrinks_rough_ones() -> None:
    """The blur's three directions of a row, found by hand, are its eigenvectors; both ways their factors multiply."""
    root = 2**0.5
    rows = torch.tensor([[1, root, 1], [1, 0, -1], [1, -root, 1]], dtype=torch.float64)
    factors = torch.tensor([2 + root, 2, 2 - root], dtype=torch.float64) / (2 + root)
    kernels = torch.einsum("ai,bj->abij", rows, rows)
    torch.testing.assert_close(smooth(kernels), torch.outer(factors, factors)[..., None, None] * kernels)


def test_smoothing_moves_the_kernels_of_its_parts_only() -> None:
    torch.manual_seed(0)
    shapes: dict[str, tuple[int, ...]] = {
        "backbone.stem.0.weight": (4, 3, 3, 3),
        "backbone.stage1.0.conv1.weight": (4, 4, 3, 3),
    }
    shapes |= {"backbone.stem.0.shortcut.weight": (4, 3, 1, 1), "backbone.stem.1.weight": (4,)}
    weights = {name: nn.Parameter(torch.randn(shape)) for name, shape in shapes.items()}
    before = {name: weight.detach().clone() for name, weight in weights.items()}
    for weight in weights.values():
        weight.grad = torch.zeros_like(weight)
    Optimizer(weights, OptimizerConfig(weight_decay=0, kernel_smoothing=0.2)).step(0.5)
    stem, *others = weights
    torch.testing.assert_close(weights[stem].detach(), 0.9 * before[stem] + 0.1 * smooth(before[stem]))
    assert all(torch.equal(weights[name], before[name]) for name in others)
    with pytest.raises(UsageError, match=r"kernel_smoothing_layers: the network has no part 'stam'"):
        Optimizer(weights, OptimizerConfig(kernel_smoothing=0.2, kernel_smoothing_layers=("stam",)))


def test_average_is_the_weighted_sum_of_all_weights_so_far() -> None:
    history = torch.randn(31, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weight = nn.Parameter(history[:1].clone())
    average = WeightEMA([("w", weight)], decay=0.8)
    share = torch.zeros(31, dtype=torch.float64)
    share[0] = 1
    for step, value in enumerate(history[1:]):
        with torch.no_grad():
            weight.fill_(value)
        average.update([("w", weight)], step)
        decay = min(0.8, (1 + step) / (10 + step))
        share *= decay
        share[step + 1] = 1 - decay
    torch.testing.assert_close(average.weights["w"][0], share @ history)
    assert share.sum().item() == pytest.approx(1)


# --- schedule and batches


def test_the_papers_learning_rate() -> None:
    schedule = Schedule(TrainConfig(), epoch_steps=156)
    assert schedule.steps == 46_800
    assert schedule.lr_factor(0) == 1 / 1560
    assert schedule.lr_factor(779) == 0.5
    assert schedule.lr_factor(1559) == schedule.lr_factor(1560) == 1
    assert schedule.lr_factor((1560 + 46_800) // 2) == pytest.approx(0.5)
    assert schedule.lr_factor(1560 + 45_240 // 4) == pytest.approx((1 + math.cos(math.pi / 4)) / 2)
    assert 0 < schedule.lr_factor(46_799) < 1e-8
    rates = [schedule.lr_factor(step) for step in range(0, 46_800, 10)]
    assert rates == sorted(rates[:157]) + sorted(rates[157:], reverse=True)


def test_linear_decay_and_short_warm_ups() -> None:
    optimizer = OptimizerConfig(warmup_epochs=0.25, lr_schedule="linear")
    schedule = Schedule(
        TrainConfig(epochs=2, optimizer=optimizer), epoch_steps=10
    )  # the warm-up ends between two steps
    assert [schedule.lr_factor(step) for step in range(3)] == [0.4, 0.8, 1.0]
    assert max(schedule.lr_factor(step) for step in range(20)) == 1
    assert schedule.lr_factor(15) == pytest.approx(1 - 12.5 / 17.5)
    at_once = Schedule(TrainConfig(epochs=2, optimizer=replace(optimizer, warmup_epochs=0)), epoch_steps=10)
    assert [at_once.lr_factor(0), at_once.lr_factor(10), at_once.lr_factor(19)] == pytest.approx([1, 0.5, 0.05])


def test_a_level_stretch_before_the_decay() -> None:
    optimizer = OptimizerConfig(warmup_epochs=0.2, lr_hold_epochs=1.0, lr_schedule="linear")
    schedule = Schedule(TrainConfig(epochs=2, optimizer=optimizer), epoch_steps=10)
    assert [schedule.lr_factor(step) for step in (0, 1, 2, 9, 10)] == [0.5, 1, 1, 1, 1]
    assert [schedule.lr_factor(step) for step in (11, 15, 19)] == pytest.approx([0.9, 0.5, 0.1])
    longer = Schedule(TrainConfig(epochs=4, optimizer=optimizer), epoch_steps=10)
    assert [longer.lr_factor(step) for step in range(11)] == [schedule.lr_factor(step) for step in range(11)]


def test_resolutions_follow_one_another() -> None:
    schedule = Schedule(
        TrainConfig(epochs=10, resolutions=(16, 24, 32), resolution_milestones=(0.5, 0.8, 1.0)), epoch_steps=10
    )
    assert [schedule.size(step) for step in (0, 49, 50, 79, 80, 99)] == [16, 16, 24, 24, 32, 32]


def test_the_joint_loss_comes_in() -> None:
    config = TrainConfig(
        epochs=10, loss=LossConfig(joint_start_epoch=2, joint_ramp_epochs=1, freeze_prototypes_epochs=3)
    )
    schedule = Schedule(config, epoch_steps=10)
    assert [schedule.joint_weight(step) for step in (0, 19, 20, 24, 29, 30, 99)] == pytest.approx(
        [0, 0, 0.1, 0.5, 1, 1, 1]
    )
    assert [schedule.prototypes_frozen(step) for step in (0, 49, 50)] == [True, True, False]
    at_once = Schedule(replace(config, loss=LossConfig(joint_start_epoch=2)), epoch_steps=10)
    assert [at_once.joint_weight(step) for step in (19, 20)] == [0, 1]
    assert Schedule(replace(config, objective="baseline"), epoch_steps=10).joint_weight(99) == 0


def test_an_epoch_sees_every_image_once() -> None:
    for epoch in range(3):
        seen = torch.cat([batch_indices(48, 8, seed=0, step=6 * epoch + place) for place in range(6)])
        assert torch.equal(seen.sort().values, torch.arange(48))
        assert not torch.equal(seen, torch.arange(48))
    first = [batch_indices(48, 8, seed, step) for seed, step in ((0, 0), (0, 6), (1, 0))]
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[0], first[2])
    assert len(batch_indices(50, 8, 0, 5).unique()) == 8  # two images are left over
    assert len(batch_indices(5, 8, 0, 3).unique()) == 5  # fewer images than a batch


def make_batch(textures: ImageSet, seed: int = 0, step: int = 3, size: int = 8) -> Batch:
    return Batch(torch.from_numpy(textures.images[:6]), torch.from_numpy(textures.labels[:6]), seed, step, size)


@pytest.mark.parametrize("kind", [SwavViews(), CropViews()])
def test_views_are_a_function_of_seed_step_and_name(kind: SwavViews | CropViews, textures: ImageSet) -> None:
    views = make_batch(textures).views(kind, "s")
    torch.manual_seed(1234)  # the global generator must not matter
    assert torch.equal(make_batch(textures).views(kind, "s"), views)
    for other in (make_batch(textures, step=4), make_batch(textures, seed=1)):
        assert not torch.equal(other.views(kind, "s"), views)
    assert not torch.equal(make_batch(textures).views(kind, "t"), views)
    assert make_batch(textures, size=6).views(kind, "s").shape == (6, 3, 6, 6)


def test_sharing_a_batch_out_changes_no_view(textures: ImageSet) -> None:
    whole = make_batch(textures)
    parts = [
        replace(whole, images=whole.images[rows], rows=rows, total=6).views(SwavViews(), "s")
        for rows in (slice(0, 4), slice(4, 6))
    ]
    torch.testing.assert_close(torch.cat(parts), whole.views(SwavViews(), "s"))


# --- objectives


def test_joint_loss_is_equation_8(textures: ImageSet, tiny_network: Network) -> None:
    batch, config = make_batch(textures), LossConfig(gamma_ce=0.3, gamma_ent=0.1)
    s, t = (tiny_network.scores(tiny_network.project(batch.views(SwavViews(), name))) for name in "st")
    swav = swapped_prediction(s, t, sinkhorn_codes(s), sinkhorn_codes(t), 0.1)
    crop = batch.views(CropViews(scale=(0.08, 1.0)), "crop")
    ce = nn.functional.cross_entropy(tiny_network(crop), batch.labels)
    ent = prototype_entropy(tiny_network.classifier(tiny_network.prototypes))
    expected = {
        ("baseline", 0.0): ce,
        ("jt", 0.0): ce,
        ("jt", 1.0): swav + 0.3 * ce,
        ("jt+ent", 1.0): swav + 0.3 * ce + 0.1 * ent,
        ("jt+ent", 0.25): 0.25 * (swav + 0.3 * ce + 0.1 * ent) + 0.75 * ce,
    }
    for (objective, joint), value in expected.items():
        parts = OBJECTIVES[objective](tiny_network, batch, config, joint)
        torch.testing.assert_close(parts["loss"], value)
    torch.testing.assert_close(parts["swav"], swav.detach() / 2)
    mean = OBJECTIVES["jt"](tiny_network, batch, replace(config, swap_reduction="mean"), 1.0)
    torch.testing.assert_close(mean["loss"], swav / 2 + 0.3 * ce)


def test_cross_entropy_can_see_the_swav_views(textures: ImageSet, tiny_network: Network) -> None:
    batch = make_batch(textures)
    parts = OBJECTIVES["jt"](tiny_network, batch, LossConfig(ce_view="views"), 1.0)
    logits = [tiny_network(batch.views(SwavViews(), name)) for name in "st"]
    ce = sum(nn.functional.cross_entropy(each, batch.labels) for each in logits) / 2
    torch.testing.assert_close(parts["ce"], ce)
    for objective in ("baseline", "jt+ent"):
        alone = OBJECTIVES[objective](tiny_network, batch, LossConfig(ce_only_view="views"), 0.0)
        torch.testing.assert_close(alone["loss"], nn.functional.cross_entropy(logits[0], batch.labels))
        colored = LossConfig(ce_only_view="color", crop_scale=(0.5, 1.0))
        alone = OBJECTIVES[objective](tiny_network, batch, colored, 0.0)
        logit = tiny_network(batch.views(SwavViews(scale=(0.5, 1.0)), "crop"))
        torch.testing.assert_close(alone["loss"], nn.functional.cross_entropy(logit, batch.labels))
    joint = OBJECTIVES["jt"](tiny_network, batch, replace(colored, ce_view="color"), 1.0)
    torch.testing.assert_close(joint["ce"], alone["ce"])


def test_accuracy_counts_right_answers(textures: ImageSet, tiny_network: Network) -> None:
    images, labels = torch.from_numpy(textures.images), torch.from_numpy(textures.labels)
    right = [tiny_network(image[None]).argmax().item() == label for image, label in zip(images, labels, strict=True)]
    assert accuracy(tiny_network, images, labels) == sum(right) / 160


# --- runs


@pytest.fixture(scope="module")
def pictures(textures: ImageSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pictures") / "textures.npz"
    np.savez(path, images=textures.images, labels=textures.labels)
    return path


@pytest.fixture(scope="module")
def finished(textures: ImageSet, pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run that nobody interrupted."""
    folder = tmp_path_factory.mktemp("runs") / "finished"
    Run(SHORT, folder, split_of(textures, pictures)).train()
    return folder


def split_of(textures: ImageSet, pictures: Path) -> Split:
    return Split.of(replace(textures, name=str(pictures), classes=("0", "1", "2", "3")))


def killed_once(folder: Path, pictures: Path, after: int) -> int:
    """Start a run of its own process and end it with SIGKILL some time after the checkpoint of step ``after``."""
    script = Path(__file__).parents[1] / "helpers" / "small_training.py"
    process = subprocess.Popen([sys.executable, script, folder, pictures], stderr=subprocess.DEVNULL)
    try:
        while process.poll() is None:
            state = load_state(folder)
            if state and state.step >= after:
                time.sleep(np.random.default_rng().uniform(0, 0.1))  # anywhere in a step, or in the writing of a file
                process.kill()
                process.wait()
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == -9, "the run ended before it could be killed"
    state = load_state(folder)
    assert state
    return state.step


def test_killed_and_resumed_is_bit_identical(
    finished: Path, textures: ImageSet, pictures: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "killed"
    assert 2 <= killed_once(folder, pictures, after=2) <= killed_once(folder, pictures, after=20) < 40
    Run(SHORT, folder, split_of(textures, pictures)).train()
    for name in ("model.safetensors", "metrics.jsonl", "train.toml"):
        assert (folder / name).read_bytes() == (finished / name).read_bytes(), name
    mine, other = load_state(folder), load_state(finished)
    assert mine is not None
    assert other is not None
    assert mine.step == other.step == 40
    for group, tensors in mine.groups.items():
        assert all(torch.equal(tensor, other.groups[group][name]) for name, tensor in tensors.items())
    assert {path.name for path in folder.iterdir()} == {path.name for path in finished.iterdir()}


def test_a_finished_run_is_a_model(finished: Path, textures: ImageSet, pictures: Path) -> None:
    model = load_model(finished)
    split = split_of(textures, pictures)
    measured = accuracy(
        model.network, torch.from_numpy(split.validation.images), torch.from_numpy(split.validation.labels)
    )
    assert model.info["validation_accuracy"] == measured
    assert f"{100 * measured:.2f} % of the validation images" in model.card
    assert (model.info["step"], model.info["steps"]) == (40, 40)
    rows = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1] == {"step": 40, "validation_accuracy": measured}
    assert [row["step"] for row in rows] == [8, 16, 24, 25, 32, 40, 40]
    assert sorted(path.name for path in finished.iterdir()) == [
        ".lock", "README.md", "config.json", "fork.safetensors", "metrics.jsonl", "model.safetensors", "resume.safetensors", "train.toml",
    ]  # fmt: skip


def test_a_finished_run_says_so_and_does_nothing(
    finished: Path, textures: ImageSet, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {
        path: (path.read_bytes(), path.stat().st_mtime_ns) for path in finished.iterdir() if path.suffix != ".jsonl"
    }
    Run(SHORT, finished, split_of(textures, pictures)).train()
    assert "is already trained: 40 steps" in " ".join(capsys.readouterr().err.split())
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in before} == before


def test_killed_before_the_last_words(textures: ImageSet, tmp_path: Path) -> None:
    """All steps done but not yet validated: the run is not finished, and going on finishes it."""

    class Killed(Run):
        def finish(self) -> None:
            raise KeyboardInterrupt

    config, split = replace(SHORT, epochs=1.5, checkpoint_minutes=0.0), Split.of(textures)
    with pytest.raises(KeyboardInterrupt):
        Killed(config, tmp_path, split).train()
    Run(config, tmp_path, split).train()
    assert "validation_accuracy" in load_model(tmp_path).info
    assert "validation_accuracy" in (tmp_path / "metrics.jsonl").read_text()


def test_a_joint_loss_that_never_begins_is_told(
    textures: ImageSet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for epochs, told in ((1.0, True), (1.5, False)):
        Run(replace(SHORT, epochs=epochs), tmp_path / str(epochs), Split.of(textures)).train()
        assert ("jt+ent begins at epoch 1, but the run ends at 1:" in capsys.readouterr().err) == told


def test_other_settings_are_refused(finished: Path, textures: ImageSet, pictures: Path) -> None:
    with pytest.raises(UsageError, match=r"holds a run with other settings .*\nUse another --out"):
        Run(replace(SHORT, seed=1), finished, split_of(textures, pictures)).train()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Hear Ctrl-C, even where these tests themselves run in the background and ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_asked_to_stop_it_saves_the_step_and_goes_on_from_there(
    finished: Path, textures: ImageSet, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C and a scheduler's SIGTERM wait for the end of the step, and cost none; a second one does not wait."""
    patient, folder, step = replace(SHORT, checkpoint_minutes=1000.0), tmp_path / "run", Run.step
    before = signal.getsignal(signal.SIGTERM)
    for number, name in ((9, signal.SIGINT), (21, signal.SIGTERM)):

        def stopping(run: Run, at: int, number: int = number, name: int = name) -> dict[str, torch.Tensor]:
            if at == number:
                os.kill(os.getpid(), name)
            return step(run, at)

        monkeypatch.setattr(Run, "step", stopping)
        with pytest.raises(KeyboardInterrupt):
            Run(patient, folder, split_of(textures, pictures)).train()
        state = load_state(folder)
        assert state
        assert state.step == number + 1
        assert signal.getsignal(signal.SIGTERM) == before
    monkeypatch.setattr(Run, "step", step)
    Run(patient, folder, split_of(textures, pictures)).train()
    assert (folder / "model.safetensors").read_bytes() == (finished / "model.safetensors").read_bytes()
    monkeypatch.setattr(Run, "finish", lambda run: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):  # when all is done, what follows must still hear of it
        Run(patient, tmp_path / "last", split_of(textures, pictures)).train()
    with graceful_interrupt() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_a_run_in_the_background_goes_on_ignoring() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with graceful_interrupt() as stop:
            os.kill(os.getpid(), signal.SIGINT)
            assert not stop()
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_images_are_refused(finished: Path, textures: ImageSet, pictures: Path) -> None:
    before = {path.name: path.read_bytes() for path in finished.iterdir()}
    for images, labels in ((textures.images + 1, textures.labels), (textures.images, textures.labels[::-1].copy())):
        with pytest.raises(UsageError, match="trained on other images"):
            Run(SHORT, finished, split_of(replace(textures, images=images, labels=labels), pictures)).train()
    assert {path.name: path.read_bytes() for path in finished.iterdir()} == before


def test_a_run_that_comes_second_leaves_nothing(textures: ImageSet, tmp_path: Path) -> None:
    tmp_path.joinpath("run").mkdir()
    with file_lock(tmp_path / "run" / ".lock", "training here"), pytest.raises(TtapsError, match="Another process"):
        Run(SHORT, tmp_path / "run", Split.of(textures)).train()
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]


def test_seeds_decide_everything(textures: ImageSet, tmp_path: Path) -> None:
    config = replace(SHORT, epochs=1.5, validate_every=100)
    weights: list[bytes] = []
    for folder, seed in (("a", 0), ("b", 0), ("c", 1)):
        torch.manual_seed(len(weights))  # the global generator must not matter
        Run(replace(config, seed=seed), tmp_path / folder, Split.of(textures)).train()
        weights.append((tmp_path / folder / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]
    assert weights[0] != weights[2]


def test_baseline_moves_no_prototype(textures: ImageSet, tmp_path: Path) -> None:
    config = replace(SHORT, objective="baseline", epochs=0.5, model=TINY, ema_decay=0.0)
    run = Run(config, tmp_path, Split.of(textures))
    before = run.network.prototypes.detach().clone()
    run.train()
    torch.testing.assert_close(run.network.prototypes.detach(), before)


@pytest.mark.parametrize("objective", ["jt", "ttt"])
def test_the_average_forgets_what_rested_until_the_joint_loss_began(
    objective: Literal["jt", "ttt"], textures: ImageSet, tmp_path: Path
) -> None:
    """Prototypes and a rotation head that start anew are not mixed with the random ones they replace."""
    model = replace(SHORT.model, heads=("rotation",)) if objective == "ttt" else SHORT.model
    config = replace(SHORT, objective=objective, ema_decay=0.999, model=model)
    run = Run(config, tmp_path, Split.of(textures))
    assert run.average is not None
    first = next(step for step in range(40) if run.schedule.joint_begins(step))
    for step in range(first):
        run.step(step)
    before = {name: weight.clone() for name, weight in run.average.weights.items()}
    run.begin_joint(8)
    now, restarted = dict(run.network.named_parameters()), 0
    for name, weight in run.average.weights.items():
        rested = name.startswith(("prototypes", "heads."))
        assert torch.equal(weight, now[name] if rested else before[name])
        restarted += rested and not torch.equal(weight, before[name])
    assert restarted > len(model.heads)


def test_without_validation_images_no_accuracy_is_made_up(textures: ImageSet, tmp_path: Path) -> None:
    few = replace(textures, images=textures.images[:4], labels=textures.labels[:4])
    Run(replace(SHORT, batch_size=2, epochs=2, ema_decay=0.0), tmp_path, Split.of(few)).train()
    assert "validation_accuracy" not in (tmp_path / "metrics.jsonl").read_text()


def test_a_damaged_state_is_said_to_be_damaged(finished: Path, tmp_path: Path) -> None:
    content = (finished / "resume.safetensors").read_bytes()
    for damaged in (content[:-50], b"", b"no state"):
        (tmp_path / "resume.safetensors").write_bytes(damaged)
        with pytest.raises(
            CheckpointError, match=r"resume.safetensors is damaged .*\nDelete it to start this run again"
        ):
            load_state(tmp_path)


def test_metrics_are_rewound_to_the_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 25}\n{"step": 50}\n{"step": 75}\n{"st')
    rewind_metrics(tmp_path, 50)
    assert path.read_text() == '{"step": 25}\n{"step": 50}\n'


def test_a_folder_that_cannot_be_made(textures: ImageSet, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(TtapsError, match=r"Cannot make the folder .*file/run"):
        Run(SHORT, tmp_path / "file" / "run", Split.of(textures)).train()


def test_mixed_precision_trains(textures: ImageSet, tmp_path: Path) -> None:
    exact, mixed = (
        Run(replace(SHORT, precision=precision, loss=LossConfig()), tmp_path, Split.of(textures)).step(0)["loss"].item()
        for precision in ("float32", "bfloat16")
    )
    assert mixed != exact
    assert mixed == pytest.approx(exact, rel=0.01)


def test_a_run_without_sizes_trains_at_the_networks_own() -> None:
    assert Schedule(TrainConfig(model=replace(TINY, image_size=48)), epoch_steps=10).size(0) == 48


def test_what_is_only_watched_may_change_on_the_way(finished: Path, textures: ImageSet, pictures: Path) -> None:
    Run(replace(SHORT, stop_on_collapse=False, validate_every=2), finished, split_of(textures, pictures)).train()
    with pytest.raises(UsageError, match="other settings"):
        Run(replace(SHORT, epochs=6), finished, split_of(textures, pictures)).train()


def test_the_state_of_another_run_is_refused(
    finished: Path, textures: ImageSet, pictures: Path, tmp_path: Path
) -> None:
    shutil.copy(finished / "resume.safetensors", tmp_path)
    with pytest.raises(CheckpointError, match="state of another run"):
        Run(replace(SHORT, model=replace(SHORT.model, hidden_dim=36)), tmp_path, split_of(textures, pictures)).train()


def test_compiled_steps_are_the_same_steps(
    textures: ImageSet, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With dynamo's tracing but without its compiler, which takes a minute."""
    monkeypatch.setattr(torch.nn.Module, "compile", partialmethod(torch.nn.Module.compile, backend="eager"))
    plain = Run(SHORT, tmp_path, split_of(textures, pictures))
    traced = Run(replace(SHORT, compile=True), tmp_path, split_of(textures, pictures))
    for step in range(2):
        torch.testing.assert_close(plain.step(step)["loss"], traced.step(step)["loss"])
