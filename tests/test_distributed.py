"""Two real processes on one machine: the same training and the same rows as one, and what happens when one of them dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import distributed

from helpers.small_evaluation import results, stored
from helpers.small_model import write_model
from helpers.small_parallel import CASES, PATHS, SHARED, Case, start, twenty_steps
from helpers.small_training import SHORT
from ttaps.cli import main
from ttaps.config import to_toml
from ttaps.data import ImageSet
from ttaps.distributed import Ranks
from ttaps.errors import UsageError
from ttaps.training.config import ScheduleConfig
from ttaps.training.data import Split
from ttaps.training.run_dir import load_state
from ttaps.training.trainer import Trainer


@pytest.fixture(scope="module")
def preset(textures_file: Path) -> Path:
    path = textures_file.with_name("preset.toml")
    path.write_text(to_toml(replace(SHARED, data=str(textures_file))))
    return path


@pytest.fixture(scope="module")
def twice(textures_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with what two processes found in 20 steps, and with a run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("twice")
    finish(start(["steps", folder, textures_file]))
    return folder


def finish(processes: list[subprocess.Popen[str]], *codes: int) -> list[str]:
    """Wait for processes, check their exit codes (all 0 unless given), and return what they said."""
    try:
        said = [process.communicate(timeout=300)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == list(codes or [0] * len(processes)), said
    return said


@pytest.mark.parametrize("case", CASES)
def test_two_processes_train_like_one(case: Case, textures_file: Path, twice: Path) -> None:
    """Codes, every part of the loss, gradients and weights after 20 steps; in double precision, where only a mistake can differ."""
    alone = twenty_steps(case, textures_file, Ranks())
    first, second = (load_file(twice / f"{case}-{rank}") for rank in (0, 1))
    codes = torch.cat([first.pop("codes"), second.pop("codes")])
    torch.testing.assert_close(codes, alone.pop("codes"), rtol=0, atol=1e-12)
    assert first.keys() == alone.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name
        tolerance = 1e-7 if "accuracy" in name else 1e-12  # an accuracy is computed in single precision
        torch.testing.assert_close(value, alone[name].to(value.dtype), rtol=0, atol=tolerance, msg=name)


def test_a_killed_process_ends_the_job_and_the_same_command_resumes(preset: Path, twice: Path, tmp_path: Path) -> None:
    """The one that is left says so and ends with 1; started again, both end with the weights of a job that nobody disturbed."""
    command: list[str | Path] = ["train", "--config", preset, "--out", tmp_path / "run"]
    processes = start(command)
    while all(process.poll() is None for process in processes):
        state = load_state(tmp_path / "run")
        if state and state.step >= 6:
            processes[1].kill()
        time.sleep(0.01)
    killed = time.monotonic()
    said = finish(processes, 1, -9)[0]
    assert time.monotonic() - killed < 10
    assert "ttaps train: Another process of this job has ended" in said
    assert "Start the same command again: it resumes from what was saved last." in said
    assert "Traceback" not in said
    assert "Resuming" in finish(start(command))[0]
    for name in ("model.safetensors", "metrics.jsonl"):
        assert (tmp_path / "run" / name).read_bytes() == (twice / "run" / name).read_bytes(), name


def test_torchrun_evaluates_to_the_rows_of_one_process_though_one_was_killed(tmp_path: Path) -> None:
    """The one that is left says so, torchrun ends with 1, and the same command then has the rows that one process has alone."""
    options = [str(write_model(tmp_path / "model")), "--limit", "3", "--threads", "1", "--seeds", "0,1"]
    options += ["--set", "ttaps.steps=1", "--set", "ttaps.num_pairs=2", "--out"]
    assert main(["evaluate", *options, str(tmp_path / "one")]) == 0
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    slowly = str(Path(__file__).parent / "helpers" / "small_parallel.py")
    command = [*torchrun, slowly, "evaluate", *options, str(tmp_path / "two")]
    env = os.environ | {"PYTHONPATH": PATHS}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as job:
        while stored(tmp_path / "two") < 16:
            assert job.poll() is None, job.communicate()
            time.sleep(0.02)
        os.kill(int((tmp_path / "process-1").read_text()), signal.SIGKILL)
        said = job.communicate(timeout=60)[1]
    assert job.returncode == 1
    assert (
        "ttaps evaluate: Terminated, as torchrun does when another process of the job has ended.\nStart the same"
        in said
    )
    assert stored(tmp_path / "two") < stored(tmp_path / "one")
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300, env=env)
    assert results(tmp_path / "two") == results(tmp_path / "one")
    assert done.stdout.count("ttaps[steps=1,num_pairs=2]\n") == 2  # a table for each seed, from one process


def test_messages_of_a_step(textures: ImageSet, monkeypatch: pytest.MonkeyPatch) -> None:
    """What docs/training.md counts: K sums for each Sinkhorn iteration of both views, the gradients, the parts, the prototypes used."""
    sent: list[int] = []
    monkeypatch.setattr(distributed, "all_reduce", lambda tensor: sent.append(tensor.nbytes))
    monkeypatch.setattr(distributed, "all_gather", lambda everybody, tensor: sent.append(tensor.nbytes))
    at_once = ScheduleConfig(resolutions=(8,))
    config = replace(SHARED, schedule=at_once, init_prototypes_from_data=False)
    run = Trainer(config, Split.of(textures), ranks=Ranks(0, 2))
    run.step(0)
    weights = sum(weight.numel() for weight in run.network.parameters())
    assert sent == [4 * 30] * 6 + [4 * weights, 8 * 5, 8 * 15]


def test_shares_of_a_batch() -> None:
    """Every row has one owner, shares differ by one row or one task at most, and tasks are not torn apart."""
    for total, size, task in ((15, 2, 1), (16, 3, 1), (3, 3, 1), (24, 2, 8), (40, 3, 8)):
        shares = [range(total)[Ranks(rank, size).rows(total, task)] for rank in range(size)]
        assert [row for share in shares for row in share] == list(range(total))
        assert max(map(len, shares)) - min(map(len, shares)) <= task
        assert all(share.start % task == 0 for share in shares)
    with pytest.raises(UsageError, match="A batch of 8 images is too small to split over 2 processes"):
        Ranks(0, 2).rows(8, task=8)


def test_batch_norm_is_refused(textures: ImageSet) -> None:
    with pytest.raises(UsageError, match=r"model.norm = batch needs the whole batch in one process"):
        Trainer(SHORT, Split.of(textures), ranks=Ranks(0, 2))


def test_a_shard_under_torchrun_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["evaluate", str(write_model(tmp_path)), "--shard", "1/2"]) == 2
    assert "leave out --shard" in capsys.readouterr().err


def test_processes_without_a_meeting_place(
    preset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert main(["train", "--config", str(preset), "--out", str(tmp_path)]) == 1
    complaint = capsys.readouterr().err
    assert complaint.startswith("ttaps train (process 1): The 2 processes did not join")
    assert "Start them with torchrun." in complaint
