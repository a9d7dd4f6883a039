"""Methods as one string: on a command line, in stored rows, tables and figures."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ttaps.adaptation import METHODS, PRESETS, Memo, Source, Ttaps
from ttaps.adaptation.spec import method_spec, parse_method, parse_methods
from ttaps.config import from_dict
from ttaps.errors import UsageError
from ttaps.views import SwavViews

NAMED = [*METHODS, *(f"{method}:{preset}" for method, presets in PRESETS.items() for preset in presets)]


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Return plain values for a setting of a type; most are allowed."""
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return some_settings(hint)
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    if get_origin(hint) is tuple:
        return st.tuples(*map(values, get_args(hint))).map(sorted)
    if hint is float:
        return st.one_of(st.floats(0, 1), st.floats(0, allow_nan=False), st.just(-0.0), st.integers(0, 3))
    return {int: st.integers(0, 300), bool: st.booleans(), str: st.text()}[hint]


def some_settings(kind: type) -> st.SearchStrategy[dict[str, Any]]:
    """Return changes of up to four settings of a dataclass."""
    hints = get_type_hints(kind)
    return st.lists(
        st.sampled_from([field.name for field in dataclasses.fields(kind)]), max_size=4, unique=True
    ).flatmap(lambda names: st.fixed_dictionaries({name: values(hints[name]) for name in names}))


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_parsing_and_printing_are_inverse(data: st.DataObject) -> None:
    base = parse_method(data.draw(st.sampled_from(NAMED)))
    changes = data.draw(some_settings(type(base))) if dataclasses.fields(base) else {}
    try:
        method = from_dict(type(base), changes, where="test", base=base)
    except UsageError:
        assume(False)
    spec = method_spec(method)
    assert parse_method(spec) == method
    assert method_spec(parse_method(spec)) == spec
    assert parse_methods(f"source,{spec}, memo")[-2 if method != Memo() else -1] == method


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_inverse_with_the_presets_of_a_model_too(data: st.DataObject) -> None:
    """Whatever a model's own ``tuned`` is, a spec that was written with it reads back as the same method, and never as another."""
    try:
        own = {"ttaps": {"tuned": data.draw(some_settings(Ttaps)), "mine": data.draw(some_settings(Ttaps))}}
        bases = [parse_method(f"ttaps{name}", presets=own) for name in ("", ":fast", ":tuned", ":mine")]
        method = from_dict(Ttaps, data.draw(some_settings(Ttaps)), where="test", base=data.draw(st.sampled_from(bases)))
    except UsageError:
        assume(False)
    spec = method_spec(method, own)
    assert parse_method(spec, presets=own) == method
    assert parse_methods(spec, presets=own) == [method]
    package = parse_method("ttaps:tuned")
    assert parse_method(method_spec(package, own), presets=own) == package


@pytest.mark.parametrize(
    ("method", "spec"),
    [
        (Source(), "source"),
        (Ttaps(), "ttaps"),
        (parse_method("ttaps:paper"), "ttaps"),
        (parse_method("ttaps:tuned", {"steps": 6, "lr": 1}), "ttaps:tuned[steps=6,lr=1]"),
        (Ttaps(num_pairs=24, steps=1, lr=1.0, confidence_threshold=0.7), "ttaps:fast"),
        (Ttaps(num_pairs=24, steps=1, lr=1.0), "ttaps:fast[confidence_threshold=1]"),
        (Ttaps(lr=1e-5, online=True), "ttaps[lr=1e-5,online=true]"),
        (Ttaps(lr=3e20, codes="hard"), "ttaps[lr=3e20,codes=hard]"),
        (Ttaps(views=SwavViews(scale=(0.5, 1.0), blur_p=0)), "ttaps[views.scale=[0.5,1],views.blur_p=0]"),
        (Ttaps(adapt_params="stage3+projector"), "ttaps[adapt_params=stage3+projector]"),
        (Ttaps(adapt_params="true"), 'ttaps[adapt_params="true"]'),
        (Ttaps(adapt_params='],"x=\\\x7f'), 'ttaps[adapt_params="],\\"x=\\\\\\u007f"]'),
    ],
)
def test_canonical_specs(method: Ttaps, spec: str) -> None:
    assert method_spec(method) == spec
    assert parse_method(spec) == method


@pytest.mark.parametrize("name", NAMED)
def test_every_preset_prints_as_itself(name: str) -> None:
    assert method_spec(parse_method(name)) == ("ttaps" if name == "ttaps:paper" else name)


def test_brackets_hold_settings_of_one_entry() -> None:
    text = "source, ttaps[lr=1,steps=5],ttaps[codes=hard],ttaps:fast[views.flip_p=0, views.scale=[0.5,1.0]]"
    assert parse_methods(text) == [
        Source(),
        Ttaps(lr=1.0, steps=5),
        Ttaps(codes="hard"),
        parse_method("ttaps:fast", {"views": {"flip_p": 0, "scale": [0.5, 1.0]}}),
    ]


def test_the_same_method_written_in_two_ways_is_run_once() -> None:
    text = "ttaps:tuned,source,ttaps:tuned[steps=2],ttaps:tuned[views.scale=[0.7,1.0]]"
    assert parse_methods(text) == [parse_method("ttaps:tuned"), Source()]


def test_a_setting_leaves_its_neighbours_in_a_group_alone() -> None:
    method, tuned = parse_method("ttaps:tuned[views.flip_p=0]"), parse_method("ttaps:tuned")
    assert isinstance(method, Ttaps)
    assert isinstance(tuned, Ttaps)
    assert method == replace(tuned, views=replace(tuned.views, flip_p=0))
    assert parse_method("ttaps:tuned[views.flip_p=0]", {"views": {"gray_p": 0.0}}) == method
    assert parse_method("ttaps:tuned[num_pairs=16]", {"view_pool": 32}) == replace(tuned, num_pairs=16, view_pool=32)


def test_set_reaches_every_entry_of_its_method() -> None:
    assert parse_methods("ttaps[lr=1],ttaps,memo", ["ttaps.steps=2"]) == [
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
        ("ttaps[views=1,views.flip_p=0]", "'views' is given both a value and settings"),
        ("ttaps:tund", "no preset 'tund' .did you mean 'tuned'"),
        ("ttap[lr=1]", "did you mean 'ttaps'"),
        (",", "names no method"),
    ],
)
def test_wrong_entries_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_methods(text)
