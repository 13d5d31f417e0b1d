"""How sure a prediction is: the spread of measured / predicted - 1 over comparable runs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import yaml

from costmodels.numeric import Array
from planner.validate.evaluate import Scored
from planner.validate.folds import folds
from planner.validate.report import IntervalScore
from planner.validate.run import Run
from planner.validate.score import grouped
from planner.validate.shipped import LEAST_RUNS

HELD = 0.90  # share of runs an interval is to hold
MOST_LOW = 0.9  # a time or a peak is never below a tenth of its prediction
HEADER = """# Intervals of predictions for known kinds of sources: measured / predicted - 1 of nine
# in ten of their runs, below and above, every run predicted with constants fitted without its
# group. Written by python -m planner.validate --intervals.
"""


def bounds(residuals: Array) -> tuple[float, float]:
    """Relative distances below and above a prediction that hold nine runs in ten.

    Parameters
    ----------
    residuals : Array
        measured / predicted - 1 of comparable runs. [-]

    Returns
    -------
    tuple[float, float]
        Both from 0 up. Quantiles of a sample of n, widened to what a new run needs: the
        (n + 1)-fold of each tail's share, as in split conformal prediction. [-]

    Examples
    --------
    >>> low, high = bounds(np.linspace(-0.1, 0.2, 99))
    >>> round(low, 3), round(high, 3)
    (0.088, 0.188)
    """
    ordered = np.sort(residuals)
    n, tail = len(ordered), (1 - HELD) / 2
    place = int(np.floor((n + 1) * tail + 1e-9)) - 1
    low, high = ordered[max(0, place)], ordered[min(n - 1, n - 1 - place)]
    return max(0.0, -float(low)), max(0.0, float(high))


def held(residuals: Array, fold: Array) -> float:
    """Share of runs inside the interval that the other folds' runs give."""
    inside = np.zeros(len(residuals), dtype=bool)
    for k in np.unique(fold):
        rest = residuals[fold != k]
        low, high = bounds(rest if len(rest) else residuals)
        own = residuals[fold == k]
        inside[fold == k] = (-low <= own) & (own <= high)
    return float(inside.mean())


def interval_text(scores: Sequence[IntervalScore]) -> str:
    """``intervals.yaml`` for held-out scores, bounds rounded up to whole per cent."""
    kinds: dict[str, dict[str, dict[str, float]]] = {}
    for s in scores:
        low, high = (math.ceil(100 * x - 1e-9) / 100 for x in (s.low, s.high))
        bounds = {"low": min(low, MOST_LOW), "high": high, "runs": s.count}
        kinds.setdefault(s.kind, {})[s.quantity] = bounds
    return HEADER + yaml.safe_dump({"kinds": kinds}, sort_keys=True, default_flow_style=None)


def interval_scores(data: Scored) -> tuple[IntervalScore, ...]:
    """For every kind of source and quantity: the interval its runs ask for, and what they carry."""
    found = []
    p = data.predictions
    comparable = np.array([run.comparable for run in data.runs], dtype=bool)
    for places in grouped([run.kind.name for run in data.runs]).values():
        for quantity, known, measured, predicted, shipped in (
            ("time", data.timed, data.time, p.time, p.time_interval),
            ("memory", data.weighed, data.memory, p.memory, p.memory_interval),
        ):
            index = places[(known & comparable)[places]]
            if len(index) >= LEAST_RUNS:
                residuals = measured[index] / predicted[index] - 1
                runs = [data.runs[int(i)] for i in index]
                found.append(_score(quantity, residuals, runs, shipped[index]))
    return tuple(found)


def _score(quantity: str, residuals: Array, runs: Sequence[Run], shipped: Array) -> IntervalScore:
    low, high = bounds(residuals)
    within = (-shipped[:, 0] <= residuals) & (residuals <= shipped[:, 1])
    return IntervalScore(
        kind=runs[0].kind.name,
        stack=runs[0].stack,
        quantity=quantity,
        count=len(residuals),
        error=float(np.abs(1 / (1 + residuals) - 1).mean()),
        low=low,
        high=high,
        held=held(residuals, folds(runs)),
        shipped_low=float(shipped[0, 0]),
        shipped_high=float(shipped[0, 1]),
        shipped_held=float(within.mean()),
    )
