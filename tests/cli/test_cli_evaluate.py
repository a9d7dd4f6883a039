"""``ttaps evaluate`` and ``ttaps demo``, run as a user runs them: what they print where, and what they store."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from helpers.small_model import write_image, write_model
from helpers.small_results import fill
from ttaps.cli import main
from ttaps.data.sample import SAMPLE_CORRUPTIONS
from ttaps.evaluation.frame import load_rows
from ttaps.evaluation.store import FILE
from ttaps.experiments import warning

FAST = ("--set", "ttaps.steps=1", "--set", "ttaps.num_pairs=2")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model folder."""
    return str(write_model(tmp_path_factory.mktemp("models") / "small"))


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """Run a command that must succeed, and return the JSON that is all it prints on stdout."""
    assert main(arguments) == 0
    return json.loads(capsys.readouterr().out)


def test_evaluate_prints_a_table_per_method(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "results"
    assert main(["evaluate", model, "--corruptions", "fog,snow", "--limit", "2", *FAST, "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "source\non sample, severity 5, model small (" in shown
    assert "ttaps[steps=1,num_pairs=2]\non sample" in shown
    assert [line.split()[:2] for line in shown.splitlines() if line[:3] in ("fog", "sno", "Avg")] == 2 * [
        ["fog", "2"],
        ["snow", "2"],
        ["Avg.", "4"],
    ]
    assert (out / FILE).exists()


def test_the_table_is_of_what_was_asked(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["evaluate", model, "--methods", "source", "--out", str(tmp_path), "--json"]
    printed(capsys, *common, "--corruptions", "fog", "--limit", "5")
    found = printed(capsys, *common, "--corruptions", "fog,snow", "--limit", "3")
    (table,) = found["tables"]
    assert (found["asked"], found["stored"], table["average"]["n"]) == (6, 6, 6)
    assert [(line["corruption"], line["n"]) for line in table["lines"]] == [("fog", 3), ("snow", 3)]
    (table,) = printed(capsys, *common, "--corruptions", "fog", "--limit", "5")["tables"]
    assert [(line["corruption"], line["n"]) for line in table["lines"]] == [("fog", 5)]


def test_evaluate_resumes_and_shards_add_up(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["evaluate", model, "--corruptions", "fog,snow", "--limit", "3", *FAST, "--seeds", "0,1", "--json"]
    whole = printed(capsys, *command, "--out", str(tmp_path / "whole"))
    assert printed(capsys, *command, "--out", str(tmp_path / "whole"))["tables"] == whole["tables"]
    half = printed(capsys, *command, "--shard", "2/2", "--out", str(tmp_path / "parts"))
    assert (half["asked"], half["stored"]) == (24, 12)
    both = printed(capsys, *command, "--shard", "1/2", "--out", str(tmp_path / "parts"))
    assert (both["asked"], both["stored"], both["tables"]) == (24, 24, whole["tables"])
    assert [(table["spec"], table["seed"]) for table in whole["tables"]] == [
        ("source", 0),
        ("source", 1),
        ("ttaps[steps=1,num_pairs=2]", 0),
        ("ttaps[steps=1,num_pairs=2]", 1),
    ]
    assert [table["average"]["n"] for table in whole["tables"]] == [6] * 4
    assert set(whole["seconds"]) == {"adapting", "reading", "storing", "bookkeeping"}


def test_evaluate_says_what_is_missing(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["evaluate", model, "--corruptions", "fog", "--limit", "3", "--methods", "source", "--out", str(tmp_path)]
    for shard, told in (("1/2", "2 of 3 results are here; "), ("2/2", "")):
        assert main([*command, "--shard", shard]) == 0
        shown = capsys.readouterr()
        assert shown.out.splitlines()[-1].startswith(told or "Avg.")
        assert "adapting" in shown.err.splitlines()[-1]
    assert main([*command, "--shard", "2/2"]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == f"Every image's result is in {tmp_path}."


def test_a_shard_without_images_says_so(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["evaluate", model, "--corruptions", "fog", "--limit", "1", "--methods", "source", "--out", str(tmp_path)]
    assert main([*command, "--shard", "2/2"]) == 0
    assert capsys.readouterr().out.startswith("0 of 1 results are here; ")


def test_evaluate_says_how_seeds_differ(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    methods = "source,ttaps[steps=0],ttaps[steps=0,num_pairs=2]"
    command = ["evaluate", model, "--corruptions", "fog", "--limit", "2", "--methods", methods, "--seeds", "0,1"]
    assert main([*command, "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    said = [line.partition(", 2 seeds: ")[0] for line in printed.splitlines() if ", 2 seeds: " in line]
    assert said == ["ttaps[steps=0]", "ttaps[steps=0,num_pairs=2]"]
    assert "%, whatever the seed of the views" in printed


def test_evaluate_has_a_folder_of_its_own_for_each_model_and_data_set(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["evaluate", model, "--corruptions", "fog", "--limit", "1", "--methods", "source"]) == 0
    assert (tmp_path / "results" / "small-sample" / FILE).exists()


def test_demo_shows_a_table_and_draws_a_figure(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figure = tmp_path / "demo.png"
    arguments = ["demo", "--model", model, "--images", "1", "--out", str(figure)]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "An untrained net. For tests only." in shown
    assert [line.split()[0] for line in shown.splitlines() if " to +" in line] == [*SAMPLE_CORRUPTIONS, "Avg."]
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_demo_json(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = printed(capsys, "demo", "--model", model, "--images", "1", "--out", str(tmp_path / "d.svg"), "--json")
    assert facts["average"]["n"] == len(SAMPLE_CORRUPTIONS)
    assert {line["corruption"] for line in facts["lines"]} == set(SAMPLE_CORRUPTIONS)
    assert Path(facts["figure"]).exists()


def test_a_heading_can_be_pasted_into_methods(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = "ttaps:tuned[steps=1,num_pairs=2,views.scale=[0.5,1]]"
    command = ["evaluate", model, "--corruptions", "fog", "--limit", "1", "--methods", spec, "--out", str(tmp_path)]
    assert main(command) == 0
    heading = capsys.readouterr().out.splitlines()[0]
    assert "," in heading
    found = printed(capsys, *command[:-4], "--methods", heading, "--out", str(tmp_path), "--json")
    assert [table["spec"] for table in found["tables"]] == [heading]


def test_protocols_that_depend_on_the_order_say_so(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["evaluate", model, "--corruptions", "fog", "--limit", "2", "--methods", "tent[online=true]"]
    assert main([*command, "--out", str(tmp_path)]) == 0
    assert "seed 0, online (the order of images counts)\n" in capsys.readouterr().out


def test_a_protocol_is_for_every_method_that_has_the_choice(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [
        "evaluate",
        model,
        "--corruptions",
        "fog,snow",
        "--limit",
        "4",
        "--methods",
        "source,tent,memo[num_views=2]",
    ]
    options = ["--protocol", "continual", "--batch-size", "2", "--out", str(tmp_path), "--json"]
    source, tent, memo = printed(capsys, *command, *options)["tables"]
    assert [table["spec"] for table in (source, tent, memo)] == [
        "source",
        "tent[online=true,continual=true,batch_size=2]",
        "memo[online=true,continual=true,num_views=2]",
    ]
    assert source["protocol"] == "episodic"
    assert tent["protocol"].startswith("continual, batches of 2, 2 x 4 images (")
    assert memo["protocol"].startswith("continual, 2 x 4 images (")
    assert main(["evaluate", model, "--batch-size", "0", "--methods", "tent"]) == 2
    assert "batch_size must be at least 1, not 0" in capsys.readouterr().err


def test_great_harm_is_warned_about(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Four images of five right before adaptation, one of five after it, and all with the same label."""
    fog = {"fog": ["rw"] * 30 + ["rr"] * 10 + ["ww"] * 10}
    fill(tmp_path, fog, "tent")
    rows = load_rows([tmp_path])
    assert warning(rows) == "Warning: tent: accuracy fell from 80.0 to 20.0 %."
    rows["before"], rows["after"] = rows.index % 5, 3
    assert "; 100% of 50 images have the same label (20% before): adaptation has collapsed" in warning(rows)
    fill(tmp_path / "well", {"fog": ["wr"] * 30 + ["rr"] * 10 + ["ww"] * 10}, "tent")
    assert warning(load_rows([tmp_path / "well"])) == ""
    found = printed(capsys, "evaluate", model, "--corruptions", "fog", "--limit", "1", "--methods", "source", "--json",
                    "--out", str(tmp_path / "out"))  # fmt: skip
    assert found["warnings"] == []


def test_the_file_of_an_image_is_stored(model: str, tmp_path: Path) -> None:
    """Also one whose name is not text."""
    for name in (b"cat/a.png", b"dog/b.png", b"dog/\xff.png"):
        path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/pets/" + name))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_image(path)
    command = ["evaluate", model, "--data", str(tmp_path / "pets"), "--methods", "source", "--out", str(tmp_path)]
    assert main(command) == 0
    assert load_rows([tmp_path])["file"].tolist() == ["cat/a.png", "dog/b.png", r"dog/\xff.png"]
