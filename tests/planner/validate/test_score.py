"""Laws of the scores: rank correlation, regret."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.validate.score import blind_regret, rank_correlation, ranks, regret

TIMES = st.lists(st.floats(0.1, 1e3), min_size=2, max_size=30)


@given(TIMES)
def test_a_rank_is_the_mean_place_among_equals(values: list[float]) -> None:
    array = np.array(values)
    expected = [
        sum(v < own for v in values) + (sum(v == own for v in values) + 1) / 2 for own in values
    ]
    assert ranks(array).tolist() == expected


@given(TIMES)
def test_rank_correlation_knows_order_only(values: list[float]) -> None:
    array = np.array(values)
    rho = rank_correlation(array, np.log(array) * 3.0)
    if len(set(np.log(array).tolist())) < len(set(values)):
        return  # rounding made a tie
    if len(set(values)) == 1:
        assert math.isnan(rho)
    else:
        assert rho == pytest.approx(1.0)
        assert rank_correlation(array, -array) == pytest.approx(-1.0)


def test_rank_correlation_without_ties_is_the_textbook_formula() -> None:
    a, b = np.array([3.0, 1.0, 4.0, 2.0, 5.0]), np.array([1.0, 2.0, 5.0, 3.0, 4.0])
    d = ranks(a) - ranks(b)
    assert rank_correlation(a, b) == pytest.approx(1 - 6 * (d @ d) / (5 * 24))


@given(TIMES, st.randoms(use_true_random=False))
def test_regret_is_zero_exactly_for_a_pick_that_is_best(values: list[float], random) -> None:
    measured = np.array(values)
    assert regret(measured, measured) == pytest.approx(0.0, abs=1e-12)
    predicted = np.array(random.sample(range(1, len(values) + 1), len(values)), dtype=float)
    picked = measured[predicted.argmin()] / measured.min() - 1
    assert regret(predicted, measured) == pytest.approx(picked)


def test_a_tie_takes_the_mean_of_its_runs() -> None:
    assert regret(np.array([1.0, 1.0, 2.0]), np.array([2.0, 4.0, 1.0])) == 2.0


def test_blind_regret_pays_for_runs_that_do_not_exist() -> None:
    predicted = np.array([1.0, 2.0, 3.0])
    measured = np.array([np.nan, 5.0, 4.0])
    ran = np.array([False, True, True])
    every = np.array([True, True, True])
    assert blind_regret(predicted, measured, ran, every) == (0.25, False)
    assert blind_regret(predicted, measured, ran, ran) == (0.25, True)
    assert blind_regret(predicted, measured, ran, ~ran) is None
