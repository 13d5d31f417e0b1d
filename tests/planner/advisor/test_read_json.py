"""The JSON reader: same values as the json module, places, and one-line errors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_line import one_line

from planner.advisor.read_json import read_json
from planner.advisor.source import Unreadable

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.text(max_size=8)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(VALUES, st.sampled_from([None, 2, "\t"]), st.booleans())
def test_reads_what_json_writes(value: Any, indent: Any, plain: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=plain)
    assert read_json(text, "x")[0] == value


@settings(max_examples=400)
@given(st.text(alphabet='{}[]",:0123456789.eE+-truefalsn \n\\/*#"', max_size=60))
def test_agrees_with_json_or_says_one_line(text: str) -> None:
    try:
        value, _, flaws = read_json(text, "x.json")
    except Unreadable as error:
        one_line(error)
        return
    if not flaws:  # strictly JSON: then both read the same
        assert json.dumps(value) == json.dumps(json.loads(text))


@given(VALUES.filter(lambda v: isinstance(v, dict) and v), st.data())
def test_truncated_file_is_one_line(value: Any, data: st.DataObject) -> None:
    text = json.dumps(value, indent=1)
    end = data.draw(st.integers(0, len(text) - 1))
    with pytest.raises(Unreadable, match=r"x\.json:\d+"):
        read_json(text[:end], "x.json")


def test_place_of_each_key() -> None:
    text = '{\n  "zero_optimization": {\n    "stage": 3\n  }\n}\n'
    _, places, _ = read_json(text, "x")
    place = places[("zero_optimization", "stage")]
    assert (place.line, place.column) == (3, 5)


def test_duplicate_keeps_the_last_and_its_place() -> None:
    value, places, flaws = read_json('{"a": {"b": 1},\n "a": {"c": 2}}', "x")
    assert value == {"a": {"c": 2}}
    assert [f.kind for f in flaws] == ["duplicate-key"]
    assert places[("a",)].line == 2
    assert ("a", "b") not in places


def test_comments_and_trailing_commas_are_flaws() -> None:
    value, _, flaws = read_json('{"a": 1, // why\n /* b */ "c": [1, 2,],}', "x")
    assert value == {"a": 1, "c": [1, 2]}
    assert {f.kind for f in flaws} == {"comment", "trailing-comma"}


@pytest.mark.parametrize("text", ["[" * 5000, '{"a":' * 5000, '{"a": ' + "9" * 5000 + "}"])
def test_absurd_nesting_and_numbers(text: str) -> None:
    with pytest.raises(Unreadable):
        read_json(text, "x")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "empty"),
        ("{'a': 1}", "double quotes"),
        ('{"a" 1}', "expected ':'"),
        ('{"a": 1} x', "follows the end"),
        ('{"a": "x\n"}', "does not end"),
        ('{"a": tru}', "unexpected"),
    ],
)
def test_errors_say_what_is_wrong(text: str, what: str) -> None:
    with pytest.raises(Unreadable, match=what):
        read_json(text, "x")
