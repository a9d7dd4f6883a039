"""What makes the results page: commands that ttaps understands, and tables from stored rows."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from fill_tables import filled
from helpers.small_results import FOG_SNOW, before, fill
from publish import measured
from ttaps.adaptation.spec import parse_methods
from ttaps.model.registry import known_models

TOOLS = Path(__file__).parents[2] / "tools"


def test_every_evaluation_of_the_page_is_one_that_ttaps_understands(tmp_path: Path) -> None:
    fake = tmp_path / "ttaps"
    fake.write_text('#!/bin/sh\nprintf "%s\\t" "$@" >> "$SEEN"; echo >> "$SEEN"\n')
    fake.chmod(0o755)
    where = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SEEN": str(tmp_path / "seen")}
    subprocess.run(["bash", str(TOOLS / "results.sh"), str(tmp_path / "out")], env=where, check=True)
    commands = [line.split("\t") for line in (tmp_path / "seen").read_text().splitlines()]
    assert len(commands) > 10
    for command in commands:
        assert command[0] == "evaluate"
        assert command[1] in known_models()
        assert parse_methods(command[command.index("--methods") + 1])


def test_tables_of_a_document_are_filled(tmp_path: Path) -> None:
    fill(tmp_path / "main", before(FOG_SNOW), "source")
    fill(tmp_path / "main", FOG_SNOW, lr=0.3)
    blocks = [
        "changes main",
        "report main ttaps[lr=0.3]: accuracy",
        "pairs main source → ttaps[lr=0.3]",
        "changes none",
    ]
    text = "".join(f"<!-- table: {block} -->\nold\n<!-- end -->\n" for block in blocks)
    changes, report, pairs, untouched = re.findall(
        r"table: [^\n]* -->\n(.*?)<!-- end", filled(text, tmp_path), re.DOTALL
    )
    assert "| net | ttaps[lr=0.3] | 20 | 65.0 (" in changes
    assert changes.splitlines()[-1].startswith("| net | source | 20 | 45.0 (")
    assert "| snow |  10 |   50.0 |" in report
    assert pairs.splitlines()[-1].startswith("| source → ttaps[lr=0.3] |  20 |      +20.0 |")
    assert untouched == "old\n"
    with pytest.raises(SystemExit, match="no table 'Nothing'"):
        filled("<!-- table: report main Nothing -->\n<!-- end -->", tmp_path)


def test_a_card_has_what_was_measured(tmp_path: Path) -> None:
    fill(tmp_path, before(FOG_SNOW), "source")
    fill(tmp_path, FOG_SNOW, lr=0.3)
    fill(tmp_path, FOG_SNOW, model="other")
    source, ttaps = measured(tmp_path, "net-jt+ent-300-0")
    assert source.startswith("- cifar10-c, severity 5, 2 x 10 images, before adaptation: 45.0 (")
    assert ttaps.startswith("- cifar10-c, severity 5, 2 x 10 images, ttaps[lr=0.3]: 65.0 (")
    assert ", change +20.00 (" in ttaps
