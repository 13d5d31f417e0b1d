"""Calibration on synthetic clusters: the truth is the default times a factor, plus noise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.calibrate.shrink import Constant, Shrunk, centre, mean_error, offset, shrink

INTERVAL = (0.12, 0.14)
SPREAD = 0.06  # of runs around their stack's level: nine in ten are within the interval
WEIGHTS = np.array([[0.7, 0.2, 0.1]])  # share of a step's time that goes with each constant
DRAWS = 150


def level(x: float) -> dict[str, float]:
    return dict.fromkeys("abc", float(np.exp(x)))


def parts(count: int, rng: np.random.Generator) -> np.ndarray:
    """Seconds of each run that go with each constant."""
    return WEIGHTS * rng.uniform(0.5, 1.5, (count, 3)) * rng.uniform(1, 30, (count, 1))


def fit(own: np.ndarray, measured: np.ndarray, shapes: list[int]) -> Shrunk:
    def predict(values: dict[str, float]) -> np.ndarray:
        return own @ np.array([values.get(name, 1.0) for name in "abc"])

    def single(name: str, start: float) -> Constant:
        return Constant(lambda x: {name: start * float(np.exp(x))}, 0.1)

    def singles(values: dict[str, float]) -> list[Constant]:
        return [single(name, values.get(name, 1.0)) for name in "abc"]

    return shrink(Constant(level), singles, predict, measured, INTERVAL, shapes)


def changes(factor: float, count: int, shapes: int, seed: int) -> np.ndarray:
    """By how much the error on other runs of the same cluster changed, for many draws."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(DRAWS):
        own, others = parts(count, rng), parts(60, rng)
        measured = own.sum(axis=1) * factor * np.exp(rng.normal(0, SPREAD, count))
        truth = others.sum(axis=1) * factor * np.exp(rng.normal(0, SPREAD, 60))
        constants = fit(own, measured, [i % shapes for i in range(count)]).constants
        values = np.array([constants.get(name, 1.0) for name in "abc"])
        before = mean_error(np.log(others.sum(axis=1) / truth))
        found.append(mean_error(np.log(others @ values / truth)) - before)
    return np.array(found)


@pytest.mark.parametrize("count", [1, 3, 5, 8])
@pytest.mark.parametrize("shapes", [1, 8])
def test_a_cluster_as_shipped_is_predicted_no_worse(count: int, shapes: int) -> None:
    change = changes(1.0, count, shapes, seed=count)
    assert change.mean() < 0.003
    assert change.max() < (1e-12 if count == 1 else 0.05)


@pytest.mark.parametrize("factor", [0.7, 0.9, 1.1, 1.5])
@pytest.mark.parametrize("count", [1, 3, 5, 8])
def test_a_cluster_that_lies_off_is_predicted_no_worse(factor: float, count: int) -> None:
    assert changes(factor, count, 8, seed=count).mean() < 0.001


@pytest.mark.parametrize("factor", [0.7, 1.5])
def test_eight_runs_learn_a_cluster_that_lies_far_off(factor: float) -> None:
    assert changes(factor, 8, 8, seed=1).mean() < -0.5 * abs(1 / factor - 1)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-0.5, 0.5), min_size=1, max_size=12), st.integers(1, 12))
def test_left_out_runs_are_never_predicted_worse(errors: list[float], shapes: int) -> None:
    own = parts(len(errors), np.random.default_rng(len(errors)))
    numbers = [i % shapes for i in range(len(errors))]
    found = fit(own, own.sum(axis=1) * np.exp(-np.array(errors)), numbers)
    assert found.after <= found.before + 1e-9


@settings(max_examples=100)
@given(st.lists(st.floats(-2, 2), min_size=1, max_size=12), st.integers(1, 12))
def test_an_offset_never_passes_the_residuals(errors: list[float], shapes: int) -> None:
    residuals = np.array(errors)
    numbers = np.arange(len(errors)) % shapes
    move, middle = offset(residuals, numbers, INTERVAL), centre(residuals)
    assert move * middle <= 0
    assert abs(move) <= abs(middle)


@given(st.floats(0.01, 0.5), st.floats(0.01, 0.5))
def test_one_run_inside_the_interval_moves_nothing(low: float, high: float) -> None:
    for measured in (1 - 0.999 * low, 1 + 0.999 * high):
        assert offset(-np.log(np.array([measured])), np.zeros(1), (low, high)) == 0
