"""Rooms may call only downwards: the picture in docs/architecture.md, read from the imports."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import ttaps

PACKAGE = Path(ttaps.__file__).parent
FLOORS = {
    "cli": 6,
    "report": 5,
    "reproduce": 5,
    "bench": 5,
    "evaluate": 4,
    "api": 4,
    "training": 3,
    "adaptation": 3,
    "losses": 2,
    "model": 2,
    "views": 2,
    "data": 1,
}
FURNITURE = ("errors", "files", "keys", "config", "progress")


def rooms_imported(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("ttaps"):
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("ttaps.")}
    return found


@pytest.mark.parametrize("file", sorted(PACKAGE.rglob("*.py")), ids=lambda file: str(file.relative_to(PACKAGE)))
def test_a_room_calls_only_downwards(file: Path) -> None:
    room = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
    floor = FLOORS.get(room, 0 if room in FURNITURE else 7)
    upstairs = {other for other in rooms_imported(file) if other != room and FLOORS.get(other, 0) >= floor}
    if room in FURNITURE:
        upstairs = {other for other in rooms_imported(file) if other in FLOORS}
    assert not upstairs
