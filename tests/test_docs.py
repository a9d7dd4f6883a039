"""The documents: links that lead somewhere, and tables that are filled from stored results."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

from ttaps.evaluate import Experiment, Row, Store

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
sys.path.insert(0, str(ROOT / "tools"))

from fill_tables import filled  # noqa: E402


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_to_files_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text()):
        assert "://" in target or (document.parent / target).exists(), target


def test_the_sdist_holds_what_its_tests_read() -> None:
    built = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    assert {"src", "tests", "tools", "docs", "/README.md"} <= set(built["targets"]["sdist"]["include"])


def assert_pairs(results: Path) -> None:
    """Lines of a table of differences, by their names; parts joined by + are one table."""
    block = "<!-- table: pairs fog+fog {} -->\n<!-- end -->"
    lines = filled(block.format("net → net TENT"), results).splitlines()
    first = [line.split("|")[1].strip() for line in lines[1:-1]]
    assert (len(first), first[0], first[2]) == (3, "from → to", "net → net TENT")
    with pytest.raises(SystemExit, match="No line net → MEMO among net → net TENT"):
        filled(block.format("net → MEMO"), results)


def test_tables_are_filled_from_stores_and_again(tmp_path: Path) -> None:
    with Store(tmp_path / "fog") as store:
        for method, last, seconds in (("source", 0, 0.1), ("tent", 1, 0.5)):
            number = store.experiment(Experiment("net", "f00", "cifar10-c", "d1", method, "{}", 0))
            store.add(
                number, [Row("fog", 5, image, 1, (0, last), (0.5, 0.5), (0.5, 0.5), seconds) for image in range(3)]
            )
    assert_pairs(tmp_path)
    text = "before\n<!-- table: changes fog -->\nold\n<!-- end -->\nbetween\n<!-- table: report fog cifar10-c -->\n<!-- end -->\n"
    once = filled(text, tmp_path)
    lines = once.splitlines()
    assert lines[4].split(" | ")[1:4] == ["tent", "3", "100.0 (43.9 to 100.0)"]  # Wilson's interval of 3 of 3
    assert lines[4].endswith("| 3 | 0 | 5 |")
    assert lines[5].split(" | ")[1:4] == ["source", "3", "0.0 (0.0 to 56.1)"]
    assert "between\n<!-- table: report fog cifar10-c -->\n| " in once
    assert "old" not in once
    assert filled(once, tmp_path) == once
