"""Scores of predictions against measurements. Errors are predicted / measured - 1."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from costmodels.numeric import Array

LEAST_ROWS = 8  # of a group, for a rank correlation or a regret
CLOSE = 0.25


def ranks(values: Array) -> Array:
    """Ranks from 1, ties take their mean.

    >>> ranks(np.array([10.0, 20.0, 10.0])).tolist()
    [1.5, 3.0, 1.5]
    """
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean: Array = last - (counts - 1) / 2
    result: Array = mean[inverse]
    return result


def rank_correlation(a: Array, b: Array) -> float:
    """Spearman's rho; NaN where one side is constant.

    >>> round(rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([1.0, 9.0, 4.0])), 3)
    0.5
    """
    x, y = ranks(a) - ranks(a).mean(), ranks(b) - ranks(b).mean()
    size = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / size if size else float("nan")


def regret(predicted: Array, measured: Array) -> float:
    """Measured time of the run predicted fastest over the best measured, minus one.

    Ties take the mean of theirs.

    >>> regret(np.array([1.0, 2.0]), np.array([3.0, 2.0]))
    0.5
    """
    first = predicted <= predicted.min() * (1 + 1e-9)
    return max(0.0, float(measured[first].mean() / measured.min() - 1))


def blind_regret(
    predicted: Array, measured: Array, ran: Array, fits: Array
) -> tuple[float, bool] | None:
    """Regret where the model also decides what fits, and whether its first pick ran.

    Of the runs predicted to fit it tries the fastest, then the next, until one ran. None where
    none of them did.

    >>> blind_regret(np.array([1.0, 2.0]), np.array([np.nan, 2.0]), np.array([False, True]),
    ...              np.array([True, True]))
    (0.0, False)
    """
    order = [i for i in np.argsort(predicted, kind="stable") if fits[i]]
    tried = next((i for i in order if ran[i]), None)
    if tried is None:
        return None
    tied = [i for i in order if ran[i] and predicted[i] <= predicted[tried] * (1 + 1e-9)]
    return max(0.0, float(measured[tied].mean() / measured[ran].min() - 1)), bool(ran[order[0]])


def grouped(keys: Sequence[Hashable]) -> Mapping[Hashable, Array]:
    """Indices by key, in order of appearance."""
    found: dict[Hashable, list[int]] = {}
    for i, key in enumerate(keys):
        found.setdefault(key, []).append(i)
    return {key: np.array(index) for key, index in found.items()}


def inside(predicted: Array, measured: Array, interval: Array) -> Array:
    """Whether a measurement lies in the interval of its prediction; ``interval`` (n, 2)."""
    low, high = predicted * (1 - interval[:, 0]), predicted * (1 + interval[:, 1])
    within: Array = (low <= measured) & (measured <= high)
    return within
