"""What tools/torture.py found to end in a traceback, most of it damaged files: each is reported in one line now."""

from __future__ import annotations

import errno
import os
import signal
import sqlite3
import zipfile
from pathlib import Path

import numpy as np
import pytest

from helpers.small_evaluation import METHODS, small_benchmark, small_model
from helpers.small_model import write_model
from ttaps import cli
from ttaps.adaptation.spec import parse_methods
from ttaps.config import read_toml
from ttaps.data.images import map_npy, read_arrays
from ttaps.errors import LONGEST, TtapsError, UsageError
from ttaps.evaluation.run import evaluate
from ttaps.evaluation.store import FILE
from ttaps.files import remove_partials
from ttaps.model.checkpoint import load_model
from ttaps.report.columns import load_results
from ttaps.report.figures.learning import read_curve
from ttaps.training import run_dir

DEEP = "[" * 9999  # deeper than Python's own parsers follow


def test_an_array_whose_header_python_cannot_parse(tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", np.zeros((1, 3, 4, 4), dtype=np.uint8))
    content = (tmp_path / "images.npy").read_bytes()
    (tmp_path / "images.npy").write_bytes(content.replace(b"False,", b"Fal(,\0"))
    with pytest.raises(TtapsError, match="is damaged or truncated"):
        map_npy(tmp_path / "images.npy", "Write it again.")
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.write(tmp_path / "images.npy", "images.npy")
        archive.write(tmp_path / "images.npy", "labels.npy")
    with pytest.raises(TtapsError, match=r"is not a complete \.npz file"):
        read_arrays(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", images=np.zeros(1))
    with pytest.raises(TtapsError, match="has no array 'labels'"):  # what is wrong with whole files is still reported
        read_arrays(tmp_path / "a.npz")


@pytest.mark.parametrize("line", ['{"loss": 1}', "[]", "{", DEEP, '{"step": "a"}'])
def test_a_damaged_line_of_metrics_is_dropped(tmp_path: Path, line: str) -> None:
    path = tmp_path / run_dir.METRICS
    path.write_text(f'{{"step": 1}}\n{line}\n{{"step": 2}}\n{{"step": 3}}\n')
    run_dir.rewind_metrics(tmp_path, 2)
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n'


@pytest.mark.parametrize("step", ["9" * 400, '"a"', "[]", "{}"])
def test_a_learning_curve_with_a_step_that_is_no_number(tmp_path: Path, step: str) -> None:
    (tmp_path / run_dir.METRICS).write_text(f'{{"step": 1, "epoch": 1, "ce": 1}}\n{{"step": {step}}}\n')
    with pytest.raises(TtapsError, match="cannot be read"):
        read_curve("run", tmp_path)


def test_a_row_of_metrics_is_synced_before_the_state_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_size))
    run_dir.log_metrics(tmp_path, {"step": 1})
    assert synced == [len('{"step": 1}\n')]


def test_thousands_of_brackets(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    for name in ("config.json", "train.toml", "metrics.jsonl"):
        (model / name).write_text(f"a = {DEEP}" if name == "train.toml" else f'{{"a": {DEEP}}}')
    with pytest.raises(TtapsError, match=r"Cannot read .*config.json"):
        load_model(model)
    with pytest.raises(UsageError, match="is not valid TOML"):
        read_toml(model / "train.toml")
    (model / "config.json").unlink()
    with pytest.raises(TtapsError, match="cannot be read"):
        read_curve("model", model)
    with pytest.raises(UsageError, match="steps must be int"):
        parse_methods(f"ttaps[steps={DEEP}{']' * 9999}]")


@pytest.mark.parametrize("facts", ["{", "1 2", DEEP, b"\xff"])
def test_results_with_damaged_text(tmp_path: Path, facts: object) -> None:
    evaluate(small_model(), small_benchmark(1), METHODS[:1], folder=tmp_path)
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute("UPDATE models SET facts = ?", [facts])
    connection.close()
    with pytest.raises(TtapsError, match="is damaged or no results file"):
        load_results([tmp_path])


def test_results_with_a_damaged_schema(tmp_path: Path) -> None:
    evaluate(small_model(), small_benchmark(1), METHODS[:1], folder=tmp_path)
    content = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(content.replace(b"CREATE TABLE", b"CREATE \xcbABLE"))
    with pytest.raises(TtapsError, match="is damaged or no results file"):
        load_results([tmp_path])


def test_a_message_is_never_longer_than_a_screen() -> None:
    text = str(UsageError(f"Setting {'a' * 10**6} is wrong.\nRemedy."))
    assert len(text) < LONGEST + 10
    assert text.startswith("Setting a")
    assert text.endswith("is wrong.\nRemedy.")


def test_an_input_output_error_while_leftovers_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(path: Path) -> None:
        raise OSError(errno.EIO, "Input/output error", str(path))

    (tmp_path / ".config.json.1.part").touch()
    monkeypatch.setattr(Path, "unlink", failing)
    with pytest.raises(OSError, match="Input/output error") as caught:
        remove_partials(tmp_path)
    assert "Check the disk, then run the command again" in str(cli.explain(caught.value))


def test_an_input_output_error_while_settings_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(path: Path, *_: object) -> str:
        raise OSError(errno.EIO, "Input/output error", str(path))

    monkeypatch.setattr(Path, "read_text", failing)
    with pytest.raises(OSError, match="Input/output error") as caught:
        read_toml(tmp_path / "train.toml")
    assert "Check the disk, then run the command again" in str(cli.explain(caught.value))


def test_a_second_interrupt_while_the_first_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "run_command", interrupted)
    assert cli.main(["methods"]) == 130


def test_a_second_interrupt_after_the_first_was_reported_ends_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "parse", interrupted)
    before = signal.getsignal(signal.SIGINT)
    try:
        assert cli.main(["methods"]) == 130
        assert (
            signal.getsignal(signal.SIGINT) is signal.SIG_DFL
        )  # in Python's hands it is a traceback in some finalizer
    finally:
        signal.signal(signal.SIGINT, before)
