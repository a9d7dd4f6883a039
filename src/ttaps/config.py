"""Convert plain values to frozen dataclasses and back: presets in TOML, configs in JSON. Unknown keys are errors with a suggestion."""

import ast
import dataclasses
import difflib
import errno
import inspect
import json
import math
import tomllib
import types
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise, product
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ttaps.errors import UsageError

T = TypeVar("T")
_OLD = tomllib.loads(Path(__file__).with_name("aliases.toml").read_text("utf-8"))
RENAMED = {old: (new,) if isinstance(new, str) else tuple(new) for old, new in _OLD.items()}


def from_dict(kind: type[T], values: Mapping[str, Any], where: str, base: T | None = None) -> T:
    """Build a dataclass from nested plain values; missing values keep their default (or ``base``'s value)."""
    known = setting_names(kind)
    renamed = [(old, new) for old in flat(values) if (new := new_name(old, known))]
    if renamed:
        raise UsageError(f"{where}: {', '.join(f'{old!r} is called {new!r} now' for old, new in renamed)}.")
    return _build(kind, values, where, base)


def _build(kind: type[T], values: Mapping[str, Any], where: str, base: T | None) -> T:
    hints = _hints(kind)
    for key in values:
        if key not in hints:
            raise UsageError(f"{where}: unknown key '{key}'{did_you_mean(key, hints)}.")
    changes = {key: _convert(hints[key], values[key], f"{where}: {key}", getattr(base, key, None)) for key in values}
    return kind(**changes) if base is None else dataclasses.replace(base, **changes)  # type: ignore[type-var]


def _hints(kind: type) -> dict[str, Any]:
    annotated = get_type_hints(kind)
    return {field.name: annotated[field.name] for field in dataclasses.fields(kind)}


def setting_names(kind: type) -> set[str]:
    """Return the full names of all settings of a dataclass, nested ones included: ``epochs``, ``optimizer.lr``, ..."""
    names: set[str] = set()
    for name, hint in _hints(kind).items():
        nested = dataclasses.is_dataclass(hint) and isinstance(hint, type)
        names |= {f"{name}.{inner}" for inner in setting_names(hint)} if nested else {name}
    return names


def field_docs(kind: type) -> dict[str, str]:
    """Return the docstrings below the fields of a dataclass and of those it is derived from, each on one line."""
    found: dict[str, str] = {}
    for base in reversed([base for base in kind.__mro__ if dataclasses.is_dataclass(base)]):
        try:
            body: Any = ast.parse(inspect.getsource(base)).body[0]
        except OSError:  # made without source, by make_dataclass
            continue
        for field, text in pairwise(body.body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                words = str(ast.literal_eval(text.value)).replace("``", "").split()
                found[ast.unparse(field.target)] = " ".join(words)
    return found


def new_name(old: str, known: Collection[str]) -> str | None:
    """Return the current name of an old one, such as ``schedule.warmup``, if it is among ``known``; else None."""
    if old in known:
        return None
    *groups, leaf = old.split(".")
    parts = [RENAMED.get(part, (part,)) for part in (*groups, leaf)]
    candidates = [*RENAMED.get(old, ()), *map(".".join, product(*parts))]
    for name in parts[-1] if groups or leaf in RENAMED else ():  # the group may have changed too
        moved = [new for new in known if new.rpartition(".")[2] == name]
        candidates += moved if len(moved) == 1 else []
    return next((name for name in candidates if name in known), None)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a hint like `` (did you mean 'epochs'?)`` or, for an old name, the new one; all choices if none is near."""
    known = list(known)
    if renamed := new_name(word, known):
        return f" (it is called '{renamed}' now)"
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f" (did you mean '{near[0]}'?)" if near else f" (known are {', '.join(known)})"


def check_min(settings: Any, table: str = "", /, **bounds: float) -> None:
    """Refuse settings below their bounds, such as ``check_min(self, steps=0, num_views=1)``; NaN is refused too.
    ``table`` stands before their names in the message, here and below."""
    for name, bound in bounds.items():
        if not getattr(settings, name) >= bound:
            raise UsageError(f"{table}{name} must be at least {bound}, not {getattr(settings, name)}.")


def check_positive(settings: Any, *names: str, table: str = "") -> None:
    """Refuse values not above 0, and NaN."""
    for name in names:
        if not getattr(settings, name) > 0:
            raise UsageError(f"{table}{name} must be positive, not {getattr(settings, name)}.")


def check_below_one(settings: Any, *names: str, table: str = "") -> None:
    """Refuse values outside [0, 1), and NaN."""
    for name in names:
        if not 0 <= getattr(settings, name) < 1:
            raise UsageError(f"{table}{name} must be at least 0 and less than 1, not {getattr(settings, name)}.")


def check_range(settings: Any, *names: str, most: float = math.inf) -> None:
    """Refuse ranges that do not rise from above 0 to at most ``most``."""
    for name in names:
        low, high = getattr(settings, name)
        if not 0 < low <= high <= most or math.isinf(high):
            end = "" if math.isinf(most) else f" and at most {most:g}"
            raise UsageError(f"{name} must be two rising numbers above 0{end}, not {low} and {high}.")


def check_probability(settings: Any, *names: str) -> None:
    """Refuse values that are not probabilities."""
    for name in names:
        if not 0 <= getattr(settings, name) <= 1:
            raise UsageError(f"{name} must be a probability, from 0 to 1, not {getattr(settings, name)}.")


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested values by their full names: ``{"views": {"flip_p": 0.5}}`` becomes ``{"views.flip_p": 0.5}``."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file, or say what is wrong with it."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise UsageError(f"There is no config {path}.") from None
    except (ValueError, RecursionError) as error:  # text that is no TOML or no text at all, or thousands of brackets
        raise UsageError(f"{path} is not valid TOML: {error}") from error
    except OSError as error:
        if error.errno == errno.EIO:  # no wrong command: the command line says what to do about a failing disk
            raise
        raise UsageError(f"Cannot read {path}: {error.strerror}") from error


def to_toml(config: Any, above: str = "") -> str:
    """Write a (nested) dataclass, or mappings with plain keys, as TOML that :func:`from_dict` reads back; ``above`` is its table."""
    fields = config if isinstance(config, Mapping) else vars(config)
    nested = {key: own for key, own in fields.items() if isinstance(own, Mapping) or dataclasses.is_dataclass(own)}
    plain = [f"{key} = {_toml(value)}" for key, value in fields.items() if key not in nested]
    tables = [f"\n[{above}{key}]\n{to_toml(value, f'{above}{key}.')}" for key, value in nested.items()]
    return "\n".join(plain) + "\n" + "".join(tables)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _convert(hint: Any, value: Any, where: str, base: Any) -> Any:
    """Check one value against its type and return it as that type."""
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, Mapping):
            raise UsageError(f"{where} must be a table of settings, not {value!r}.")
        return _build(hint, value, where, base)
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        if value not in inner:
            raise UsageError(f"{where} is {value!r}{did_you_mean(str(value), [str(choice) for choice in inner])}.")
        return value
    if origin in (Union, types.UnionType):
        return None if value is None else _convert(next(i for i in inner if i is not type(None)), value, where, base)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise UsageError(f"{where} must be a list, not {value!r}.")
        hints = [inner[0]] * len(value) if inner[-1] is Ellipsis else inner
        if len(hints) != len(value):
            raise UsageError(f"{where} must have {len(hints)} values, not {len(value)}.")
        return tuple(_convert(hint, item, where, None) for hint, item in zip(hints, value, strict=True))
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise UsageError(f"{where} must be {hint.__name__}, not {value!r}.")
    return value
