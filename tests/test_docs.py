"""The documents: links, commands, code, settings and specs that exist."""

from __future__ import annotations

import ast
import csv
import importlib
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tyro

import ttaps
from ttaps.adaptation.result import Result
from ttaps.adaptation.spec import method_spec, parse_method, parse_methods
from ttaps.cli import main
from ttaps.config import setting_names
from ttaps.training.config import TrainConfig, preset_names

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted(ROOT.glob("models/*/README.md")),
    *sorted(ROOT.glob("src/ttaps/models/*/README.md")),
]
TABLES = sorted((ROOT / "docs" / "results").glob("*.csv"))
GROUPS = ("model", "optimizer", "schedule", "loss", "augmentation", "ttt", "mt3")
SEARCHED = {
    "test-time augmentation": "methods.md",
    "exponential moving average": "training.md",
    "early stopping": "methods.md",
    "confidence threshold": "methods.md",
    "stratified": "quickstart.md",
    "warm start": "training.md",
    "wise-ft": "training.md",
}


class Parsed(Exception):
    """The options of a command that was parsed and not run."""


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(document: Path, language: str) -> list[str]:
    """Return the fenced blocks of a language; those without one are commands."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", document.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return [text for name, text in found if name == language]


def commands(document: Path) -> Iterator[list[str]]:
    """Yield the arguments of every ttaps command in the shell blocks of a document."""
    for line in "".join(blocks(document, "")).replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["ttaps"]:
            yield words[1:]
        elif words[:1] == ["torchrun"]:
            yield words[words.index("ttaps") + 1 :]


def anchors(document: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", document.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_links_lead_somewhere(document: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", document.read_text("utf-8")):
        if "://" not in target:
            file = document.parent / target if target else document
            assert file.exists(), target
            assert not anchor or anchor in anchors(file), f"{target}#{anchor}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_commands_parse(document: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parse = tyro.cli

    def parse_only(*args: Any, **kwargs: Any) -> None:
        raise Parsed(parse(*args, **kwargs))

    monkeypatch.setattr(tyro, "cli", parse_only)
    for command, *arguments in commands(document):
        with pytest.raises(Parsed) as parsed:
            main([command, *arguments])
        if methods := getattr(parsed.value.args[0], "methods", ""):
            assert parse_methods(methods)


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_python_blocks_use_what_exists(document: Path) -> None:
    known = {"ttaps": ttaps, "result": Result}
    for block in blocks(document, "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("ttaps"):
                module = importlib.import_module(str(node.module))
                assert all(hasattr(module, imported.name) for imported in node.names), ast.unparse(node)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in known:
                kind = known[node.value.id]
                assert hasattr(kind, node.attr) or node.attr in getattr(kind, "__annotations__", {}), ast.unparse(node)


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_presets_and_settings_exist(document: Path) -> None:
    text = document.read_text("utf-8")
    for preset in re.findall(r"`((?:paper|reference|cpu|compare)/[\w+-]+)`", text):
        assert preset in preset_names()
    settings = setting_names(TrainConfig)
    for setting in re.findall(rf"`((?:{'|'.join(GROUPS)})\.(?!py`|safetensors`)[a-z_0-9]+)(?: = [^`]*)?`", text):
        assert setting in settings
    for block in blocks(document, "toml"):
        assert tomllib.loads(block)


@pytest.mark.parametrize("table", TABLES, ids=name)
def test_specs_in_tables_are_canonical(table: Path) -> None:
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows
    for spec in {row[column] for row in rows for column in row if column.endswith("spec") and row[column]}:
        assert method_spec(parse_method(spec)) == spec


def test_the_readme_is_short() -> None:
    assert 80 <= len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 115


@pytest.mark.parametrize("word", SEARCHED)
def test_words_that_people_search_for_are_found(word: str) -> None:
    assert word in (ROOT / "docs" / SEARCHED[word]).read_text("utf-8").lower()


def test_every_table_is_listed_with_its_command() -> None:
    text = (ROOT / "docs" / "results" / "README.md").read_text("utf-8")
    assert {table.name for table in TABLES} == set(re.findall(r"\]\(([\w-]+\.csv)\)", text))
    parts = set(re.findall(r"^(\w+)\(\)", (ROOT / "tools" / "results.sh").read_text("utf-8"), re.MULTILINE))
    for row in re.findall(r"^\| (`.*?) \|", text, re.MULTILINE):
        assert set(re.findall(r"`(\w+)`", row)) <= parts


def test_the_sdist_holds_what_its_tests_read() -> None:
    built = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    assert {"src", "tests", "tools", "docs", "/README.md", "CHANGELOG.md", "CONTRIBUTING.md"} <= set(
        built["targets"]["sdist"]["include"]
    )


def test_the_first_lines_of_python_print_what_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """The truck of the README is taken for an airplane before adaptation only."""
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {}
    exec((ROOT / "README.md").read_text("utf-8").split("```python\n")[1].split("```")[0], names)
    assert (names["result"].trace[0].argmax(), names["result"].label) == (0, "truck")
    assert names["model"].classes[0] == "airplane"
