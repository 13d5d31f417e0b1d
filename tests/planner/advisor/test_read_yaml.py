"""The YAML reader: same values as PyYAML's safe loader, nothing constructed, no surprises."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from one_line import one_line

from planner.advisor.read_yaml import read_yaml
from planner.advisor.source import Unreadable

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(alphabet="abc de:-_#'\"0.", max_size=8)
)
TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(alphabet="abcd_", min_size=1, max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.text(alphabet="abcd_", min_size=1, max_size=5), TREES, min_size=1))
def test_reads_what_pyyaml_writes(tree: dict[str, object]) -> None:
    for flow in (True, False):
        text = yaml.safe_dump(tree, default_flow_style=flow)
        assert read_yaml(text, "x")[0] == yaml.safe_load(text)


@settings(max_examples=400)
@given(st.text(alphabet="ab:-[]{}&*!<>|#'\" \n\t,?%@0", max_size=50))
def test_any_text_is_a_value_or_one_line(text: str) -> None:
    try:
        read_yaml(text, "x.yaml")
    except Unreadable as error:
        one_line(error)


def test_tags_build_nothing() -> None:
    value, _, _ = read_yaml("a: !!python/object/apply:os.system ['true']", "x")
    assert value == {"a": ["true"]}


def test_anchor_and_merge() -> None:
    text = "base: &b {zero_stage: 2, x: 1}\nds:\n  <<: *b\n  zero_stage: 3\n"
    value, places, _ = read_yaml(text, "x")
    assert value["ds"] == {"zero_stage": 3, "x": 1}
    assert places[("ds", "zero_stage")].line == 4


def test_cycle_is_a_flaw() -> None:
    value, _, flaws = read_yaml("a: &x\n  b: *x\n", "x")
    assert value == {"a": {"b": None}}
    assert [f.kind for f in flaws] == ["cycle"]


def test_alias_bomb_is_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    with pytest.raises(Unreadable, match="aliases"):
        read_yaml("\n".join(lines), "x")


@pytest.mark.parametrize("text", ["[" * 5000, "- " * 500 + "x", "{a: " * 900])
def test_deep_nesting_is_refused(text: str) -> None:
    with pytest.raises(Unreadable):
        read_yaml(text, "x")


def test_duplicates_and_second_documents_are_flaws() -> None:
    _, _, flaws = read_yaml("a: 1\na: 2\n---\nb: 1\n", "x")
    assert [f.kind for f in flaws] == ["duplicate-key", "second-document"]


@pytest.mark.parametrize("text", ["", "a: *b", "a: [", "? {x: 1}\n: 2", "a: 'x"])
def test_broken_files(text: str) -> None:
    with pytest.raises(Unreadable):
        read_yaml(text, "x.yaml")
