"""Pipeline schedules: against a simulation, published bubbles and the solver's form."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodels.pipeline import hop_time, interleaved_fill, pipeline_time
from costmodels.rates import links_of
from hardware_db import parse_gpus

TIMES = st.lists(st.floats(0.1, 3.0), min_size=1, max_size=6)


def simulate(forward, backward, micro_batches):
    """Length of synchronous 1F1B, stage by stage and event by event."""
    p, m = len(forward), micro_batches
    orders = []
    for i in range(p):
        warm = min(m, p - 1 - i)
        order = [("F", j) for j in range(warm)]
        for j in range(m - warm):
            order += [("F", warm + j), ("B", j)]
        order += [("B", j) for j in range(m - warm, m)]
        orders.append(order)
    done, clock, at = {}, [0.0] * p, [0] * p
    while any(at[i] < len(orders[i]) for i in range(p)):
        for i in range(p):
            if at[i] == len(orders[i]):
                continue
            kind, j = orders[i][at[i]]
            before = i - 1 if kind == "F" else i + 1
            if 0 <= before < p and (kind, before, j) not in done:
                continue
            ready = done.get((kind, before, j), 0.0)
            clock[i] = max(clock[i], ready) + (forward[i] if kind == "F" else backward[i])
            done[kind, i, j] = clock[i]
            at[i] += 1
    return max(clock)


@given(st.integers(1, 6), st.integers(1, 12), st.floats(0.1, 3.0))
def test_equal_stages_take_what_the_simulation_takes(pp, m, t):
    exact = simulate([t / 3] * pp, [2 * t / 3] * pp, m)
    assert pipeline_time(t, pp * t, m, 1, 0.0, pp) == pytest.approx(exact)
    assert exact == pytest.approx((m + pp - 1) * t)


@settings(max_examples=200)
@given(TIMES, st.integers(1, 16))
def test_uneven_stages_stay_close_to_the_simulation(times, m):
    exact = simulate([t / 3 for t in times], [2 * t / 3 for t in times], m)
    predicted = pipeline_time(max(times), sum(times), m, 1, 0.0, len(times))
    assert 0.7 * exact <= predicted <= 1.3 * exact
    if m >= 4 * len(times):
        assert predicted == pytest.approx(exact, rel=0.12)


def test_published_bubble():
    """Narayanan et al. 2021: (p - 1) / m of the ideal time, a v-th of it interleaved."""
    t, m, pp = 1.0, 8, 4
    for v in (1, 2, 4):
        bubble = pipeline_time(t, pp * t, m, v, 0.0, pp) / (m * t) - 1
        assert bubble == pytest.approx((pp - 1) / (v * m))


@given(TIMES, st.integers(1, 16), st.integers(1, 4), st.floats(0, 0.2))
def test_solver_form_is_the_same_number(times, m, v, x):
    """m T + (sum T_i - T) / v with the hops inside T_i, and a constant."""
    pp = len(times)
    if pp == 1:
        x = 0.0
    stages = np.array(times) + 2 * x
    solver = m * stages.max() + (stages.sum() - stages.max()) / v + interleaved_fill(x, v, pp)
    assert solver == pytest.approx(pipeline_time(max(times), sum(times), m, v, x, pp))


def test_one_stage_has_no_bubble_and_no_hops():
    assert pipeline_time(2.0, 2.0, 8, 1, 5.0, 1) == 16.0


def test_hops_cross_the_network_once_a_stage_fills_a_node():
    links = links_of(parse_gpus("4xdgx-a100-640"))
    near, far = hop_time(links, 1e8, np.array([4, 8]), 1)
    assert far > 5 * near
    assert hop_time(links, 1e8, 8, 3) == pytest.approx(3 * far)
