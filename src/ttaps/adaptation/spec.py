"""Methods and their settings as they are written on a command line and in a grid: ``source,ttaps:fast,ttaps[lr=1,steps=5]``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from ttaps.adaptation import METHODS, Method, make_method
from ttaps.config import did_you_mean
from ttaps.errors import UsageError


def chosen_methods(text: str, settings: Sequence[str] = ()) -> list[Method]:
    """Return the methods of a list, each with the settings in its brackets and those given as ``METHOD.NAME=VALUE``."""
    wanted = {name: inline(name) for name in split(text)}
    if not wanted:
        raise UsageError(f"--methods names no method; known are {', '.join(METHODS)}.")
    bases = {name: name.partition("[")[0] for name in wanted}
    for assignment in settings:
        method, path, value = parse_setting(assignment)
        if method not in bases.values():
            raise UsageError(
                f"--set {assignment}: no method '{method}' is evaluated{did_you_mean(method, bases.values())}."
            )
        for name, base in bases.items():
            if base == method:
                set_nested(wanted[name], path, value)
    return list(dict.fromkeys(make_method(bases[name], own) for name, own in wanted.items()))  # each once


def parse_method(name: str, settings: Mapping[str, Any] | None = None) -> Method:
    """Return one method, with the settings in its brackets, and others on top."""
    return make_method(name.partition("[")[0], {**inline(name), **(settings or {})})


def inline(name: str) -> dict[str, Any]:
    """Return the settings in the brackets of ``METHOD[NAME=VALUE,...]``; none without brackets."""
    method, bracket, rest = name.partition("[")
    parts = split(rest.removesuffix("]"))
    if bracket and not (rest.endswith("]") and all("=" in part for part in parts)):
        raise UsageError(f"Method {name}: write METHOD[NAME=VALUE,...], like ttaps[lr=0.3,steps=5].")
    settings: dict[str, Any] = {}
    for part in parts:
        set_nested(settings, *parse_setting(f"{method}.{part}")[1:])
    return settings


def split(text: str) -> list[str]:
    """Return the parts between commas that are in no brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def parse_setting(assignment: str) -> tuple[str, list[str], Any]:
    """Take METHOD.NAME=VALUE apart; the value is written as in TOML, and a bare word is a string."""
    name, equals, text = assignment.partition("=")
    method, *path = (part.strip().replace("-", "_") for part in name.split("."))
    if not equals or not path or not all(path):
        raise UsageError(f"--set {assignment}: write METHOD.NAME=VALUE, like ttaps.lr=0.3.")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, KeyError):
        value = text.strip()
    return method, path, value


def set_nested(settings: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Put a value into nested settings."""
    for part in path[:-1]:
        inner = settings.setdefault(part, {})
        if not isinstance(inner, dict):
            raise UsageError(f"--set: '{part}' is given both a value and settings of its own.")
        settings = inner
    settings[path[-1]] = value
