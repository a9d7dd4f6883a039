"""A method and its settings as one string, ``ttaps:tuned[steps=6,views.scale=[0.5,1]]``: read by :func:`parse_method`, written by
:func:`method_spec`, which are inverse to each other. It is the first line of every table head and legend entry, for pasting into a command.

Specs are read and written for a model: a preset in the model's folder (``Model.presets``) overrides the package's preset of the same
name, in both directions, so ``ttaps:tuned`` next to a model's name is that model's own if it has one."""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from ttaps.adaptation import METHODS, PRESETS, Method
from ttaps.config import did_you_mean, flat, from_dict
from ttaps.errors import UsageError

TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|.', re.DOTALL)  # a quoted string, or any one character
Presets = Mapping[str, Any]  # of a model: by method and name, like PRESETS
BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_.+-]*")  # strings that need no quotes, unless TOML has another meaning for them


def parse_method(spec: str, settings: Mapping[str, Any] | None = None, presets: Presets | None = None) -> Method:
    """Return the method that a spec describes, with additional settings; ``presets`` are the model's own."""
    base, own = split_spec(spec)
    for name, value in flat(settings or {}).items():
        set_nested(own, name.split("."), value)
    return _make(base, own, presets)


def parse_methods(text: str, settings: Sequence[str] = (), presets: Presets | None = None) -> list[Method]:
    """Return the methods of a comma-separated list, each once, with additional settings ``METHOD.NAME=VALUE``."""
    wanted = [split_spec(spec) for spec in split_list(text)]
    if not wanted:
        raise UsageError(f"--methods names no method; known are {', '.join(METHODS)}.")
    for assignment in settings:
        method, path, value = parse_setting(assignment)
        if method not in (known := dict(wanted)):
            raise UsageError(f"--set {assignment}: method '{method}' is not in --methods{did_you_mean(method, known)}.")
        for own in (own for base, own in wanted if base == method):
            set_nested(own, path, value)
    return list(dict.fromkeys(_make(base, own, presets) for base, own in wanted))


def in_protocol(method: Method, protocol: str | None, batch_size: int | None) -> Method:
    """Return a method with a protocol, ``episodic``, ``online`` or ``continual``, and a batch size, if it has these settings."""
    if batch_size is not None and batch_size < 1:
        raise UsageError(f"batch_size must be at least 1, not {batch_size}.")
    wanted: dict[str, Any] = {} if batch_size is None else {"batch_size": batch_size}
    if protocol:
        wanted |= {"online": protocol != "episodic", "continual": protocol == "continual"}
    return replace(method, **{name: wanted[name] for name in wanted.keys() & asdict(method).keys()})


def method_spec(method: Method, presets: Presets | None = None) -> str:
    """Return the canonical spec: the base (defaults or preset) with the fewest differing settings, and those settings."""
    settings = flat(asdict(method))
    bases = [method.name]
    bases += [f"{method.name}:{name}" for name, known in known_presets(method.name, presets).items() if known]
    usual = {base: flat(asdict(_make(base, {}, presets))) for base in bases}
    changed = {base: [name for name in settings if settings[name] != usual[base][name]] for base in bases}
    base = min(bases, key=lambda name: len(changed[name]))
    assignments = ",".join(f"{name}={_write(settings[name])}" for name in changed[base])
    return f"{base}[{assignments}]" if assignments else base


def split_spec(spec: str) -> tuple[str, dict[str, Any]]:
    """Split ``METHOD:PRESET[NAME=VALUE,...]`` into the part before the brackets and the settings inside them."""
    base, bracket, rest = spec.strip().partition("[")
    parts = split_list(rest.removesuffix("]"))
    if bracket and not (rest.endswith("]") and all("=" in part for part in parts)):
        raise UsageError(f"Method {spec}: write METHOD[NAME=VALUE,...], such as ttaps[lr=0.3,steps=5].")
    settings: dict[str, Any] = {}
    for part in parts:
        set_nested(settings, *parse_setting(f"{base}.{part}")[1:])
    return base.strip(), settings


def split_list(text: str) -> list[str]:
    """Return the parts of a comma-separated list; commas in brackets or quotes do not separate."""
    parts, depth = [""], 0
    for token in TOKEN.findall(text):
        depth += (token == "[") - (token == "]")
        if token == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += token
    return [part.strip() for part in parts if part.strip()]


def parse_setting(assignment: str) -> tuple[str, list[str], Any]:
    """Split METHOD.NAME=VALUE; the value is written as in TOML, and a bare word is a string."""
    name, equals, text = assignment.partition("=")
    method, *path = (part.strip().replace("-", "_") for part in name.split("."))
    if not equals or not path or not all(path):
        raise UsageError(f"--set {assignment}: write METHOD.NAME=VALUE, such as ttaps.lr=0.3.")
    return method, path, _read(text.strip())


def set_nested(settings: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Set a value inside nested settings."""
    for part in path[:-1]:
        inner = settings.setdefault(part, {})
        if not isinstance(inner, dict):
            raise UsageError(f"'{part}' is given both a value and settings of its own.")
        settings = inner
    settings[path[-1]] = value


def known_presets(method: str, presets: Presets | None = None) -> dict[str, dict[str, Any]]:
    """Return the presets of a method by name: the package's, overridden and extended by the model's."""
    return PRESETS.get(method, {}) | dict((presets or {}).get(method, {}))


def _make(base: str, settings: Mapping[str, Any], presets: Presets | None = None) -> Method:
    name, _, preset = base.partition(":")
    if name not in METHODS:
        raise UsageError(f"Unknown method '{name}'{did_you_mean(name, METHODS)}.")
    known = known_presets(name, presets)
    if preset and preset not in known:
        raise UsageError(f"Method '{name}' has no preset '{preset}'{did_you_mean(preset, known)}.")
    start = from_dict(METHODS[name], known.get(preset, {}), where=name)
    return from_dict(METHODS[name], settings, where=name, base=start)


def _read(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # no TOML, a number of thousands of digits, or thousands of brackets
        return text


def _write(value: Any) -> str:
    """Write a value as TOML, as short as it can be: ``1`` for 1.0, and words without quotes."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return re.sub(r"\.0$|(?<=e)\+?(-?)0*", r"\1", repr(value + 0.0))  # + 0.0: no -0.0, which is equal to 0.0
    if isinstance(value, tuple):
        return f"[{','.join(map(_write, value))}]"
    if isinstance(value, str):
        bare = BARE.fullmatch(value) and _read(value) == value
        return value if bare else json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
