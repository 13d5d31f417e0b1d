"""What users may demand of an axis."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.axes import (
    AXES,
    CHOICE_AXES,
    INTEGER_AXES,
    Constraint,
    parse_bound,
    parse_fix,
    parse_forbid,
)


@given(st.sampled_from(INTEGER_AXES), st.lists(st.integers(1, 3), min_size=1, max_size=4))
def test_fix_reads_back_what_it_was_given(axis: str, values: list[int]) -> None:
    text = f"{axis}={','.join(map(str, values))}"
    assert parse_fix([text]) == {axis: tuple(dict.fromkeys(values))}
    assert parse_fix({axis: values}) == parse_fix([text])


@given(st.sampled_from(sorted(CHOICE_AXES)))
def test_forbidding_a_technique_leaves_exactly_its_rest(axis: str) -> None:
    rest = [v for v in CHOICE_AXES[axis] if v not in parse_forbid(axis)[axis]]
    assert len(rest) == 1


def test_spelling_does_not_matter() -> None:
    assert parse_fix("Micro-Batch=2") == parse_fix("micro_batch=2")
    assert parse_fix({"sequence_parallel": True}) == {"sequence_parallel": (1,)}
    assert parse_fix({"offload_optimizer": False}) == {"offload_optimizer": ("none",)}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tq=4", "unknown axis 'tq'"),
        ("tp=0", "expected an integer, 1 or more"),
        ("tp=-2", "1 or more"),
        ("tp=two", "expected an integer"),
        ("tp", "expected tp=VALUE"),
        ("zero_stage=4", "0 to 3"),
        ("precision=fp12", "expected one of fp32"),
        ("sequence_parallel=maybe", "expected on or off"),
    ],
)
def test_mistakes_are_named(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_fix([text])


def test_fixing_an_axis_twice_is_a_contradiction() -> None:
    with pytest.raises(ValueError, match="twice"):
        parse_fix(["tp=2", "tp=4"])
    assert parse_fix(["tp=2,4", "tp=4,8"]) == {"tp": (4,)}


def test_only_ordered_axes_have_bounds() -> None:
    assert parse_bound("zero_stage=2") == {"zero_stage": 2}
    with pytest.raises(ValueError, match="no order"):
        parse_bound("precision=bf16")


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=20),
    st.none() | st.integers(0, 9),
    st.none() | st.integers(0, 9),
    st.lists(st.integers(0, 9), max_size=3),
)
def test_a_constraint_accepts_alike_on_arrays_and_scalars(
    values: list[int], low: int | None, high: int | None, forbidden: list[int]
) -> None:
    demand = Constraint("tp", None, low, high, tuple(forbidden))
    mask = demand.holds(np.array(values))
    assert mask.tolist() == [demand.accepts(v) for v in values]
    for value, ok in zip(values, mask, strict=True):
        expected = (
            (low is None or value >= low)
            and (high is None or value <= high)
            and value not in forbidden
        )
        assert ok == expected


def test_names_are_spelled_once() -> None:
    from planner.plan import Plan

    assert set(AXES) <= set(Plan.model_fields)
