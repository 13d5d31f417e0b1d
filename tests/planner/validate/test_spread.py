"""Laws of intervals: conformal bounds, weights of groups, what neighbours lend, coverage."""

from __future__ import annotations

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from costmodels.intervals import Intervals, shipped_intervals
from costmodels.stack import load_stack, stack_names
from planner.validate.intervals import QUANTITIES, interval_text, relative
from planner.validate.report import IntervalScore, StackInterval
from planner.validate.spread import (
    ENOUGH,
    HELD,
    Pool,
    Residuals,
    conformal,
    group_correlation,
    weights,
)

GROUPS = st.lists(st.integers(0, 5), min_size=1, max_size=40).map(np.array)
VALUES = st.lists(st.floats(-2.0, 2.0), min_size=1, max_size=60).map(np.array)


def kind(random: np.random.Generator, scale: float, groups: int, runs: int) -> Residuals:
    """Heavy-tailed residuals; half of the variance is common to a group."""
    shared = random.standard_t(4, groups).repeat(runs) + random.standard_t(4, groups * runs)
    return Residuals(scale * shared / 2, np.arange(groups).repeat(runs))


@given(st.integers(19, 400))
def test_bounds_are_the_order_statistics_of_split_conformal_prediction(n: int) -> None:
    x = np.random.default_rng(n).normal(size=n)
    low, high = conformal(x, np.ones(n))
    rank = int(np.floor((n + 1) * 0.05 + 1e-9))
    assert low == np.sort(x)[rank - 1]
    assert high == np.sort(x)[n - rank]


def test_a_conformal_interval_holds_nine_in_ten_new_values_whatever_the_sample_size() -> None:
    random = np.random.default_rng(0)
    for n in (19, 25, 60):
        held = []
        for _ in range(2000):
            x = random.standard_t(3, n + 1)
            low, high = conformal(x[:-1], np.ones(n))
            held.append(low <= x[-1] <= high)
        assert 0.885 <= np.mean(held) <= 0.935


@given(GROUPS, st.floats(0.0, 1.0))
def test_a_group_never_counts_as_less_than_one_run_nor_more_than_its_runs(group, rho) -> None:
    w = weights(group, rho)
    for one in np.unique(group):
        size = (group == one).sum()
        assert 1 - 1e-9 <= w[group == one].sum() <= size + 1e-9
    assert weights(group, 0.0) == pytest.approx(1.0)
    assert weights(group, 1.0).sum() == pytest.approx(len(np.unique(group)))


def test_correlation_inside_groups_comes_back() -> None:
    random = np.random.default_rng(3)
    shared = random.normal(size=2000).repeat(3)
    own = random.normal(size=6000)
    group = np.arange(2000).repeat(3)
    for rho in (0.0, 0.5, 0.9):
        value = np.sqrt(rho) * shared + np.sqrt(1 - rho) * own
        assert group_correlation({"x": Residuals(value, group)}) == pytest.approx(rho, abs=0.04)


@given(VALUES)
def test_an_interval_contains_the_prediction(value: np.ndarray) -> None:
    pool = Pool({name: Residuals(value, np.arange(len(value))) for name in "abc"})
    for but in ((), ("a",), ("a", "b", "c")):
        low, high = pool.interval(Residuals(value, np.arange(len(value))), but)
        assert low <= 0 <= high


def test_few_runs_are_held_because_neighbours_lend_their_tails() -> None:
    """Eight runs alone hold three in four new ones; with neighbours nine in ten."""
    random = np.random.default_rng(5)
    alone, lent, width, spread = [], [], [], []
    for _ in range(60):
        scales = 0.05 * np.exp(0.8 * random.normal(size=10))
        samples = {str(i): kind(random, s, 4, 2) for i, s in enumerate(scales)}
        pool = Pool(samples)
        for name, scale in zip(samples, scales, strict=True):
            fresh = kind(random, scale, 40, 1).value
            low, high = pool.interval(samples[name], (name,))
            own = np.sort(samples[name].value)
            lent.append(np.mean((low <= fresh) & (fresh <= high)))
            alone.append(np.mean((own[0] <= fresh) & (fresh <= own[-1])))
            width.append((high - low) / scale)
            spread.append(np.quantile(np.abs(fresh), HELD) / scale * 2)
    assert np.mean(alone) < 0.8
    assert 0.87 <= np.mean(lent) <= 0.95
    assert np.median(width) <= 1.6 * np.median(spread)


def test_plenty_of_runs_speak_for_themselves() -> None:
    random = np.random.default_rng(7)
    wild = {str(i): kind(random, 0.5, 10, 2) for i in range(5)}
    calm = Residuals(random.normal(0, 0.01, 200), np.arange(200))
    pool = Pool({**wild, "calm": calm})
    assert pool.worth(calm) > ENOUGH
    assert pool.interval(calm, ("calm",)) == conformal(calm.value, weights(calm.group, pool.rho))
    assert max(map(abs, pool.interval(calm, ("calm",)))) < 0.03


def test_a_kind_is_no_neighbour_of_its_own() -> None:
    random = np.random.default_rng(9)
    samples = {name: kind(random, 0.1, 4, 2) for name in "abcd"}
    pool = Pool(samples)
    nobody = Residuals(np.zeros(0), np.zeros(0, dtype=int))
    assert pool.interval(nobody, ("a",)) != pool.interval(nobody, ("b",))
    inside = pool.inside(pool.samples["a"], ("a",))
    changed = samples["a"].value.copy()
    changed[samples["a"].group == 0] += 5.0
    other = Pool({**samples, "a": Residuals(changed, samples["a"].group)})
    assert not other.inside(other.samples["a"], ("a",))[:2].any()
    assert inside.shape == (8,)


def test_one_kind_alone_borrows_nothing() -> None:
    sample = Residuals(np.linspace(-0.1, 0.2, 12), np.arange(12))
    pool = Pool({"only": sample})
    assert not pool.lends(("only",))
    assert pool.interval(sample, ("only",)) == (-0.1, 0.2)


def test_intervals_read_back_what_scores_ask_for() -> None:
    shipped = {"held": 0.9, "shipped_low": 0.2, "shipped_high": 0.2, "shipped_held": 0.9}
    score = IntervalScore(
        **{"kind": "x", "stack": "hf", "quantity": "time", "count": 20, "groups": 4, "error": 0.1},
        **{"low": 0.061, "high": 0.2, **shipped},
    )
    stacks = [
        StackInterval(stack=s, quantity=q, kinds=(), count=3, groups=2, low=0.1, high=0.301)
        for s in ("hf", "")
        for q in QUANTITIES
    ]
    text = interval_text([score], stacks)
    written = Intervals.model_validate(yaml.safe_load(text))
    assert written.kinds["x"]["time"].low == 0.07
    assert written.of_stack("hf", "memory").high == 0.31
    assert written.of_stack("another", "time") == written.unmeasured["time"]
    with pytest.raises(ValueError, match="too few kinds"):
        interval_text([score], stacks[:2])


@given(st.floats(-3, 0), st.floats(0, 3))
def test_bounds_in_logarithms_are_shares_of_the_prediction(low: float, high: float) -> None:
    below, above = relative(low, high)
    assert 1 - below == pytest.approx(max(0.1, np.exp(low)))
    assert 1 + above == pytest.approx(np.exp(high))


def test_every_stack_carries_the_interval_of_the_shipped_file() -> None:
    shipped = shipped_intervals()
    assert set(shipped.stacks) <= set(stack_names())
    for name in stack_names():
        stack = load_stack(name)
        for quantity, section in (("time", stack.time), ("memory", stack.memory)):
            bounds = shipped.of_stack(name, quantity)
            assert (section.interval_low, section.interval_high) == (bounds.low, bounds.high)
            assert section.sources["interval_low"] == bounds.source
