"""A short form of each part of tools/torture.py, and proof that it notices what is wrong."""

from __future__ import annotations

import ast
import json
import pickletools
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from reliability.case import Case, Failed, Skipped
from reliability.disks import call_order
from reliability.mutations import EVIL
from reliability.subjects import check_whole, difference
from reliability.supply import COMMANDS, audit, dangerous, offline_audit, pins
from torture import Line, run, table, totals
from ttaps.cli import commands
from ttaps.data.cifar import read_pickle
from ttaps.errors import DataError

TORTURE = Path(__file__).parents[2] / "tools" / "torture.py"


@pytest.mark.skipif(not shutil.which("gcc"), reason="the fault injector needs gcc")
@pytest.mark.parametrize("parts", ["full-disks,failing-disks", "kills", "inputs,supply", "stress"])
def test_a_short_form_of_each_part(parts: str) -> None:
    command = [sys.executable, str(TORTURE), "--parts", parts, "--short", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = json.loads(done.stdout)
    for part in parts.split(","):
        assert sum(line["trials"] for line in lines if line["part"] == part) >= 4
    assert not [line for line in lines if line["failures"]]


def test_every_call_has_its_turn_and_every_kind_of_call_first() -> None:
    called = ["write a", "write a", "rename a", "write a", "write b"]
    turns = call_order(called, random.Random(0))
    assert sorted(turns) == [1, 2, 3, 4, 5]
    assert {called[number - 1] for number in turns[:3]} == set(called)


def test_a_fault_of_the_tool_is_a_failure_and_the_rest_continues() -> None:
    def trials() -> Iterator[Case]:
        yield Case("broken", lambda: 1 // 0)
        yield Case("sound", lambda: 2, of=3)

    lines: dict[str, Line] = {}
    run("part", trials(), None, lines)
    assert ["ZeroDivisionError" in failure for failure in lines["part broken"].failures] == [True]
    assert "| part | sound | 2 of 3 | 0 |" in table(list(lines.values()))


def test_totals_are_over_all_commands() -> None:
    lines = [
        Line("kills", "kill -9: train", 3, 4),
        Line("kills", "kill -9: export", 2, 2),
        Line("inputs", "images", 40),
    ]
    assert totals(lines) == "- kills, kill -9: 5 of 6\n- inputs: 40"


@pytest.mark.parametrize(
    ("found", "outcome"),
    [
        ({"skip_reason": "not found"}, "could not look up a single package"),
        ({"vulns": [{"id": "PYSEC-1"}]}, "PYSEC-1"),
        ({"vulns": []}, ""),
    ],
)
def test_an_audit_counts_only_what_it_looked_up(
    found: dict[str, object], outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = json.dumps({"dependencies": [{"name": "a", **found}]})
    (tmp_path / "pip-audit").write_text(f"#!/bin/sh\necho '{answer}'\n")
    (tmp_path / "pip-audit").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    if not outcome:
        assert audit() == 1
        return
    with pytest.raises((Skipped, Failed), match=outcome):
        audit()


@pytest.mark.parametrize(
    ("affected", "bad"),
    [
        ({"versions": ["12.0.0"]}, False),
        ({"versions": ["PINNED"]}, True),
        ({"ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "0.2"}]}]}, False),
        ({"ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "9999"}]}]}, True),
        ({"ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0.1"}, {"last_affected": "PINNED"}]}]}, True),
        ({"ranges": [{"type": "GIT", "events": [{"introduced": "0"}]}]}, False),
    ],
)
def test_a_copy_of_osv_is_looked_up_without_a_network(
    affected: dict[str, Any], bad: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = json.dumps({"id": "PYSEC-1", "affected": [{"package": {"name": "Scikit_Image"}, **affected}]})
    monkeypatch.setenv("TORTURE_ADVISORIES", str(tmp_path / "all.zip"))
    with ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("PYSEC-1.json", entry.replace("PINNED", pins()["scikit-image"]))
    if not bad:
        assert offline_audit() == len(pins())
        return
    with pytest.raises(Failed, match=r"scikit-image [0-9.]+: PYSEC-1"):
        offline_audit()


def test_every_command_is_counted_the_sockets_of() -> None:
    counted = {line.split()[0] for line in COMMANDS if line[0] != "-"}
    assert counted == commands.COMMANDS.keys() - {"serve"}
    for name, known in commands.COMMANDS.items():
        parts = known.options if isinstance(known.options, dict) else {}
        assert all(any(line.startswith(f"{name} {part} ") for line in COMMANDS) for part in parts)


IMPORTING = {"GLOBAL", "STACK_GLOBAL", "INST", "EXT1", "EXT2", "EXT4", "PERSID", "BINPERSID"}
CALLING = {"INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "REDUCE", "BUILD"}


def test_each_opcode_that_imports_or_calls_is_refused(tmp_path: Path) -> None:
    refused: set[str] = set()
    for content in EVIL[:-2]:  # those are cut off and too deep
        (tmp_path / "batch").write_bytes(content)
        allowed = "holds a ObjectDType"  # numpy's own types are no harm
        with pytest.raises(DataError, match=f"batch was refused|batch is damaged|{allowed}"):
            read_pickle(tmp_path / "batch", "")
        refused |= {code.name for code, _, _ in pickletools.genops(content)}
    assert refused >= IMPORTING | CALLING


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
    [
        "import requests",
        "import urllib.request",
        "from urllib import request",
        "pd.read_pickle(x)",
        "pickle.loads(x)",
        "torch.load(x)",
        "run(x, shell=True)",
        "eval(x)",
    ],
)
def test_dangerous_code_is_noticed(code: str) -> None:
    assert any(dangerous(node, "model/own.py") for node in ast.walk(ast.parse(code)))


def test_every_pin_has_a_hash() -> None:
    lines = (TORTURE.parents[1] / "requirements-ci.txt").read_text("utf-8").splitlines()
    assert len(pins()) == len([line for line in lines if not line.startswith("#")]) > 50
    assert "torch" not in pins()
