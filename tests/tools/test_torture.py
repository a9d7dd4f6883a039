"""A short form of each part of tools/torture.py, and proof that it notices what is wrong."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reliability.case import Failed
from reliability.subjects import check_whole, difference
from reliability.supply import dangerous, pins
from torture import PARTS

TORTURE = Path(__file__).parents[2] / "tools" / "torture.py"


@pytest.mark.skipif(not shutil.which("gcc"), reason="the fault injector needs gcc")
@pytest.mark.parametrize("part", PARTS)
def test_a_short_form_of_each_part(part: str) -> None:
    command = [sys.executable, str(TORTURE), "--parts", part, "--short", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = json.loads(done.stdout)
    assert sum(line["trials"] for line in lines) >= 4
    assert not [line for line in lines if line["failures"]]


def test_a_partial_file_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"half")
    with pytest.raises(Failed, match=r"a.csv is not what"):
        check_whole(tmp_path, {"a.csv": b"half and half"})
    (tmp_path / "a.csv").unlink()
    (tmp_path / "config.json").write_bytes(b'{"half":')
    with pytest.raises(Failed, match=r"config.json is not whole"):
        check_whole(tmp_path, {})


def test_differences_are_named() -> None:
    assert not difference({"a": 1}, {"a": 1})
    assert difference({"a": 1, "b": 1}, {"a": 2, "c": 1}) == "missing: c; left over: b; different: a"


@pytest.mark.parametrize(
    "code",
    ["import requests", "import urllib.request", "pickle.loads(x)", "torch.load(x)", "run(x, shell=True)", "eval(x)"],
)
def test_dangerous_code_is_noticed(code: str) -> None:
    assert any(dangerous(node, "model/own.py") for node in ast.walk(ast.parse(code)))


def test_every_pin_has_a_hash() -> None:
    lines = (TORTURE.parents[1] / "requirements-ci.txt").read_text("utf-8").splitlines()
    assert len(pins()) == len([line for line in lines if not line.startswith("#")]) > 50
    assert "torch" not in pins()
