"""The program of one shape against enumeration of every decision, in exact integers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from brute_force import feasible_decisions, random_batch

from planner.solver.cpsat import solve_shape
from planner.solver.ladder import default_amounts
from planner.solver.program import Amount, Batch, Decision, evaluate

BLOCK = 40


def simple_batch(**changes: object) -> Batch:
    """Two stages, four layers; no limit binds until a test changes it."""

    def ints(values: object, *shape: int) -> np.ndarray:
        return np.broadcast_to(np.array(values, dtype=np.int64), (1, *shape)).copy()

    values: dict[str, object] = {
        "layers": 4,
        "stages": 2,
        "granularities": ("none", "full"),
        "segments": (1, 1),
        "chunk": ints(1),
        "time_const": ints([3, 0], 2),
        "time_layer": ints(10, 2),
        "time_granularity": ints([0, 4], 2, 2),
        "edge_const": ints(0, 2, 1),
        "edge_layer": ints(1, 2, 1),
        "edge_offloaded": ints(5, 2, 1),
        "memory_const": ints(0, 2, 1),
        "memory_layer": ints(10, 2, 1),
        "memory_offloaded": ints(-6, 2, 1),
        "memory_granularity": ints([8, 2], 2, 1, 2),
        "memory_working": ints([0, 3], 2, 1, 2),
        "capacity": ints(1000, 2),
        "host_const": ints(0, 2),
        "host_layer": ints(0, 2),
        "host_offloaded": ints(7, 2),
        "host_stages_per_node": ints(2),
        "host_ranks": ints(1),
        "host_capacity": 10**6,
        "weight_bottleneck": ints(7),
        "weight_sum": ints(1),
        "weight_edge": ints(1),
        "fixed": ints(100),
        "granularity_allowed": np.ones((1, 2), dtype=bool),
        "max_offloaded": ints(4),
        "rank": np.zeros((1, 1), dtype=np.int64),
    }
    arrays = {
        name: ints(value, *np.shape(values[name])[1:])
        if isinstance(values.get(name), np.ndarray) and name != "granularity_allowed"
        else value
        for name, value in changes.items()
    }
    return Batch(**{**values, **arrays})


def solved(**changes: object) -> tuple[int, Decision]:
    """Optimum of the simple batch with changes."""
    outcome = solve_shape(simple_batch(**changes).program(0))
    assert outcome.status == "optimal"
    return outcome.objective, outcome.decision


def test_objective_by_hand():
    objective, decision = solved()
    # stages 3 + 20 and 20, edge 2
    assert objective == 7 * 23 + 43 + 2 + 100
    assert decision == Decision((2, 2), ((2, 0), (2, 0)), (0, 0))


def test_memory_asks_for_recompute_then_offload():
    # two layers: 20 + 16 free; one recomputed: 20 + 10 + 3 working; both: 20 + 4 + 3
    assert solved(capacity=36)[1].granularity == ((2, 0), (2, 0))
    assert solved(capacity=33, max_offloaded=0)[1].granularity == ((1, 1), (1, 1))
    assert solved(capacity=27, max_offloaded=0)[1].granularity == ((0, 2), (0, 2))
    assert solve_shape(simple_batch(capacity=26, max_offloaded=0).program(0)).status == "infeasible"
    assert sum(solved(capacity=26)[1].offloaded) >= 2


def test_host_memory_is_shared_by_the_stages_of_a_node():
    tight = {"capacity": 26}
    assert solved(**tight, host_capacity=14)[1].offloaded == (1, 1)
    batch = simple_batch(**tight, host_capacity=13)
    assert solve_shape(batch.program(0)).status == "infeasible"
    assert solved(**tight, host_capacity=13, host_stages_per_node=1)[1].offloaded == (1, 1)
    batch = simple_batch(**tight, host_capacity=13, host_stages_per_node=1, host_ranks=2)
    assert solve_shape(batch.program(0)).status == "infeasible"


def test_rules_of_the_stack():
    uneven = {"time_const": [40, 0]}
    assert solved(**uneven)[1].layers == (1, 3)
    assert solved(**uneven, layers_rule="uniform")[1].layers == (2, 2)
    assert solved(**uneven, chunk=2)[1].layers == (2, 2)
    assert solved(layers=5, time_const=[40, 0])[1].layers == (1, 4)
    assert solved(layers=5, time_const=[40, 0], layers_rule="uniform")[1].layers == (3, 2)
    tight = {"capacity": [33, 1000], "max_offloaded": 0}
    assert solved(**tight, layers_rule="uniform")[1].granularity == ((1, 1), (2, 0))
    same = solved(**tight, layers_rule="uniform", recompute_rule="same")[1]
    assert same.granularity == ((1, 1), (1, 1))
    every = solved(**tight, layers_rule="uniform", recompute_rule="all")[1]
    assert every.granularity == ((0, 2), (0, 2))
    assert solved(capacity=26, offload_rule="all")[1].offloaded == (2, 2)


def test_users_bounds_and_cuts():
    lower = np.array([[0, 3]], dtype=np.int64)
    upper = np.array([[4, 1]], dtype=np.int64)
    assert sum(k[1] for k in solved(granularity_min=lower)[1].granularity) == 3
    batch = simple_batch(granularity_max=upper, capacity=33, max_offloaded=0)
    assert solve_shape(batch.program(0)).status == "infeasible"
    program = simple_batch().program(0)
    assert solve_shape(program, at_most=305).status == "infeasible"
    assert solve_shape(program, at_most=306).objective == 306
    assert solve_shape(program, at_least=306, at_most=306).objective == 306
    full = Amount("full", granularity=(0, 1))
    least = solve_shape(simple_batch(capacity=33).program(0), minimise=full)
    assert (least.value, least.bound) == (0, 0)
    kept = solve_shape(
        simple_batch(capacity=33).program(0), limits=[(Amount("off", offloaded=1), 0)]
    )
    assert kept.decision.granularity == ((1, 1), (1, 1))


def test_segments_count_in_whole_segments():
    program = simple_batch(
        granularities=("none", "every_2"), segments=(1, 2), capacity=33, max_offloaded=0
    ).program(0)
    assert solve_shape(program).decision.granularity == ((0, 2), (0, 2))


def test_no_time_is_unknown_not_infeasible():
    assert solve_shape(simple_batch().program(0), time_limit=0).status == "unknown"


def test_same_program_same_plan():
    batch = random_batch(np.random.default_rng(5), stages=3, layers=8, host_capacity=10**6)
    program = batch.program(0)
    assert solve_shape(program).decision == solve_shape(program).decision


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers_rule": "any"}, "layers_rule"),
        ({"recompute_rule": "some"}, "recompute_rule"),
        ({"offload_rule": "some"}, "offload_rule"),
        ({"weight_sum": -1}, "negative"),
        ({"weight_bottleneck": 1 << 60}, "2\\^62"),
        ({"time_layer": 1 << 52}, "2\\^53"),
        ({"memory_working": -1}, "memory_working"),
        ({"granularities": ("full", "every_2")}, "none"),
        ({"segments": (1,)}, "segments"),
    ],
)
def test_a_bad_batch_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        simple_batch(**changes)


def test_a_wrong_shape_is_refused():
    with pytest.raises(ValueError, match="capacity"):
        replace(simple_batch(), capacity=np.zeros((1, 3), dtype=np.int64))
    with pytest.raises(ValueError, match="int64"):
        replace(simple_batch(), capacity=np.zeros((1, 2)))


def test_take_selects_shapes():
    batch = random_batch(np.random.default_rng(0), size=4)
    part = batch.take(np.array([2, 0]))
    assert len(part) == 2
    assert part.program(0).fixed == batch.program(2).fixed


@pytest.mark.parametrize("block", range(8))
def test_optimum_is_that_of_enumeration(block):
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        batch = random_batch(np.random.default_rng(seed))
        program = batch.program(0)
        every = feasible_decisions(batch, 0)
        outcome = solve_shape(program)
        if not every:
            assert outcome.status == "infeasible", seed
            continue
        least = min(value for value, _ in every)
        assert (outcome.status, outcome.objective) == ("optimal", least), seed
        assert evaluate(program, outcome.decision).objective == least, seed
        for value, decision in every[:: max(1, len(every) // 5)]:
            costs = evaluate(program, decision)
            assert (costs.objective, costs.broken) == (value, ()), (seed, decision)


def test_infeasible_decisions_are_named():
    program = simple_batch(capacity=30, host_capacity=10).program(0)
    plain = ((2, 0), (2, 0))
    assert evaluate(program, Decision((2, 2), plain, (0, 0))).broken == ("memory",)
    assert evaluate(program, Decision((2, 2), plain, (1, 1))).broken == ("host",)
    assert "layers" in evaluate(program, Decision((2, 1), ((2, 0), (1, 0)), (0, 0))).broken
    assert "granularity" in evaluate(program, Decision((2, 2), ((2, 1), (2, 0)), (0, 0))).broken
    assert "offloaded" in evaluate(program, Decision((2, 2), plain, (3, 0))).broken


def test_least_amounts_are_those_of_enumeration():
    for seed in range(1000, 1040):
        batch = random_batch(np.random.default_rng(seed))
        every = feasible_decisions(batch, 0)
        if not every:
            continue
        limit = sorted(value for value, _ in every)[len(every) // 3]
        for amount in default_amounts(batch.granularities):
            least = min(amount.of(decision) for value, decision in every if value <= limit)
            outcome = solve_shape(batch.program(0), at_most=limit, minimise=amount)
            assert (outcome.status, outcome.value) == ("optimal", least), (seed, amount)
