"""Old names: each is answered with the new one, and none is left in the code or its tests."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ttaps.adaptation import METHODS
from ttaps.cli import option_names
from ttaps.cli.commands import COMMANDS, Train
from ttaps.config import RENAMED, did_you_mean, new_name, setting_names
from ttaps.errors import UsageError
from ttaps.model import ModelConfig
from ttaps.training.config import find_preset, preset_names

ROOT = Path(__file__).parents[1]
ROOTS = ("src", "tests", "tools", "examples", "docs", "models", "README.md", "CONTRIBUTING.md", "CHANGELOG.md")
SUFFIXES = (".py", ".toml", ".md", ".sh", ".ipynb", ".js", ".html", ".j2")
"""Where no old name may be left."""
TABLE = (
    "src/ttaps/aliases.toml",
    "tests/test_aliases.py",
    "tests/cli/test_bad_input.py",
    "src/ttaps/model/folder.py",
)
"""Files that hold old names on purpose: the table, tests of what is said about them, and what fingerprints are made of."""
BRITISH = r"(?i)\b\w*(colour|optimis(e|er|ed|es|ing|ation)\b|normalis|utilis|initialis|orthogonalis|recognis|summaris|randomis)\w*"

ENGLISH = [
    "alone",
    "average",
    "batch",
    "blur",
    "branch",
    "check",
    "classes",
    "clip",
    "copies",
    "decay",
    "directions",
    "flip",
    "get",
    "grayscale",
    "groups",
    "hidden",
    "hold",
    "jitter",
    "keep",
    "leak",
    "limit",
    "objective",
    "pool",
    "prior",
    "projection",
    "prototypes",
    "scope",
    "settled",
    "sizes",
    "smoothed",
    "smoothing",
    "start",
    "supervised",
    "sure",
    "view",
    "warmup",
]
"""Old names that are also plain words: only looked for where they are options or settings of a method."""
INTERNAL = (
    "_fairly", "adapt_together", "adapt_unsure", "asked_to_stop", "each_image", "evaluating", "fair_order", "GLANCE", "goes_together",
    "SCOPES", "side_by_side", "SURE", "take_over", "TOGETHER", "to_unit", "written_method",
)  # fmt: skip
"""Old names inside the package that are no words of plain English: looked for everywhere."""
DEFINED = (
    "alone", "at_least", "Average", "certain", "chances", "claimed", "comma_separated", "Cut", "descend", "Drawing", "fitted", "follow",
    "held", "in_turn", "kept", "key", "lacks", "levels", "Look", "Memory", "nearest", "need", "one_by_one", "plain", "put",
    "replacing", "rising", "Rule", "say", "scope", "serves", "severest", "Shown", "still", "strip", "student", "sweep", "tally",
    "test_codes", "together", "Track", "Tried", "Trouble", "Unit",
)  # fmt: skip
"""Old names of functions and classes that are also plain words: only looked for where they are defined."""
STILL_OPTIONS = {"classes", "limit", "objective"}
"""Old names that are names of other options, or short forms."""


def patterns() -> Iterator[str]:
    for old in RENAMED:
        if old not in ENGLISH:
            yield rf"\b{re.escape(old)}\b"
        elif old not in STILL_OPTIONS:
            yield rf"--([\w-]+\.)?{old}(?![\w.-])"  # an option
            yield rf"\b({'|'.join(METHODS)})(:\w+)?\[([^\]]*,)?(views\.)?{old}="  # in a method's spec
            yield rf"\b({'|'.join(METHODS)})\.(views\.)?{old}="  # after --set
    yield r"\bttaps data (get|check)\b"
    yield rf"\b({'|'.join(INTERNAL)})\b"
    yield rf"\b(def|class) ({'|'.join(DEFINED)})\b"
    yield BRITISH


OLD = re.compile("|".join(f"(?:{pattern})" for pattern in patterns() if pattern != BRITISH))
FILES = [
    path
    for root in ROOTS
    for path in ([ROOT / root] if (ROOT / root).is_file() else sorted((ROOT / root).rglob("*")))
    if path.suffix in SUFFIXES and str(path.relative_to(ROOT)) not in TABLE
]


def text_of(path: Path) -> str:
    """Return what people wrote in a file: of a notebook its cells, without their outputs."""
    text = path.read_text("utf-8")
    if path.suffix != ".ipynb":
        return text
    return "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])


def test_no_old_name_is_left() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]}"
        for path in FILES
        for number, line in enumerate(text_of(path).splitlines(), 1)
        for match in [*OLD.finditer(line), *re.finditer(BRITISH, line)]
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("optimiser.warmup", "schedule.warmup_epochs"),
        ("loss.crop_scale", "augmentation.crop_scale"),
        ("loss.alone", "augmentation.ce_only_view"),
        ("loss.prototypes_from_images", "init_prototypes_from_data"),
        ("sizes", "schedule.resolutions"),
        ("optimiser.lr", "optimizer.lr"),
        ("model.classes", "model.num_classes"),
        ("average", "ema_decay"),
        ("objective", None),  # it is a name of today
        ("nonsense", None),
    ],
)
def test_old_settings_of_a_training(old: str, new: str | None) -> None:
    assert new_name(old, option_names(Train)) == new


def test_new_names_exist() -> None:
    """Whatever the table promises is a setting, an option, a method, a command or a value of today."""
    known = option_names(Train) | setting_names(ModelConfig) | set(METHODS) | set(COMMANDS) | set(COMMANDS["data"][1])
    known |= {name for method in METHODS.values() for name in setting_names(method)}
    leaves = {name.rpartition(".")[2] for name in known} | {"color", "views"} | set(preset_names())
    planned = {"images_per_corruption"}
    assert {new for names in RENAMED.values() for new in names} - leaves - planned == set()


def test_what_was_meant_is_the_new_name() -> None:
    assert did_you_mean("average", METHODS) == " (it is called 'augment' now)"
    assert did_you_mean("tents", METHODS) == " (did you mean 'tent'?)"
    with pytest.raises(UsageError, match=r"no preset 'hours/jt-cifar10' \(it is called 'cpu/jt-cifar10' now\)"):
        find_preset("hours/jt-cifar10")
