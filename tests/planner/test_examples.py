"""The committed examples do what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from planner import solve
from planner.emit import emit
from planner.job import resolve
from planner.plan import Result
from planner.spec import make_spec, read_job

EXAMPLES = Path(__file__).parents[2] / "examples"


def gain(result: Result) -> float:
    """How much longer the best plan with all stages alike takes, as a fraction."""
    note = next(n for n in result.notes if n.startswith("stages differ"))
    found = re.search(r"([\d.]+) % more", note)
    assert found is not None
    return float(found.group(1)) / 100


@pytest.mark.parametrize("name", ["uneven_stages", "uneven_recompute"])
def test_uneven_stages_beat_the_best_even_plan(name: str) -> None:
    fields = read_job(EXAMPLES / f"{name}.yaml")
    result = solve(fields)
    assert result.status == "optimal"
    plan = result.plan
    assert plan is not None
    assert not plan.even
    assert gain(result) > 0.02
    emit(resolve(make_spec(fields)), plan)  # the stack's emitter can write it


def test_the_limits_of_the_stack_have_a_price() -> None:
    result = solve(read_job(EXAMPLES / "uneven_stages.yaml"))
    assert result.unrestricted is not None
    assert result.proof is not None
    assert result.proof.fastest_step_time_s is not None
    assert result.unrestricted.step_time_s <= result.proof.fastest_step_time_s
