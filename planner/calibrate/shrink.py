"""Ridge fits: constants move from their shipped values only as far as runs can tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from costmodels.numeric import Array

ROUNDS = 3  # of Gauss-Newton; the models are close to linear in the logarithms
REWEIGHTED = 20
STEP = 1e-2
NOISES = (0.4, 0.2, 0.1, 0.05)  # of one run, in log: how little to trust it; most cautious first
ONE_RUN = 0.1  # trust in a single run, which nothing can check: about the shipped mean error
LEAST_GAIN = 0.05  # of the error; less is no reason to leave the shipped constants
FOLDS = 10


@dataclass(frozen=True, slots=True)
class Constant:
    """One constant: moved by x widths it is ``value(x)``."""

    name: str
    width: float  # how far it usually lies from its shipped value, in log or in its unit
    value: Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Shrunk:
    """What a fit found. ``before`` and ``after``: mean absolute errors by cross-validation."""

    constants: dict[str, float]
    runs: int
    before: float
    after: float
    cross_validated: bool


def logarithmic(name: str, start: float, width: float) -> Constant:
    """A constant that moves by factors."""
    return Constant(name, width, lambda x: float(start * np.exp(width * x)))


def linear(name: str, start: float, width: float) -> Constant:
    """A constant that moves by differences and stays from 0 up."""
    return Constant(name, width, lambda x: float(max(0.0, start + width * x)))


def shrink(
    constants: Sequence[Constant],
    predict: Callable[[dict[str, float]], Array],
    measured: Array,
    expected: float,
) -> Shrunk:
    r"""Constants adjusted to measured runs, if cross-validation says they predict better.

    A common offset of up to ``expected`` / sqrt(n) is what the shipped constants promise, no
    reason to move: it is taken from the errors first. Then minimises
    :math:`\sum_i \rho(\ln (\hat y_i / y_i)) / \nu^2 + \sum_c x_c^2` with x in prior widths and a
    soft-L1 :math:`\rho`, for several trusts :math:`\nu` in a run. The trust whose held-out error
    is least wins; where none beats the shipped constants, these stay. One run moves constants
    with little trust.

    Parameters
    ----------
    constants : Sequence[Constant]
        Those that may move.
    predict : Callable
        Predictions of all runs for values of the constants, shape (n,).
    measured : Array
        Measurements of the runs, shape (n,).
    expected : float
        Mean error the shipped constants promise. [-]
    """
    n = len(measured)
    target = np.log(measured)
    error, slope, at = _linear_model(constants, predict, target)
    before = float(np.abs(np.exp(error - slope @ at) - 1).mean())
    origin = error - slope @ at  # the linear model at the shipped constants
    exact = float(np.abs(np.exp(np.log(predict(_values(constants, at * 0))) - target) - 1).mean())
    if n == 1:
        moved = solve(beyond(origin, expected), slope, ONE_RUN)
        after = float(np.abs(np.exp(origin + slope @ moved) - 1).mean())
        return Shrunk(_values(constants, moved), 1, exact, min(after, exact), False)
    scores = [_held_out(origin, slope, noise, expected) for noise in NOISES]
    best = int(np.argmin(scores))
    if scores[best] >= before * (1 - LEAST_GAIN):
        return Shrunk({}, n, exact, exact, True)
    moved = solve(beyond(origin, expected), slope, NOISES[best])
    return Shrunk(_values(constants, moved), n, exact, scores[best], True)


def _values(constants: Sequence[Constant], x: Array) -> dict[str, float]:
    return {c.name: c.value(float(v)) for c, v in zip(constants, x, strict=True)}


def _linear_model(
    constants: Sequence[Constant],
    predict: Callable[[dict[str, float]], Array],
    target: Array,
) -> tuple[Array, Array, Array]:
    """Log errors and their slopes around the cautious fit, and where that is."""
    steps = np.eye(len(constants)) * STEP
    at: Array = np.zeros(len(constants))

    def errors(x: Array) -> Array:
        result: Array = np.log(predict(_values(constants, x))) - target
        return result

    for _ in range(ROUNDS):
        error = errors(at)
        slope = np.stack([(errors(at + s) - error) / STEP for s in steps], axis=1)
        move = solve(error - slope @ at, slope, ONE_RUN) - at
        if np.abs(move).max() < STEP:
            break
        at = at + np.clip(move, -1.0, 1.0)
    return error, slope, at


def solve(origin: Array, slope: Array, noise: float) -> Array:
    """Where the ridge is least, by iterated reweighting; in prior widths from the origin."""
    x: Array = np.zeros(slope.shape[1])
    for _ in range(REWEIGHTED):
        now = origin + slope @ x
        weight = 1.0 / np.sqrt(1.0 + (now / noise) ** 2) / noise**2
        normal = slope.T @ (weight[:, None] * slope) + np.eye(len(x))
        x = np.linalg.solve(normal, -slope.T @ (weight * origin))
    return x


def beyond(origin: Array, expected: float) -> Array:
    """Errors less the common offset that is to be expected of so many runs.

    >>> beyond(np.array([0.25, 0.15]), 0.0707).round(2).tolist()
    [0.2, 0.1]
    """
    most = expected / np.sqrt(len(origin))
    result: Array = origin - np.clip(origin.mean(), -most, most)
    return result


def _held_out(origin: Array, slope: Array, noise: float, expected: float) -> float:
    """Mean absolute error of runs predicted from the others."""
    n = len(origin)
    fold = np.arange(n) % min(n, FOLDS)
    errors = np.zeros(n)
    for k in range(fold.max() + 1):
        out = fold == k
        x = solve(beyond(origin[~out], expected), slope[~out], noise)
        errors[out] = np.exp(origin[out] + slope[out] @ x) - 1
    return float(np.abs(errors).mean())
