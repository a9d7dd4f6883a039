"""Methods as they are written on a command line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ttaps.adaptation import Memo, Source, Ttaps, make_method
from ttaps.adaptation.spec import chosen_methods, parse_method
from ttaps.errors import UsageError


def test_brackets_hold_settings_of_one_entry() -> None:
    assert chosen_methods(
        "source, ttaps[lr=1,steps=5],ttaps[codes=hard],ttaps:fast[views.flip_p=0, views.scale=[0.5,1.0]]"
    ) == [
        Source(),
        Ttaps(lr=1.0, steps=5),
        Ttaps(codes="hard"),
        make_method("ttaps:fast", {"views": {"flip_p": 0, "scale": [0.5, 1.0]}}),
    ]


def test_the_same_method_written_in_two_ways_is_done_once() -> None:
    assert chosen_methods("ttaps:tuned,source,ttaps:tuned[steps=2],ttaps:tuned[views.scale=[0.7,1.0]]") == [
        make_method("ttaps:tuned"),
        Source(),
    ]


def test_a_setting_leaves_its_neighbours_in_a_named_group_alone() -> None:
    (method,) = chosen_methods("ttaps:tuned[views.flip_p=0]")
    tuned = make_method("ttaps:tuned")
    assert isinstance(method, Ttaps)
    assert isinstance(tuned, Ttaps)
    assert method == replace(tuned, views=replace(tuned.views, flip_p=0))


def test_set_reaches_every_entry_of_its_method() -> None:
    assert chosen_methods("ttaps[lr=1],ttaps,memo", ["ttaps.steps=2"]) == [
        Ttaps(lr=1.0, steps=2),
        Ttaps(steps=2),
        Memo(),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ttaps[lr=1", r"write METHOD\[NAME=VALUE"),
        ("ttaps[lr]", r"Method ttaps\[lr\]: write METHOD\[NAME=VALUE"),
        ("ttaps[lr=1]x", r"write METHOD\[NAME=VALUE"),
        ("ttaps[lrr=1]", "did you mean 'lr'"),
        ("ttap[lr=1]", "did you mean 'ttaps'"),
        (",", "names no method"),
    ],
)
def test_wrong_entries_are_told(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        chosen_methods(text)


def test_one_method_as_a_grid_names_it() -> None:
    assert parse_method("ttaps[lr=1,views.blur=0.0]") == chosen_methods("ttaps[lr=1,views.blur=0.0]")[0]
    assert parse_method("memo") == Memo()
