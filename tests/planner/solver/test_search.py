"""The best over all shapes, the k best and the ladder, against enumeration of everything."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from brute_force import feasible_decisions, random_batch
from synthetic import Setting, batches

from planner.solver.cpsat import solve_shape
from planner.solver.ladder import default_amounts, ladder, strict
from planner.solver.program import evaluate
from planner.solver.search import search, top


def random_space(seed, **fixed):
    """Two batches of random shapes with the same granularities, and all their plans."""
    rng = np.random.default_rng(seed)
    space = []
    while len(space) < 2:
        size = int(rng.integers(1, 6))
        batch = random_batch(rng, size=size, layers=5, stages=int(rng.integers(1, 4)), **fixed)
        if not space or space[0].granularities == batch.granularities:
            space.append(batch)
    plans = [
        (value, number, shape, decision)
        for number, batch in enumerate(space)
        for shape in range(len(batch))
        for value, decision in feasible_decisions(batch, shape)
    ]
    return space, plans


def rank_of(space, number, shape):
    return tuple(space[number].rank[shape].tolist())


def check_counts(counts):
    settled = counts.memory + counts.bound + counts.relaxation + counts.cpsat + counts.infeasible
    assert counts.unsettled == 0
    assert settled == counts.shapes


@pytest.mark.parametrize("start", range(0, 120, 30))
def test_search_finds_the_optimum_of_enumeration(start):
    for seed in range(start, start + 30):
        space, plans = random_space(seed)
        result = search(space)
        check_counts(result.counts)
        assert result.counts.shapes == sum(map(len, space))
        if not plans:
            assert (result.status, result.best, result.bound) == ("infeasible", None, None), seed
            continue
        least = min(plan[0] for plan in plans)
        assert (result.status, result.best.objective) == ("optimal", least), seed
        assert (result.bound, result.gap) == (least, 0.0)
        program = space[result.best.batch].program(result.best.shape)
        costs = evaluate(program, result.best.decision)
        assert (costs.objective, costs.broken) == (least, ()), seed
        assert search(space, cut=least - 1).status == "infeasible", seed
        assert search(space, cut=least).best.objective == least, seed


def test_the_k_best_shapes_each_with_their_own_optimum():
    for seed in range(200, 240):
        space, plans = random_space(seed)
        per_shape = {}
        for value, number, shape, _ in plans:
            per_shape[number, shape] = min(value, per_shape.get((number, shape), value))
        result = top(space, 3)
        assert [plan.objective for plan in result.plans] == sorted(per_shape.values())[:3], seed
        for plan in result.plans:
            assert per_shape[plan.batch, plan.shape] == plan.objective, seed


def test_only_selected_shapes_are_searched():
    for seed in range(300, 320):
        space, plans = random_space(seed)
        select = [np.arange(len(batch)) % 2 == 0 for batch in space]
        values = [value for value, number, shape, _ in plans if select[number][shape]]
        result = search(space, select=select)
        assert result.counts.shapes == sum(int(s.sum()) for s in select)
        assert (result.best.objective if result.best else None) == min(values, default=None), seed


@pytest.mark.parametrize("start", range(400, 500, 25))
def test_ladder_is_the_lexicographic_least_of_enumeration(start):
    compared = 0
    for seed in range(start, start + 25):
        space, plans = random_space(seed)
        if not plans:
            continue
        best = search(space).best
        limit = best.objective + int(0.2 * abs(best.objective))
        amounts = default_amounts(space[0].granularities)
        least = min(
            (rank_of(space, n, s), *(a.of(decision) for a in amounts), value)
            for value, n, s, decision in plans
            if value <= limit
        )
        result = ladder(space, best, limit)
        values = tuple(value for _, value in result.amounts)
        assert result.status == "optimal"
        assert (result.rank, *values, result.best.objective) == least, seed
        program = space[result.best.batch].program(result.best.shape)
        costs = evaluate(program, result.best.decision)
        assert (costs.objective, costs.broken) == (result.best.objective, ()), seed
        assert tuple(a.of(result.best.decision) for a in amounts) == values, seed
        compared += 1
    assert compared > 10


def test_strict_is_the_fastest_on_the_lowest_rank():
    for seed in range(500, 540):
        space, plans = random_space(seed)
        rank, result = strict(space)
        if not plans:
            assert (rank, result.status) == (None, "infeasible"), seed
            continue
        least = min((rank_of(space, n, s), value) for value, n, s, _ in plans)
        assert (rank, result.best.objective) == least, seed
        assert rank_of(space, result.best.batch, result.best.shape) == rank, seed


def test_without_time_the_gap_is_told():
    space = batches(Setting(gpus=64, layers=80, hidden=8192))
    result = search(space, time_limit=0)
    assert result.status == "unknown"
    assert result.bound is not None
    assert result.counts.unsettled > 0
    best = search(space).best
    assert result.bound <= best.objective
    stopped = ladder(space, best, best.objective, time_limit=0)
    assert (stopped.status, stopped.best.objective) == ("feasible", best.objective)
    _, result = strict(space, time_limit=0)
    assert result.status == "unknown"


def test_nothing_to_search_is_infeasible():
    empty = random_batch(np.random.default_rng(0), size=3).take(np.zeros(0, dtype=np.int64))
    for space in ([], [empty]):
        result = search(space)
        assert (result.status, result.plans, result.counts.shapes) == ("infeasible", (), 0)
        assert strict(space)[0] is None


def test_progress_is_told_and_bounds_only_rise():
    space = batches(Setting(gpus=256, layers=126, hidden=16384))
    told = []
    best = search(space, progress=lambda *news: told.append(news)).best
    bounds = [bound for _, _, bound in told]
    assert told
    assert bounds == sorted(bounds)
    assert all(best_yet is None or bound <= best_yet for _, best_yet, bound in told)
    assert told[-1][1] == best.objective


def test_a_plan_above_the_limit_is_refused():
    space = batches(Setting(gpus=8, layers=32, hidden=4096))
    best = search(space).best
    with pytest.raises(ValueError, match="above the limit"):
        ladder(space, best, best.objective - 1)


@pytest.mark.parametrize(
    "setting",
    [
        Setting(gpus=8, layers=40, hidden=5120, memory=34e9),
        Setting(gpus=64, layers=80, hidden=8192, granularities=5),
        Setting(gpus=512, layers=126, hidden=16384, layers_rule="edges", recompute_rule="same",
                offload_rule="all", granularities=2),
        Setting(gpus=32, layers=80, hidden=8192, memory=34e9, host=0.2e12),
        Setting(gpus=16384, layers=126, hidden=16384, global_batch=8192),
    ],
)  # fmt: skip
def test_language_models_are_proven_and_cpsat_agrees(setting):
    space = batches(setting)
    result = search(space)
    best = result.best
    assert (result.status, result.gap) == ("optimal", 0.0)
    check_counts(result.counts)
    program = space[best.batch].program(best.shape)
    assert evaluate(program, best.decision).feasible
    assert solve_shape(program, at_most=best.objective - 1).status == "infeasible"
    assert search(space).plans == result.plans
    least = ladder(space, best, best.objective + best.objective // 100)
    assert least.status == "optimal"
    assert least.rank <= rank_of(space, best.batch, best.shape)


def test_host_memory_that_stages_share_is_left_to_cpsat():
    result = search(batches(Setting(gpus=32, layers=80, hidden=8192, memory=34e9, host=0.2e12)))
    assert result.counts.cpsat + result.counts.infeasible > 0
    assert any(solve.method == "cpsat" for solve in result.solves)


def test_ortools_is_not_imported_unless_needed():
    code = (
        "import sys; from synthetic import Setting, batches;"
        "from planner.solver.search import search;"
        "r = search(batches(Setting(gpus=8, layers=32, hidden=4096)));"
        "assert r.status == 'optimal'; assert 'ortools' not in sys.modules"
    )
    environment = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
