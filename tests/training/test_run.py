"""Runs in a folder: a killed run ends as if nothing had happened."""

from __future__ import annotations

import json
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
from typing import Any, Literal
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from rich.progress import TaskID

from helpers.small_training import SHORT, TINY
from ttaps.data import ImageSet
from ttaps.errors import CheckpointError, TtapsError, UsageError
from ttaps.files import file_lock
from ttaps.model import as_network
from ttaps.model.checkpoint import load_model
from ttaps.training.config import OptimizerConfig, ScheduleConfig, TrainConfig
from ttaps.training.data import Split, training_images
from ttaps.training.run import Run, graceful_interrupt
from ttaps.training.run_dir import load_state, rewind_metrics
from ttaps.training.schedule import Schedule
from ttaps.training.trainer import Trainer, measure_accuracy


@pytest.fixture(scope="module")
def finished(textures: ImageSet, textures_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run that nobody interrupted."""
    folder = tmp_path_factory.mktemp("runs") / "finished"
    Run(SHORT, folder, split_of(textures, textures_file)).train()
    return folder


def split_of(textures: ImageSet, textures_file: Path) -> Split:
    return Split.of(replace(textures, name=str(textures_file), classes=("0", "1", "2", "3")))


def killed_once(folder: Path, textures_file: Path, after: int) -> int:
    """Start a run of its own process and end it with SIGKILL some time after the checkpoint of step ``after``."""
    script = Path(__file__).parents[1] / "helpers" / "small_training.py"
    process = subprocess.Popen([sys.executable, script, folder, textures_file], stderr=subprocess.DEVNULL)
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
    finished: Path, textures: ImageSet, textures_file: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "killed"
    assert 2 <= killed_once(folder, textures_file, after=2) <= killed_once(folder, textures_file, after=20) < 40
    Run(SHORT, folder, split_of(textures, textures_file)).train()
    for name in ("model.safetensors", "metrics.jsonl", "train.toml"):
        assert (folder / name).read_bytes() == (finished / name).read_bytes(), name
    mine, other = load_state(folder), load_state(finished)
    assert mine is not None
    assert other is not None
    assert mine.step == other.step == 40
    for group, tensors in mine.groups.items():
        assert all(torch.equal(tensor, other.groups[group][name]) for name, tensor in tensors.items())
    assert {path.name for path in folder.iterdir()} == {path.name for path in finished.iterdir()}


def test_a_finished_run_is_a_model(finished: Path, textures: ImageSet, textures_file: Path) -> None:
    model = load_model(finished)
    split = split_of(textures, textures_file)
    measured = measure_accuracy(as_network(model.network), split.validation)
    assert model.info["validation_accuracy"] == measured
    assert f"{100 * measured:.2f} % of the validation images" in model.card
    assert (model.info["step"], model.info["steps"]) == (40, 40)
    rows = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1] == {"step": 40, "validation_accuracy": measured}
    assert [row["step"] for row in rows] == [8, 16, 24, 25, 32, 40, 40]
    assert sorted(path.name for path in finished.iterdir()) == [
        ".lock", "README.md", "config.json", "fork.safetensors", "metrics.jsonl", "model.safetensors", "resume.safetensors", "train.toml",
    ]  # fmt: skip


def test_the_log_has_the_learning_rates_themselves(finished: Path, textures: ImageSet, textures_file: Path) -> None:
    rows = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    schedule = Schedule.of(SHORT, len(split_of(textures, textures_file).train))
    logged = [(row["step"], row["lr"], row["muon_lr"]) for row in rows if "epoch" in row]
    factors = {step: schedule.lr_factor(step - 1) for step in (25, 40)}
    assert logged == [(step, 0.1 * factor, 0.05 * factor) for step, factor in factors.items()]
    assert all(0 < factor < 1 for factor in factors.values())
    assert OptimizerConfig(lr=0.5).rates(0.25) == {"lr": 0.125}, "without Muon there is one rate"


def test_a_finished_run_says_so_and_does_nothing(
    finished: Path, textures: ImageSet, textures_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {
        path: (path.read_bytes(), path.stat().st_mtime_ns) for path in finished.iterdir() if path.suffix != ".jsonl"
    }
    Run(SHORT, finished, split_of(textures, textures_file)).train()
    assert "is already trained: 40 steps" in " ".join(capsys.readouterr().err.split())
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in before} == before


def test_killed_before_the_last_words(textures: ImageSet, tmp_path: Path) -> None:
    """All steps done but not yet validated: the run is not finished, and going on finishes it."""

    class Killed(Run):
        def _finish(self) -> None:
            raise KeyboardInterrupt

    config, split = replace(SHORT, epochs=1.5, checkpoint_minutes=0.0), Split.of(textures)
    with pytest.raises(KeyboardInterrupt):
        Killed(config, tmp_path, split).train()
    Run(config, tmp_path, split).train()
    assert "validation_accuracy" in load_model(tmp_path).info
    assert "validation_accuracy" in (tmp_path / "metrics.jsonl").read_text()


def test_a_joint_loss_that_never_begins_is_reported(
    textures: ImageSet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for epochs, told in ((1.0, True), (1.5, False)):
        Run(replace(SHORT, epochs=epochs), tmp_path / str(epochs), Split.of(textures)).train()
        assert ("jt+ent begins at epoch 1, but the run ends at 1:" in capsys.readouterr().err) == told


def test_other_settings_are_refused(finished: Path, textures: ImageSet, textures_file: Path) -> None:
    with pytest.raises(UsageError, match=r"holds a run with other settings .*\nUse another --out"):
        Run(replace(SHORT, seed=1), finished, split_of(textures, textures_file)).train()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Hear Ctrl-C, even where these tests themselves run in the background and ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_on_an_interrupt_it_saves_the_step_and_resumes_there(
    finished: Path, textures: ImageSet, textures_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C and a scheduler's SIGTERM wait for the end of the step, and cost none; a second one does not wait."""
    patient, folder, step = replace(SHORT, checkpoint_minutes=1000.0), tmp_path / "run", Trainer.step
    before = signal.getsignal(signal.SIGTERM)
    for number, name in ((9, signal.SIGINT), (21, signal.SIGTERM)):

        def stopping(trainer: Trainer, at: int, number: int = number, name: int = name) -> dict[str, torch.Tensor]:
            if at == number:
                os.kill(os.getpid(), name)
            return step(trainer, at)

        monkeypatch.setattr(Trainer, "step", stopping)
        with pytest.raises(KeyboardInterrupt):
            Run(patient, folder, split_of(textures, textures_file)).train()
        state = load_state(folder)
        assert state
        assert state.step == number + 1
        assert signal.getsignal(signal.SIGTERM) == before
    monkeypatch.setattr(Trainer, "step", step)
    Run(patient, folder, split_of(textures, textures_file)).train()
    assert (folder / "model.safetensors").read_bytes() == (finished / "model.safetensors").read_bytes()
    monkeypatch.setattr(Run, "_finish", lambda run: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):  # when all is done, what follows must still hear of it
        Run(patient, tmp_path / "last", split_of(textures, textures_file)).train()
    with graceful_interrupt() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_a_run_in_the_background_keeps_ignoring() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with graceful_interrupt() as stop:
            os.kill(os.getpid(), signal.SIGINT)
            assert not stop()
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_images_are_refused(finished: Path, textures: ImageSet, textures_file: Path) -> None:
    before = {path.name: path.read_bytes() for path in finished.iterdir()}
    for images, labels in ((textures.images + 1, textures.labels), (textures.images, textures.labels[::-1].copy())):
        with pytest.raises(UsageError, match="trained on other images"):
            Run(SHORT, finished, split_of(replace(textures, images=images, labels=labels), textures_file)).train()
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
    before = run.trainer.network.prototypes.detach().clone()
    run.train()
    torch.testing.assert_close(run.trainer.network.prototypes.detach(), before)


@pytest.mark.parametrize("objective", ["jt", "ttt"])
def test_the_average_forgets_what_rested_until_the_joint_loss_began(
    objective: Literal["jt", "ttt"], textures: ImageSet
) -> None:
    """Prototypes and a rotation head that start anew are not mixed with the random ones they replace."""
    model = replace(SHORT.model, heads=("rotation",)) if objective == "ttt" else SHORT.model
    config = replace(SHORT, objective=objective, ema_decay=0.999, model=model)
    run = Trainer(config, Split.of(textures))
    assert run.ema is not None
    first = next(step for step in range(40) if run.schedule.joint_begins(step))
    for step in range(first):
        run.step(step)
    before = {name: weight.clone() for name, weight in run.ema.weights.items()}
    run.begin_joint(8)
    now, restarted = dict(run.network.named_parameters()), 0
    for name, weight in run.ema.weights.items():
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
    with pytest.raises(TtapsError, match=r"Cannot write .*file/run: .*\n.* or choose another folder"):
        Run(SHORT, tmp_path / "file" / "run", Split.of(textures)).train()


def test_mixed_precision_trains(textures: ImageSet) -> None:
    joint = replace(SHORT, schedule=ScheduleConfig(resolutions=(8,)), init_prototypes_from_data=False)
    exact, mixed = (
        Trainer(replace(joint, precision=precision), Split.of(textures)).step(0)["loss"].item()
        for precision in ("float32", "bfloat16")
    )
    assert mixed != exact
    assert mixed == pytest.approx(exact, rel=0.01)


def test_a_run_without_sizes_trains_at_the_networks_own() -> None:
    assert Schedule(TrainConfig(model=replace(TINY, image_size=48)), epoch_steps=10).size(0) == 48


def test_a_resolution_that_is_not_the_networks_is_reported(
    textures: ImageSet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As with --model.image-size 64 and a preset that trains at 16 pixels."""
    for sizes, told in (((6,), True), ((8,), False), ((), False)):
        config = replace(SHORT, epochs=0.1, objective="baseline", schedule=ScheduleConfig(resolutions=sizes))
        Run(config, tmp_path / str(sizes), Split.of(textures)).train()
        said = " ".join(capsys.readouterr().err.split())
        assert (
            "Training ends at 6 pixels (schedule.resolutions); the network is validated and used at 8" in said
        ) == told


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1000, 2000], r"has no image of 1998 of its 2001 classes \(1, 2, 3, ...\).\n.*number the labels from 0"),
        ([0, 1, 3], r"has no image of 1 of its 4 classes \(2\)"),
        ([0, 0, 0], r"has only one class, '0'"),
    ],
)
def test_labels_that_cannot_be_learnt_are_refused(labels: list[int], message: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", images=np.zeros((6, 8, 8, 3), np.uint8), labels=labels * 2)
    with pytest.raises(UsageError, match=message):
        training_images(str(tmp_path / "own.npz"), tmp_path, TINY, any_classes=True)


def test_a_batch_has_at_most_all_images_and_so_has_its_speed(textures: ImageSet, tmp_path: Path) -> None:
    run = Run(replace(SHORT, batch_size=100_000), tmp_path, Split.of(textures))
    progress: Any = Mock()
    run._watch(0, {"loss": torch.tensor(1.0)}, progress, TaskID(0), seconds=2.0)
    assert progress.below == f"loss 1.000  {len(run.trainer.images) / 2:.0f} images/s"


def test_images_of_another_size_are_refused_with_the_size_to_set(tmp_path: Path) -> None:
    for width, remedy in ((9, "Set --model.image-size 9."), (7, "Make the images square.")):
        np.savez(tmp_path / "own.npz", images=np.zeros((4, 9, width, 3), np.uint8), labels=[0, 1, 2, 3])
        with pytest.raises(UsageError, match=rf"images of {width}x9 pixels, the network takes 8x8.\n{remedy}"):
            training_images(str(tmp_path / "own.npz"), tmp_path, TINY)


def test_what_is_only_watched_may_change_on_the_way(finished: Path, textures: ImageSet, textures_file: Path) -> None:
    Run(replace(SHORT, stop_on_collapse=False, validate_every=2), finished, split_of(textures, textures_file)).train()
    with pytest.raises(UsageError, match="other settings"):
        Run(replace(SHORT, epochs=6), finished, split_of(textures, textures_file)).train()


def test_the_state_of_another_run_is_refused(
    finished: Path, textures: ImageSet, textures_file: Path, tmp_path: Path
) -> None:
    shutil.copy(finished / "resume.safetensors", tmp_path)
    with pytest.raises(CheckpointError, match="state of another run"):
        Run(
            replace(SHORT, model=replace(SHORT.model, hidden_dim=36)), tmp_path, split_of(textures, textures_file)
        ).train()


def test_compiled_steps_are_the_same_steps(
    textures: ImageSet, textures_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With dynamo's tracing but without its compiler, which takes a minute."""
    monkeypatch.setattr(torch.nn.Module, "compile", partialmethod(torch.nn.Module.compile, backend="eager"))
    plain = Trainer(SHORT, split_of(textures, textures_file))
    traced = Trainer(replace(SHORT, compile=True), split_of(textures, textures_file))
    for step in range(2):
        torch.testing.assert_close(plain.step(step)["loss"], traced.step(step)["loss"])
