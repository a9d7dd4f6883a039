"""Every command, run as a user runs it: what it prints where, and its exit code."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import ttaps
from helpers.small_cifar import SMALL10, write_files
from helpers.small_model import QUICK, write_image, write_model
from ttaps import __version__
from ttaps.adaptation.spec import parse_setting
from ttaps.cli import main, peek
from ttaps.cli.commands import COMMANDS
from ttaps.cli.common import print_json
from ttaps.data.cifar import CIFAR10_CLASSES, LAYOUTS
from ttaps.model import registry
from ttaps.model.own import make_module

FAST = ("--set", "ttaps.steps=1", "--set", "ttaps.num_pairs=2")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model folder."""
    return str(write_model(tmp_path_factory.mktemp("models") / "small"))


@pytest.fixture
def image_file(tmp_path: Path) -> str:
    """An image file."""
    return str(write_image(tmp_path / "image.png"))


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """Run a command that must succeed, and return the JSON that is all it prints on stdout."""
    assert main(arguments) == 0
    return json.loads(capsys.readouterr().out)


def run_program(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run ``python -m ttaps`` as a process of its own."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "ttaps", *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_options_that_decide_on_others_are_read_as_all_others() -> None:
    assert peek(["--config", "smoke", "--model.num_classes=7"], "--model.num-classes") == "7"
    assert peek(["--config=smoke", "--config", "mine.toml"], "--config") == "mine.toml"
    assert peek(["--config"], "--config") is None


@pytest.mark.parametrize(
    "command", [(), *((name,) for name in COMMANDS if name != "adapt"), ("data", "verify"), ("results", "merge")]
)
def test_help_needs_neither_torch_nor_pandas(tmp_path: Path, command: tuple[str, ...]) -> None:
    script = (
        f"import sys; from ttaps.cli import main; assert main({[*command, '--help']}) == 0; "
        "assert not {'torch', 'pandas', 'scipy', 'matplotlib'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in COMMANDS)


def test_program_as_a_process(model: str, image_file: str, tmp_path: Path) -> None:
    done = run_program("adapt", model, image_file, *QUICK, "--json", cwd=tmp_path)
    assert done.returncode == 0
    assert json.loads(done.stdout)[0]["image"] == image_file
    wrong = run_program("adapt", model, "nothing.png", cwd=tmp_path)
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert wrong.stderr == "ttaps adapt: There is no file nothing.png.\n"


def test_no_command_is_a_wrong_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage: ttaps COMMAND" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"ttaps {__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_is_on_stdout(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert main([command, "--help"]) == 0
    shown = capsys.readouterr()
    assert all(len(line) <= 100 or line.startswith("usage: ") for line in shown.out.splitlines())
    assert f"usage: ttaps {command}" in shown.out
    assert f"Example: ttaps {command}" in " ".join(shown.out.split())
    assert not shown.err


def test_help_has_the_own_options_first_and_flows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["evaluate", "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.index("--data STR") < shown.index("--projections") < shown.index("--json") < shown.index("--weights")
    assert "one with such folders in train and test (or val)," in shown


def test_help_lists_and_models_need_no_torch() -> None:
    """It takes seconds to import. All in one process: the last to need it fails for all."""
    kinds = {command: known.options for command, known in COMMANDS.items()}
    nested = [[command, name] for command, kind in kinds.items() if isinstance(kind, dict) for name in kind]
    helps = [[*words, "--help"] for words in ([], *([command] for command in COMMANDS), *nested)]
    code = "import sys; from ttaps.cli import main\n"
    code += (
        f"for line in {[*helps, ['--version'], ['info'], ['info', 'cifar10', 'batchnorm-cifar10']]}: "
        "assert main(line) == 0 and 'torch' not in sys.modules, line"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_help_of_adapt_has_the_options_of_a_method_that_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["adapt", "--help"]) == 0
    assert "--num-pairs" not in capsys.readouterr().out  # of ttaps:tuned, which it would use
    assert main(["adapt", "--method", "memo", "--help"]) == 0
    assert "--num-views" in capsys.readouterr().out


def test_adapt_prints_a_line_for_each_image(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {"a.png": (32, 32), "b.png": (70, 40)}
    image_files = [str(write_image(tmp_path / name, *size)) for name, size in sizes.items()]
    assert main(["adapt", model, *image_files, *QUICK]) == 0
    shown = capsys.readouterr()
    assert [line.split(": ")[0] for line in shown.out.splitlines()] == image_files
    assert "b.png: cropped to a square and resized from 70x40 to 32x32." in shown.err
    assert "a.png: " not in shown.err


def test_adapt_takes_a_folder_of_images(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "photos" / "cats").mkdir(parents=True)
    assert main(["adapt", model, str(tmp_path / "photos"), *QUICK]) == 1
    assert "There is no image in" in capsys.readouterr().err
    image_files = [str(write_image(tmp_path / "photos" / name, 32, 32)) for name in ("a.png", "cats/b.png")]
    assert main(["adapt", model, str(tmp_path / "photos"), *QUICK]) == 0
    assert [line.split(": ")[0] for line in capsys.readouterr().out.splitlines()] == image_files


def test_adapt_gives_no_label_to_what_is_not_a_number(
    model: str, image_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = printed(capsys, "adapt", model, image_file, "--method", "ttaps", "--lr", "1e38", "--json")
    assert (row["label"], row["probability"]) == (None, None)
    assert main(["adapt", model, image_file, "--method", "ttaps", "--lr", "1e38"]) == 0
    assert "no prediction: take smaller steps (--lr) (before: " in capsys.readouterr().out


def test_adapt_says_which_images_it_left_alone(model: str, image_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    for sure, adapted in (("0", False), ("1", True)):
        options = ("adapt", model, image_file, *QUICK, "--confidence-threshold", sure)
        (row,) = printed(capsys, *options, "--json")
        assert row["adapted"] is adapted
        assert main(list(options)) == 0
        assert ("(not adapted)" in capsys.readouterr().out) is not adapted


def test_adapt_json_holds_the_whole_trace(model: str, image_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = printed(capsys, "adapt", model, image_file, "--steps", "2", "--num-pairs", "2", "--json")
    assert [len(step) for step in row["trace"]] == [10, 10, 10]
    assert tuple(row["probabilities"]) == CIFAR10_CLASSES
    assert list(row["probabilities"].values()) == row["trace"][-1]
    assert row["probability_before"] == max(row["trace"][0])
    assert row["label"] == max(row["probabilities"], key=row["probabilities"].get)


def test_adapt_with_the_source_method_takes_no_steps(
    model: str, image_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = printed(capsys, "adapt", model, image_file, "--method", "source", "--json")
    (still,) = printed(capsys, "adapt", model, image_file, "--steps", "0", "--json")
    assert len(row["trace"]) == 1
    assert row["trace"][0] == pytest.approx(still["trace"][0], abs=1e-6)


def test_named_settings_are_the_defaults_of_the_options(
    model: str, image_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    named = printed(capsys, "adapt", model, image_file, "--method", "ttaps:fast", "--steps", "2", "--json")
    spelled = ("--lr", "1", "--num-pairs", "24", "--confidence-threshold", "0.7", "--steps", "2")
    assert printed(capsys, "adapt", model, image_file, "--method", "ttaps", *spelled, "--json") == named


def test_a_diverged_adaptation_is_still_json(model: str, image_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = printed(capsys, "adapt", model, image_file, "--lr", "1e30", "--steps", "3", "--num-pairs", "2", "--json")
    assert row["trace"][0][0] is not None
    assert row["trace"][-1] == [None] * 10


@pytest.mark.parametrize(
    ("suffix", "opening"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml"), ("PNG", b"\x89PNG")]
)
@pytest.mark.parametrize("method", ["ttaps", "source"])
def test_adapt_draws_a_figure(model: str, tmp_path: Path, method: str, suffix: str, opening: bytes) -> None:
    odd = write_image(tmp_path / "price $5 and $6 of a_b^c in a long name.png")
    figure = tmp_path / "figures" / f"out.{suffix}"
    quick = QUICK if method == "ttaps" else ()
    assert main(["adapt", model, str(odd), "--method", method, *quick, "--figure", str(figure)]) == 0
    assert figure.read_bytes().startswith(opening)
    assert [path.name for path in figure.parent.iterdir()] == [figure.name]


@pytest.mark.parametrize(
    ("method", "count"), [("source", 1), ("augment --num-views 3", 2), ("ttaps --steps 1 --num-pairs 1", 2)]
)
def test_the_figure_shows_the_views_a_method_saw(
    model: str, image_file: str, tmp_path: Path, method: str, count: int
) -> None:
    """The image itself, and all its views side by side."""
    figure = tmp_path / "out.svg"
    assert main(["adapt", model, image_file, "--method", *method.split(), "--figure", str(figure)]) == 0
    assert figure.read_text().count("<image") == count
    assert ("left unchanged" in figure.read_text()) == (count == 1), "no curve where nothing happened"


def test_a_figure_of_some_images_says_so(
    model: str, image_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figure = tmp_path / "out.svg"
    for images, words in ((20, ""), (21, " It shows the first 20 of 21 images.")):
        assert main(["adapt", model, *[image_file] * images, "--method", "source", "--figure", str(figure)]) == 0
        assert figure.read_text().count("<image") == 20
        assert capsys.readouterr().err.endswith(f"Wrote {figure}.{words}\n")


def test_an_image_whose_name_is_not_text(model: str, tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe.png"))
    write_image(path)
    done = run_program("adapt", model, str(path), *QUICK, "--figure", "out.png", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert r"\udcff\udcfe.png" in done.stdout


def test_your_own_images_decide_how_many_classes_there_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("cat", "dog", "owl"):
        for number in range(4):
            (tmp_path / "own" / name).mkdir(parents=True, exist_ok=True)
            write_image(tmp_path / "own" / name / f"{number}.png", 8 + number, 8)
    small = ["--model.image-size", "8", "--model.width", "4", "--model.num-groups", "4", "--model.num-prototypes", "10"]
    command = ["train", "--config", "smoke", "--data", str(tmp_path / "own"), "--out", str(tmp_path / "run"), *small]
    command += ["--epochs", "1", "--batch-size", "4", "--schedule.resolutions", "8", "--objective", "baseline"]
    assert main(command) == 0
    assert "has 3 classes: model.num_classes is set to that" in capsys.readouterr().err
    assert main(command) == 0
    assert "already trained" in capsys.readouterr().err
    asked = ["evaluate", str(tmp_path / "run"), "--data", str(tmp_path / "own"), "--methods", "source"]
    assert main([*asked, "--out", str(tmp_path / "results")]) == 0
    assert "was trained on four fifths of these images" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.3", 0.3), ("5", 5), ("true", True), ("[0.2, 1.0]", [0.2, 1.0]), ('"hard"', "hard"), ("hard", "hard")],
)
def test_settings_are_toml_values_or_bare_words(text: str, value: object) -> None:
    assert parse_setting(f"ttaps.views.weight-decay={text}") == ("ttaps", ["views", "weight_decay"], value)


def test_train_on_the_sample_and_adapt_with_it(
    tmp_path: Path, image_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(tmp_path / "run")
    small = [
        "--model.width",
        "16",
        "--epochs",
        "1",
        "--schedule.warmup-epochs",
        "0.5",
        "--schedule.joint-start-epoch",
        "0.5",
    ]
    assert main(["train", "--config", "smoke", "--out", run, *small]) == 0
    assert capsys.readouterr().out == f"{run}\n"
    assert main(["train", "--out", run, "--resume"]) == 0
    assert "already trained: 4 steps" in capsys.readouterr().err
    facts = printed(capsys, "info", run, "--json")
    assert (facts["objective"], facts["data"], facts["steps"]) == ("jt+ent", "sample-train", 4)
    assert printed(capsys, "adapt", run, image_file, *QUICK, "--json")[0]["label"] in CIFAR10_CLASSES


def test_info(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    facts = printed(capsys, "info", model, "--json")
    assert facts["name"] == "small"
    assert len(facts["fingerprint"]) == 12
    assert main(["info", model]) == 0
    assert facts["fingerprint"] in capsys.readouterr().out


def test_info_lists_the_embedded_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert "cifar10" in printed(capsys, "info", "--json")


def test_a_model_in_the_package_goes_before_one_of_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, folder in (("PUBLISHED", "z"), ("EMBEDDED", "a")):
        monkeypatch.setattr(registry, name, tmp_path / folder)
    for folder in ("z/b", "z/c", "a/c", "a/d"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "config.json").touch()
    assert registry.known_models() == {
        name: tmp_path / folder / name for name, folder in (("b", "z"), ("c", "a"), ("d", "a"))
    }


def test_data_verify_fails_when_nothing_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "verify", "--json", "--data-root", str(tmp_path)]) == 1
    assert {row["state"] for row in json.loads(capsys.readouterr().out)} == {"missing"}
    assert main(["data", "verify", "--data-root", str(tmp_path)]) == 1
    assert "ttaps data download cifar10" in capsys.readouterr().out


def test_data_verify_fails_when_what_is_named_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(LAYOUTS, "cifar10", SMALL10)
    write_files(SMALL10, tmp_path)
    root = ["--data-root", str(tmp_path)]
    assert main(["data", "verify", *root]) == 0
    assert main(["data", "verify", "cifar10", *root]) == 0
    capsys.readouterr()
    assert main(["data", "verify", "cifar100", "cifar10", *root]) == 1
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["cifar10", "cifar100"]


def test_numbers_that_are_none_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": [math.nan, math.inf, 0.5], "b": (1, "x", None)})
    assert json.loads(capsys.readouterr().out) == {"a": [None, None, 0.5], "b": [1, "x", None]}


def test_a_network_of_ones_own_goes_through_adapt_evaluate_and_info(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    layers = "nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)"
    Path("my_nets.py").write_text(f"from torch import nn\n\ndef make_net():\n    return nn.Sequential({layers})\n")
    net = make_module("my_nets.py:make_net")
    torch.save(net.state_dict(), "net.pt")
    Path("names.txt").write_text("\n".join(CIFAR10_CLASSES))
    write_image(tmp_path / "a.png")
    own = ("my_nets.py:make_net", "--weights", "net.pt", "--size", "32", "--classes", "names.txt")
    assert main(["info", *own, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    supported = ["source", "augment", "bn", "t3a", "lame", "tent", "eata", "sar", "cotta", "memo"]
    assert (facts["classes"], facts["methods"]) == (list(CIFAR10_CLASSES), supported)
    assert main(["adapt", own[0], "a.png", *own[1:], "--method", "bn", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)[0]["probabilities"]
    model = ttaps.load(own[0], weights="net.pt", size=32, classes=CIFAR10_CLASSES)
    assert list(found.values()) == pytest.approx(ttaps.adapt(model, "a.png", "bn").probabilities.tolist(), abs=1e-6)
    assert main(["evaluate", *own, "--methods", "source,bn", "--limit", "1", "--out", "results", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["stored"] == 2 * 9
    assert main(["evaluate", *own, "--methods", "ttaps"]) == 2
    assert f"needs prototypes; this model supports {', '.join(supported)}" in capsys.readouterr().err
