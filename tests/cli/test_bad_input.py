"""Whatever is wrong with what comes in or where it goes out: one or two lines that say what to do, no traceback, nothing lost."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from helpers.small_cifar import SMALL10, write_files
from helpers.small_model import QUICK, write_image, write_model
from ttaps.cli import main
from ttaps.data.cifar import LAYOUTS
from ttaps.evaluation.store import FILE

Refused = Callable[..., str]
SMOKE = ("train", "--config", "smoke", "--epochs", "1", "--schedule.warmup-epochs", "0")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model folder."""
    return write_model(tmp_path / "small")


@pytest.fixture
def image_file(tmp_path: Path) -> Path:
    """An image file."""
    return write_image(tmp_path / "image.png")


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Refused:
    """Return a function that runs a command which must fail with ``code``, and returns its one or two lines, or tyro's box."""

    def run(*arguments: object, code: int = 1) -> str:
        capsys.readouterr()
        assert main([str(argument) for argument in arguments]) == code
        shown = capsys.readouterr()
        told = [line for line in shown.err.splitlines() if line.strip()]
        start = next((place for place, line in enumerate(told) if line.startswith(f"ttaps {arguments[0]}: ")), None)
        assert not shown.out
        if start is None:
            assert code == 2
            return " ".join(re.sub("[│╭╮╰╯─]", " ", shown.err).split())
        assert len(told[start:]) <= 2
        return "\n".join(told[start:]).removeprefix(f"ttaps {arguments[0]}: ")

    return run


def cut(path: Path, keep: float = 0.5) -> None:
    """Keep only the beginning of a file."""
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])


# Models


def test_no_model_of_that_name(refused: Refused, image_file: Path) -> None:
    assert "There is no model 'cifar11'" in refused("adapt", "cifar11", image_file)
    assert "did you mean 'cifar10'" in refused("info", "cifar11")


def test_a_folder_that_is_no_model(refused: Refused, image_file: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "is not a model folder: it has no config.json" in refused("adapt", tmp_path / "empty", image_file)
    refused("adapt", image_file, image_file)  # a file for a folder


@pytest.mark.parametrize("keep", [0.0, 0.01, 0.5, 0.999])
def test_truncated_weights(refused: Refused, model: Path, image_file: Path, keep: float) -> None:
    cut(model / "model.safetensors", keep)
    assert "damaged or not a safetensors file" in refused("adapt", model, image_file)


def test_missing_weights(refused: Refused, model: Path) -> None:
    (model / "model.safetensors").unlink()
    assert "no finished checkpoint yet" in refused("info", model)


def test_weights_of_another_shape(refused: Refused, model: Path) -> None:
    weights = load_file(model / "model.safetensors")
    save_file(weights | {"prototypes": torch.zeros(7, 8)}, model / "model.safetensors")
    assert "'prototypes' has shape (7, 8), the network expects (12, 8)" in refused("info", model)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": 2}, "has format 2; this version of ttaps"),
        ({"model": {"prototipes": 12}}, "did you mean 'num_prototypes'"),
        ({"model": {"depth": 9}}, "depth must be 6n + 2"),
        ({"model": 3}, "config.json"),
        ({"model": []}, "config.json"),
    ],
)
def test_a_config_of_another_version(refused: Refused, model: Path, changes: dict[str, object], words: str) -> None:
    path = model / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    assert words in refused("info", model)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"null"])
def test_a_damaged_config(refused: Refused, model: Path, content: bytes) -> None:
    (model / "config.json").write_bytes(content)
    assert "config.json" in refused("info", model)


# Pictures


def test_no_image_at_all(refused: Refused, model: Path) -> None:
    assert refused("adapt", model, code=2) == "Give a model and at least one image, as in: ttaps adapt cifar10 ship.png"


def test_a_missing_image(refused: Refused, model: Path) -> None:
    assert refused("adapt", model, "none.png") == "There is no file none.png."


def test_a_folder_for_an_image(refused: Refused, model: Path, tmp_path: Path) -> None:
    assert str(tmp_path) in refused("adapt", model, tmp_path)


def test_a_text_file_for_an_image(refused: Refused, model: Path, tmp_path: Path) -> None:
    path = tmp_path / "notes.png"
    path.write_text("I am no image.\n")
    assert "is not an image that Pillow can read" in refused("adapt", model, path)


def test_an_option_of_another_method(refused: Refused, model: Path, image_file: Path) -> None:
    words = refused("adapt", model, image_file, "--method", "tent", "--num-pairs", "3", code=2)
    assert words.startswith("Unrecognized options")
    assert words.endswith("run ttaps adapt --method tent --help")


def test_images_that_are_all_bad_are_all_named(refused: Refused, model: Path) -> None:
    assert refused("adapt", model, "none.png", "no.png") == "There is no file none.png.\nThere is no file no.png."


def test_a_wrong_line_points_to_the_help_of_its_sub_command(refused: Refused) -> None:
    assert refused("results", "export", "one", code=2).endswith("ttaps results export --help")
    assert refused("data", "download", code=2).endswith("ttaps data download --help")
    assert refused("data", "chek", code=2).endswith("ttaps data --help")


def test_a_wrong_corruption_is_reported_before_missing_data(refused: Refused, tmp_path: Path) -> None:
    wrong = ("data", "build", "cifar10-c", "--corruptions", "foggy", "--data-root", tmp_path)
    assert refused(*wrong, code=2) == "Unknown corruption 'foggy' (did you mean 'fog'?)."


def test_data_that_is_missing_somewhere_else(refused: Refused, model: Path, tmp_path: Path) -> None:
    words = refused("data", "build", "cifar10-c", "--data-root", tmp_path / "else")
    assert words.endswith(f"Download it with: ttaps data download cifar10 --data-root {tmp_path / 'else'}")
    words = refused("evaluate", model, "--data", "cifar10-c", "--data-root", tmp_path / "else")
    assert words.endswith(f"Build it with: ttaps data build cifar10-c --data-root {tmp_path / 'else'}")


def test_a_bad_image_among_good_ones(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = (write_image(tmp_path / f"{name}.png") for name in ("good", "bad"))
    cut(bad)
    assert main(["adapt", str(model), str(bad), str(good), "none.png", "--method", "source", "--json"]) == 1
    said = capsys.readouterr()
    assert [row["image"] for row in json.loads(said.out)] == [str(good)]
    assert f"{bad} is damaged" in said.err
    assert "There is no file none.png." in said.err


def test_a_truncated_image(refused: Refused, model: Path, image_file: Path) -> None:
    cut(image_file)
    assert "damaged or truncated" in refused("adapt", model, image_file)


@pytest.mark.parametrize("size", [(50_000, 1), (50_000, 50_000), (2**31 - 1, 2**31 - 1)])
def test_an_image_of_too_many_pixels(refused: Refused, model: Path, tmp_path: Path, size: tuple[int, int]) -> None:
    path = tmp_path / "wide.png"
    path.write_bytes(png_header(*size))
    assert "too large" in refused("adapt", model, path)


def png_header(width: int, height: int) -> bytes:
    """Return a PNG that says how large it is and has little else."""
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"\0")),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


# Options


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--steps", "-1"), "steps must be at least 0, not -1"),
        (("--steps", "many"), "--steps"),
        (("--stepz", "3"), "Perhaps you meant: --steps"),
        (("--copies", "3"), "--copies is called --num-pairs now."),
        (("--sure=0.5",), "--sure is called --confidence-threshold now."),
        (("--views.flip", "0"), "--views.flip is called --views.flip-p now."),
        (("--method", "average"), "Unknown method 'average' (it is called 'augment' now)"),
        (("--lr", "-0.1"), "lr must be at least 0, not -0.1"),
        (("--num-pairs", "0"), "num_pairs must be at least 1, not 0"),
        (("--tau", "0"), "tau must be positive"),
        (("--codes", "soff"), "'soff'"),
        (("--adapt-params", "stage9"), "stage9"),
        (("--method", "ttap"), "did you mean 'ttaps'"),
        (("--method", ""), "Unknown method ''"),
        (("--threads", "0"), "--threads must be at least 1, not 0"),
        (("--threads", "100000"), "--threads 100000 is too many for"),
        (("--device", "tpu"), "Device 'tpu' cannot be used here.\nChoose cpu"),
        (("--method", "bn"), "Method 'bn' needs BatchNorm layers"),
        (("--figure", "out.bmp"), ".png, .pdf, .svg, not 'out.bmp'"),
        (("--figure", "out"), ".png, .pdf, .svg, not 'out'"),
        (("--views.ratio", "0", "1"), "ratio must be two rising numbers above 0, not 0.0 and 1.0."),
        (("--views.scale", "0.5", "2"), "scale must be two rising numbers above 0 and at most 1, not 0.5 and 2.0."),
        (("--views.flip-p", "1.5"), "flip_p must be a probability, from 0 to 1, not 1.5."),
    ],
)
def test_wrong_options_of_adapt(
    refused: Refused, model: Path, image_file: Path, options: tuple[str, str], words: str
) -> None:
    assert words in refused("adapt", model, image_file, *options, code=2)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--data", "cifar10-d"), "(did you mean 'cifar10-c'?)"),
        (("--corruptions", "fogg"), "did you mean 'fog'"),
        (("--severity", "9"), "no severity 9"),
        (("--severity", "high"), "--severity must be comma-separated whole numbers"),
        (("--limit", "0"), "at least 1 image"),
        (("--limit", "ten"), "--limit"),
        (("--methods", "source,ttap"), "did you mean 'ttaps'"),
        (("--methods", ","), "names no method"),
        (("--methods", "ttaps[adapt_params=foo]"), "adapt_params 'foo', or a part of it, matches no weight"),
        (("--methods", "bn", "--data", "not looked for"), "Method 'bn' needs BatchNorm layers"),
        (("--seeds", "0,b"), "--seeds must be comma-separated whole numbers"),
        (("--shard", "3/2"), "no shard 3 of 2"),
        (("--shard", "half"), "written i/n"),
        (("--set", "ttaps.stepz=3"), "did you mean 'steps'"),
        (("--set", "ttaps.copies=3"), "'copies' is called 'num_pairs' now"),
        (("--methods", "source,tent[optimiser=sgd]"), "'optimiser' is called 'optimizer' now"),
        (("--set", "ttaps.steps=-3"), "steps must be at least 0, not -3"),
        (("--set", "ttaps.steps=few"), "steps must be int, not 'few'"),
        (("--set", "tent.lr=1"), "method 'tent' is not in --methods"),
        (("--set", "lr=1"), "METHOD.NAME=VALUE"),
        (("--device", "tpu"), "Device 'tpu' cannot be used here"),
        (("--batch-size", "0"), "batch_size must be at least 1, not 0"),
    ],
)
def test_wrong_options_of_evaluate(
    refused: Refused, model: Path, tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    assert words in refused("evaluate", model, *options, "--out", tmp_path / "results", code=2)
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("arguments", [("adapt",), ("evaluate",), ("train",), ("data",), ("data", "git", "cifar10")])
def test_what_must_be_given(refused: Refused, arguments: tuple[str, ...]) -> None:
    assert refused(*arguments, code=2).endswith(f"ttaps {arguments[0]} --help")


def test_old_options_and_commands_are_refused_with_the_new_name(refused: Refused, tmp_path: Path) -> None:
    words = refused("train", "--out", tmp_path, "--optimiser.warmup", "3", code=2)
    assert words == "--optimiser.warmup is called --schedule.warmup-epochs now."
    assert refused("train", "--out", tmp_path, "--batch", "3", code=2) == "--batch is called --batch-size now."
    assert refused("data", "get", "cifar10", code=2) == "'ttaps data get' is called 'ttaps data download' now."
    assert refused("data", "check", code=2) == "'ttaps data check' is called 'ttaps data verify' now."


def test_an_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evalute"]) == 2
    assert capsys.readouterr().err == "ttaps: unknown command 'evalute' (did you mean 'evaluate'?).\n"


# Configs


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("epoch = 3", "unknown key 'epoch' (did you mean 'epochs'?)"),
        (
            "batch = 3\n[optimiser]\nlr = 1",
            "'batch' is called 'batch_size' now, 'optimiser.lr' is called 'optimizer.lr' now.",
        ),
        ("[model]\nprototipes = 3", "did you mean 'num_prototypes'"),
        ('epochs = "many"', "epochs must be float, not 'many'"),
        ("epochs = -1", "epochs"),
        ("batch_size = 0", "batch_size"),
        ('objective = "jd"', "objective"),
        ("epochs = ", "is not valid TOML"),
        ("model = 3", "must be a table of settings"),
        ("[loss]\nlabel_smoothing = 2", "loss.label_smoothing must be at least 0 and less than 1"),
        ("[augmentation]\ncrop_scale = [2, 3]", "crop_scale must be two rising numbers above 0 and at most 1"),
    ],
)
def test_a_wrong_config(refused: Refused, tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(content)
    assert words in refused("train", "--config", path, "--out", tmp_path / "run", code=2)
    assert not (tmp_path / "run").exists()


def test_a_config_that_is_not_there(refused: Refused, tmp_path: Path) -> None:
    assert "did you mean 'smoke'" in refused("train", "--config", "smok", "--out", tmp_path / "run", code=2)
    assert "nothing to resume" in refused("train", "--resume", "--out", tmp_path / "run", code=2)


def test_a_network_for_other_classes(refused: Refused, tmp_path: Path) -> None:
    for option in ("--model.num-classes", "--model.num_classes"):
        words = refused(*SMOKE, option, "7", "--out", tmp_path / "run", code=2)
        assert words == "sample-train has 10 classes, the network 7: set --model.num-classes 10."


# Data


def test_data_that_is_not_there(refused: Refused, model: Path, tmp_path: Path) -> None:
    root = ("--data-root", tmp_path)
    assert "ttaps data build cifar10-c" in refused("evaluate", model, "--data", "cifar10-c", *root)
    assert "ttaps data download cifar10" in refused("evaluate", model, "--data", "cifar10", *root)
    assert "ttaps data download cifar10" in refused(*SMOKE, "--data", "cifar10", *root, "--out", tmp_path / "run")


@pytest.mark.parametrize("keep", [0.0, 0.001, 0.5])
def test_a_truncated_corrupted_set(
    refused: Refused, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: float
) -> None:
    monkeypatch.setitem(LAYOUTS, "cifar10", SMALL10)
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    np.save(folder / "labels.npy", np.zeros(20, dtype=np.uint8))
    np.save(folder / "fog.npy", np.zeros((20, 32, 32, 3), dtype=np.uint8))
    command = ("evaluate", model, "--data", "cifar10-c", "--corruptions", "fog", "--data-root", tmp_path)
    cut(folder / "fog.npy", keep)
    assert "ttaps data build cifar10-c" in refused(*command, "--out", tmp_path / "results")


def test_a_wrong_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(LAYOUTS, "cifar10", SMALL10)
    file = write_files(SMALL10, tmp_path) / "test_batch"
    assert main(["data", "verify", "--data-root", str(tmp_path)]) == 0
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    capsys.readouterr()
    assert main(["data", "verify", "--data-root", str(tmp_path)]) == 1
    line = capsys.readouterr().out.splitlines()[0]
    assert line.startswith("cifar10 ")
    assert "damaged" in line
    assert "->" in line


def test_wrong_arguments_of_data(refused: Refused, tmp_path: Path) -> None:
    assert "--workers must be at least 1" in refused("data", "build", "cifar10-c", "--workers", "0", code=2)
    assert "cifar11" in refused("data", "download", "cifar11", code=2)
    assert "ttaps data download cifar10" in refused("data", "build", "cifar10-c", "--data-root", tmp_path)


# Where results go


def test_a_text_file_for_arrays(refused: Refused, model: Path, tmp_path: Path) -> None:
    """numpy would advise to load it as a pickle."""
    (tmp_path / "a.npz").write_text("hello")
    said = refused("evaluate", model, "--data", tmp_path / "a.npz", "--out", tmp_path / "results")
    assert "a.npz is not a complete .npz file (it is no zip archive)" in said


def test_a_factory_that_is_not_there(refused: Refused, image_file: Path, tmp_path: Path) -> None:
    """It is named before what else is missing, such as --size."""
    (tmp_path / "nets.py").touch()
    assert "nets.py" in refused("adapt", f"{tmp_path / 'nets.py'}:net", image_file, code=2)
    assert "nothing.py" in refused("adapt", f"{tmp_path / 'nothing.py'}:net", image_file, code=2)


def test_no_time_to_tune(refused: Refused, model: Path, tmp_path: Path) -> None:
    for minutes in ("0", "-1", "nan"):
        assert f"minutes must be above 0, not {minutes}" in refused("tune", model, "--minutes", minutes, code=2)


def test_no_place_to_write(refused: Refused, model: Path, image_file: Path, tmp_path: Path) -> None:
    below = image_file / "below"  # a path below a file: not even root may write there
    assert str(below) in refused(*SMOKE, "--out", below)
    assert str(below) in refused("evaluate", model, "--limit", "1", "--methods", "source", "--out", below)
    assert str(below) in refused("data", "build", "cifar10-c", "--data-root", below)


def test_a_figure_that_cannot_be_written_is_refused_before_the_work(
    refused: Refused, model: Path, image_file: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "folder.png"
    folder.mkdir()
    for figure in (image_file / "below.png", folder):
        said = refused("adapt", model, image_file, *QUICK, "--figure", figure)
        assert f"Cannot write {figure}: " in said
        assert ("Give the name of a file" in said) == figure.is_dir()


def full_disk(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let the disk be full half-way through writing a file of that name."""
    write = Path.write_bytes

    def refuse(path: Path, content: bytes) -> int:
        if name not in path.name:
            return write(path, content)
        write(path, content[: len(content) // 2])
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_bytes", refuse)


@pytest.mark.parametrize("file", ["resume.safetensors", "model.safetensors", "config.json", "train.toml"])
def test_a_full_disk_while_saving_loses_nothing(
    refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    small = (*SMOKE, "--batch-size", "200", "--checkpoint-minutes", "0", "--out")
    assert main([*small, str(tmp_path / "whole")]) == 0
    with monkeypatch.context() as patch:
        full_disk(patch, file)
        words = refused(*small, tmp_path / "run")
        assert "No space left on device" in words
        assert "nothing already written was changed" in words
    assert not list((tmp_path / "run").glob(".*.part"))
    assert main([*small, str(tmp_path / "run")]) == 0
    assert (tmp_path / "run/model.safetensors").read_bytes() == (tmp_path / "whole/model.safetensors").read_bytes()


def test_missing_rights_are_not_a_matter_of_room(
    refused: Refused, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "closed")

    monkeypatch.setattr("ttaps.report.columns.load_results", refuse)
    assert refused("report", tmp_path).startswith("Permission denied: closed.\nGet permission for it")


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO])
@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "a.npz"])
def test_a_file_that_cannot_be_read_is_not_said_to_be_damaged(
    name: str, number: int, refused: Refused, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = io.open
    (tmp_path / "a.npz").touch()

    def refuse(path: Any, *arguments: Any, **options: Any) -> Any:
        if Path(path).name == name:
            raise OSError(number, os.strerror(number), path)
        return opened(path, *arguments, **options)

    monkeypatch.setattr("io.open", refuse)  # pathlib's
    remedy = "Get permission to read it, or check the disk; then run the command again."
    command = ("evaluate", model, "--data", tmp_path / "a.npz") if name == "a.npz" else ("info", model)
    assert refused(*command).endswith(f"{name}: {os.strerror(number)}.\n{remedy}")


def test_a_full_disk_while_logging(refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Path.open

    def refuse(path: Path, *arguments: Any, **options: Any) -> Any:
        if path.name == "metrics.jsonl":
            raise OSError(errno.ENOSPC, "No space left on device")
        return opened(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", refuse)
    words = refused(*SMOKE, "--batch-size", "200", "--out", tmp_path)
    assert words.startswith(f"Cannot write {tmp_path / 'metrics.jsonl'}: No space left on device.")


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("CUDA out of memory. Tried"), RuntimeError("you can't allocate memory: 8")]
)
def test_too_little_memory(
    refused: Refused, model: Path, image_file: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.setattr("ttaps.adaptation.ttaps.SplitNetwork", refuse)
    assert refused("adapt", model, image_file, "--confidence-threshold", "1").startswith(
        "Out of memory.\nUse a smaller --batch"
    )


def test_a_fault_of_ours_is_not_called_a_lack_of_memory(
    model: Path, image_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr("ttaps.adaptation.ttaps.SplitNetwork", refuse)
    with pytest.raises(RuntimeError, match="shapes"):
        main(["adapt", str(model), str(image_file), "--confidence-threshold", "1"])


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("info",)])
def test_whoever_reads_may_stop_reading(arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "ttaps", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_a_full_disk_while_drawing(
    refused: Refused, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = tmp_path / "demo.png"
    figure.write_bytes(b"the old one")

    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    from matplotlib.figure import Figure

    monkeypatch.setattr(Figure, "savefig", refuse)
    words = refused("demo", "--model", model, "--images", "1", "--out", figure)
    assert words.startswith(f"Cannot write {figure}: No space left on device.")
    assert figure.read_bytes() == b"the old one"


def test_results_that_are_no_results(refused: Refused, model: Path, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("I am no database, and long enough to be looked at. " * 50)
    words = refused("evaluate", model, "--limit", "1", "--methods", "source", "--out", tmp_path)
    assert "Move it away" in words
    assert (tmp_path / FILE).read_text().startswith("I am no database")


def test_another_run_in_the_folder(refused: Refused, tmp_path: Path) -> None:
    assert main([*SMOKE, "--batch-size", "200", "--out", str(tmp_path)]) == 0
    before = (tmp_path / "model.safetensors").read_bytes()
    assert "holds a run with other settings" in refused(*SMOKE, "--batch-size", "100", "--out", tmp_path, code=2)
    assert (tmp_path / "model.safetensors").read_bytes() == before


def test_a_folder_in_which_no_run_began_may_be_used(refused: Refused, tmp_path: Path) -> None:
    """A run that was refused at its first step has left its settings there, and nothing to go on from."""
    (tmp_path / "train.toml").write_text("epochs = 7\n")
    assert main([*SMOKE, "--batch-size", "200", "--out", str(tmp_path)]) == 0
    assert "epochs = 1" in (tmp_path / "train.toml").read_text()


def test_a_damaged_state_is_not_overwritten(refused: Refused, tmp_path: Path) -> None:
    command = (*SMOKE, "--batch-size", "200", "--out", str(tmp_path))
    assert main(command) == 0
    cut(tmp_path / "resume.safetensors")
    left = (tmp_path / "resume.safetensors").read_bytes()
    assert "Delete it to start this run again" in refused(*command)
    assert (tmp_path / "resume.safetensors").read_bytes() == left
