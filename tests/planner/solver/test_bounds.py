"""Bounds and the exact relaxation never exceed the optimum, and what cannot fit has no plan."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from brute_force import feasible_decisions, random_batch
from synthetic import Setting, batches

from planner.solver.bounds import memory_bounds, memoryless_bounds
from planner.solver.fit import cannot_fit
from planner.solver.program import evaluate
from planner.solver.relaxation import relax
from planner.solver.stage_options import NEVER, compositions, number_of_compositions


def least_objective(batch, shape):
    return min((value for value, _ in feasible_decisions(batch, shape)), default=NEVER)


@pytest.mark.parametrize("start", range(20_000, 20_600, 100))
def test_bounds_hold_against_enumeration(start):
    for seed in range(start, start + 100):
        batch = random_batch(np.random.default_rng(seed), layers=6)
        optimum = least_objective(batch, 0)
        memoryless, memory = memoryless_bounds(batch)[0], memory_bounds(batch)[0]
        assert memoryless <= memory <= optimum, seed
        assert optimum == NEVER or not cannot_fit(batch)[0], seed
        relaxed = relax(batch.program(0))
        assert relaxed.decided
        if relaxed.bound is None:
            assert optimum == NEVER, seed
        else:
            assert memory <= relaxed.bound <= optimum, seed
            costs = evaluate(batch.program(0), relaxed.decision)
            assert relaxed.exact == costs.feasible, seed
            assert not relaxed.exact or relaxed.bound == optimum, seed


@pytest.mark.parametrize("stages", [1, 2, 3, 4, 6])
def test_bounds_hold_against_the_exact_relaxation(stages):
    exact = 0
    ratios = []
    for seed in range(30_000, 30_250):
        rng = np.random.default_rng(seed)
        layers = int(rng.integers(2 * stages, 6 * stages))
        batch = random_batch(rng, stages=stages, layers=layers)
        relaxed = relax(batch.program(0))
        bound = int(memory_bounds(batch)[0])
        assert memoryless_bounds(batch)[0] <= bound
        if relaxed.bound is not None:
            assert bound <= relaxed.bound, seed
            exact += relaxed.exact
            ratios.append(bound / max(relaxed.bound, 1))
    assert exact > 90
    assert np.mean(ratios) > 0.9


def test_relaxation_under_a_cut():
    for seed in range(40_000, 40_200):
        program = random_batch(np.random.default_rng(seed), layers=8).program(0)
        optimum = relax(program).bound
        if optimum is not None:
            assert relax(program, at_most=optimum).bound == optimum, seed
            assert relax(program, at_most=optimum + 7).bound == optimum, seed
            assert relax(program, at_most=optimum - 1).bound is None, seed


def test_extreme_weights_and_tables():
    for seed in range(60):
        rng = np.random.default_rng(seed)
        zero = np.zeros(1, dtype=np.int64)
        weights = {"weight_bottleneck": zero} if seed % 2 else {"weight_sum": zero}
        batch = random_batch(rng, layers=6, **weights)
        if seed % 3 == 0:  # no memory rows at all
            rows = ("const", "layer", "offloaded", "granularity", "working")
            none = {f"memory_{r}": getattr(batch, f"memory_{r}")[:, :, :0] for r in rows}
            batch = replace(batch, **none)
        optimum = least_objective(batch, 0)
        assert memory_bounds(batch)[0] <= optimum
        relaxed = relax(batch.program(0))
        assert not relaxed.exact or relaxed.bound == optimum


def test_a_batch_is_bounded_as_its_shapes_are():
    for seed in range(50):
        batch = random_batch(np.random.default_rng(seed), size=6, stages=2, layers=8)
        for bounds in (memoryless_bounds, memory_bounds):
            together = bounds(batch).tolist()
            alone = [int(bounds(batch.take(np.array([i])))[0]) for i in range(6)]
            # the table of a batch is as wide as its widest shape needs: never worse than alone
            assert all(a <= t for a, t in zip(alone, together, strict=True))
            assert bounds is memory_bounds or alone == together


def test_memory_bounds_are_tight_on_language_model_costs():
    ratios = []
    for batch in batches(Setting(gpus=256, layers=80, hidden=8192, memory=34e9, zero=(0, 1))):
        bounds = memory_bounds(batch)
        for shape in np.flatnonzero(bounds < NEVER)[::40]:
            relaxed = relax(batch.program(int(shape)))
            if relaxed.bound is not None:
                ratios.append(bounds[shape] / relaxed.bound)
    assert len(ratios) > 20
    assert max(ratios) <= 1
    assert np.median(ratios) > 0.98


def test_compositions_are_all_and_distinct():
    for total, segments in ((7, (1, 1, 1)), (8, (4, 2, 1)), (6, (2, 4)), (5, (2,))):
        rows = compositions(total, segments)
        assert len(rows) == number_of_compositions(total, segments)
        assert len(set(map(tuple, rows.tolist()))) == len(rows)
        assert (rows.sum(axis=1) == total).all()
        assert (rows % np.array(segments) == 0).all()
