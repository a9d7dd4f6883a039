"""Layers may import only from lower layers: the diagram in docs/architecture.md, checked against the imports."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import ttaps

PACKAGE = Path(ttaps.__file__).parent
LAYERS = {
    "cli": 7,
    "experiments": 6,
    "tuning": 6,
    "reproduce": 5,
    "bench": 5,
    "serve": 5,
    "report": 5,
    "evaluation": 4,
    "api": 4,
    "training": 3,
    "adaptation": 3,
    "losses": 2,
    "model": 2,
    "views": 2,
    "data": 1,
    "distributed": 1,
}
UTILITIES = ("errors", "files", "rng", "config", "progress", "methods")
"""Modules at the root that every layer may import, and that import only each other."""
PROGRAM = ("__init__", "__main__")
NO_MODEL = ("report",)
"""Packages that work on stored rows: no torch, no network, no method."""


def imported(file: Path) -> set[str]:
    """Return the full names of all modules that a file imports, also inside functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"ttaps.{alias.name}" for alias in node.names] if node.module == "ttaps" else [node.module]
            found |= set(names)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def packages_imported(file: Path) -> set[str]:
    """Return the parts of ttaps that a file imports."""
    return {name.split(".")[1] for name in imported(file) if name.startswith("ttaps.")}


def part_of(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_a_layer_imports_only_lower_layers(file: Path) -> None:
    part = part_of(file)
    assert part in (*LAYERS, *UTILITIES, *PROGRAM), "a new package: give it a layer here and in docs/architecture.md"
    layer = 0 if part in UTILITIES else LAYERS.get(part, 8)
    higher = {other for other in packages_imported(file) if other != part and LAYERS.get(other, 0) >= layer}
    assert not (higher & set(LAYERS))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_reports_need_no_model(file: Path) -> None:
    if part_of(file) in NO_MODEL:
        assert not {"torch", "adaptation", "model"} & (
            {name.split(".")[0] for name in imported(file)} | packages_imported(file)
        )


@pytest.mark.parametrize(
    "module", ["ttaps.cli", "ttaps.data", "ttaps.data.build", "ttaps.cli.report", "ttaps.serve.app"]
)
def test_importing_needs_no_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
