"""Constants move from their shipped values only as far as runs can tell.

First one common constant, which scales all predictions, then single ones where enough different
runs tell them apart. Residuals are ln predicted - ln measured.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from costmodels.calibration import SOFT, soft_ridge
from costmodels.numeric import Array
from planner.validate.spread import conformal

STEP = 1e-2  # of a constant's own unit, for the derivative
ROUNDS = 6  # of the secant that finds the common constant
REWEIGHTED = 20
# The rest were chosen on random draws of one to eight runs from public measurements, so that the
# runs not drawn are predicted no worse on average.
REPEAT = 0.5  # a further run of a shape seen before says half as much as one of a new shape
STACK_WIDTH = 0.15  # how far a stack lies off on a cluster, beyond its stated interval
NOISE = 0.10  # of one shape's residual
SURE = 0.5  # standard errors taken off the offset
CLEAR = 1.5  # standard errors by which runs left out must be predicted better
REACH, REACH_POWER = 0.03, 1.5  # how far so many runs beyond the first may move at most
ONE_SHARE, ONE_REACH = 0.3, 0.004  # what the one run left of two asks of its excess, and at most
LEAST_RUNS = 6  # and as many shapes, before single constants move
STRETCH = 1.25  # of the common constant beyond the move it is to bring
NEGLIGIBLE = 1e-4  # a smaller move is none


@dataclass(frozen=True, slots=True)
class Constant:
    """Moved by x, ``value(x)`` holds the fields it stands for; ``width``: how far it usually is."""

    value: Callable[[float], dict[str, float]]
    width: float = 1.0


@dataclass(frozen=True, slots=True)
class Shrunk:
    """What a fit found. ``before`` and ``after``: mean absolute errors by cross-validation.

    ``low`` and ``high``: how far below and above predictions measurements lie, as shares.
    """

    constants: dict[str, float]
    runs: int
    before: float
    after: float
    cross_validated: bool
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Runs:
    """Measured runs: predictions for values of constants, and which runs share a shape."""

    predict: Callable[[dict[str, float]], Array]
    measured: Array
    shapes: Array  # whole numbers
    interval: tuple[float, float]  # that nine in ten measurements / predictions - 1 lie in

    def residuals(self, values: dict[str, float]) -> Array:
        """Logarithms of predicted / measured."""
        result: Array = np.log(self.predict(values)) - np.log(self.measured)
        return result


def shrink(
    common: Constant,
    singles: Callable[[dict[str, float]], Sequence[Constant]],
    predict: Callable[[dict[str, float]], Array],
    measured: Array,
    interval: tuple[float, float],
    shapes: Sequence[Hashable],
) -> Shrunk:
    """Constants adjusted to measured runs, as far as left-out shapes are predicted better.

    What the stack's own interval explains moves nothing, and neither does one run, which no other
    can check. More runs move the common constant by ``offset``, if shapes left out improve by
    more than ``CLEAR`` standard errors of that improvement; single constants likewise, beside it.

    Parameters
    ----------
    common : Constant
        Scales all predictions.
    singles : Callable
        Constants that may move one by one, around the values the common one gave.
    predict : Callable
        Predictions of all runs for values of the constants, shape (n,).
    measured : Array
        Measurements of the runs, shape (n,).
    interval : tuple[float, float]
        Relative distances below and above a prediction that hold nine runs in ten. [-]
    shapes : Sequence
        What of every run makes it unlike the others, shape (n,).
    """
    places: dict[Hashable, int] = {}
    numbers = np.array([places.setdefault(shape, len(places)) for shape in shapes])
    runs = Runs(predict, np.asarray(measured, dtype=float), numbers, interval)
    origin = runs.residuals({})
    n, before = len(origin), mean_error(origin)
    if n == 1:
        return Shrunk({}, 1, before, before, False, *_spread(origin))
    slope = (runs.residuals(common.value(STEP)) - origin) / STEP
    goal = offset(origin, numbers, interval)
    held = _held_out(runs, origin, slope)
    values, errors = {}, origin
    if improves(origin, held, _folds(numbers)):
        values = _reach(common, runs, origin, goal)
        errors = held if values else origin
    found = _one_by_one(runs, values, errors, singles(values))
    if found is not None:
        values, errors = found
    bounds = _spread(errors, runs.residuals(values))
    return Shrunk(values, n, before, mean_error(errors), True, *bounds)


def _spread(*residuals: Array) -> tuple[float, float]:
    """Shares below and above predictions that hold nine in ten measurements; of few runs all.

    The widest over several sets of residuals: of runs left out, and of those fitted.
    """
    bounds = np.array([conformal(-r, np.ones(len(r))) for r in residuals])
    low, high = min(0.0, float(bounds[:, 0].min())), max(0.0, float(bounds[:, 1].max()))
    return -float(np.expm1(low)), float(np.expm1(high))


def mean_error(residuals: Array) -> float:
    """Mean of abs(predicted / measured - 1)."""
    return float(np.abs(np.expm1(residuals)).mean())


def centre(residuals: Array) -> float:
    """Where residuals lie, outliers counting less.

    >>> round(centre(np.array([0.1, 0.1, 0.1, 2.0])), 2)
    0.12
    """
    middle = float(np.median(residuals))
    for _ in range(REWEIGHTED):
        weight = 1.0 / np.sqrt(1.0 + ((residuals - middle) / SOFT) ** 2)
        middle = float((weight * residuals).sum() / weight.sum())
    return middle


def offset(residuals: Array, shapes: Array, interval: tuple[float, float]) -> float:
    """By how much predictions should move, in log; 0 where the interval explains the residuals.

    The interval narrows with the square root of the runs, those of a shape seen before counting
    half. What lies beyond it, less half its standard error, shrinks as a prior of ``STACK_WIDTH``
    asks, and moves no further than so few runs may.

    >>> offset(np.array([-0.1, -0.05]), np.array([0, 1]), (0.1, 0.2))
    0.0
    >>> round(offset(np.full(6, -0.3), np.arange(6), (0.1, 0.1)), 2)
    0.27
    """
    n, kinds = len(residuals), len(np.unique(shapes))
    worth = kinds + REPEAT * (n - kinds)
    middle = centre(residuals)
    below, above = -np.log1p(interval[1]), -np.log1p(-interval[0])
    explained = np.clip(middle, below / np.sqrt(worth), above / np.sqrt(worth))
    excess = float(explained - middle)
    if n == 1:
        return float(np.clip(ONE_SHARE * excess, -ONE_REACH, ONE_REACH))
    if excess:  # what lies far beyond the interval owes it little (non-negative garrote)
        excess = float(explained * explained / middle - middle)
    if kinds > 1:
        means = np.array([residuals[shapes == s].mean() for s in np.unique(shapes)])
    else:
        means = residuals
    unsure = SURE * float(means.std(ddof=1)) / np.sqrt(len(means))
    excess = float(np.sign(excess)) * max(0.0, abs(excess) - unsure)
    share = STACK_WIDTH**2 / (STACK_WIDTH**2 + NOISE**2 / kinds)
    most = REACH * (worth - 1) ** REACH_POWER
    return float(np.clip(share * excess, -most, most))


def improves(without: Array, held: Array, fold: Array) -> bool:
    """Whether held-out errors are smaller by clearly more than the gain's standard error."""
    gain = np.abs(np.expm1(without)) - np.abs(np.expm1(held))
    means = np.array([gain[fold == k].mean() for k in np.unique(fold)])
    if len(means) < 2:
        return False
    return bool(means.mean() > max(0.0, CLEAR * float(means.std(ddof=1)) / np.sqrt(len(means))))


def _folds(shapes: Array) -> Array:
    """Whole shapes, or single runs where all are of one shape."""
    return shapes if len(np.unique(shapes)) > 1 else np.arange(len(shapes))


def _held_out(runs: Runs, origin: Array, slope: Array) -> Array:
    """Residuals of runs whose shape had no say in the common constant."""
    fold = _folds(runs.shapes)
    result = origin.copy()
    for k in np.unique(fold):
        out = fold == k
        goal = offset(origin[~out], runs.shapes[~out], runs.interval)
        follow = float(slope[~out].mean())
        if goal and follow > NEGLIGIBLE:
            result[out] += slope[out] * goal * min(1.0 / follow, STRETCH)
    return result


def _reach(common: Constant, runs: Runs, origin: Array, goal: float) -> dict[str, float]:
    """The common constant with which predictions move by ``goal`` on average."""
    if abs(goal) < NEGLIGIBLE:
        return {}
    x, moved = goal, 0.0
    for _ in range(ROUNDS):
        moved = float((runs.residuals(common.value(x)) - origin).mean())
        if moved * goal <= 0 or abs(moved - goal) < NEGLIGIBLE:
            break
        x *= goal / moved
        if abs(x) >= STRETCH * abs(goal):  # these runs hardly depend on it
            x = STRETCH * goal
            moved = float((runs.residuals(common.value(x)) - origin).mean())
            break
    return common.value(x) if moved * goal > 0 and abs(moved) <= 1.05 * abs(goal) else {}


def _one_by_one(
    runs: Runs, values: dict[str, float], errors: Array, singles: Sequence[Constant]
) -> tuple[dict[str, float], Array] | None:
    """Values with single constants moved too, and held-out residuals; None if it does not pay.

    ``errors`` are the held-out residuals of the common constant.
    """
    kinds = len(np.unique(runs.shapes))
    if kinds < LEAST_RUNS or not singles:
        return None
    now = runs.residuals(values)
    slopes = [(runs.residuals({**values, **c.value(c.width * STEP)}) - now) / STEP for c in singles]
    slope = np.stack(slopes, axis=1)
    held = errors.copy()
    for k in np.unique(runs.shapes):
        out = runs.shapes == k
        held[out] += slope[out] @ _widths(now[~out], slope[~out])
    if not improves(errors, held, runs.shapes):
        return None
    found = dict(values)
    for c, x in zip(singles, _widths(now, slope), strict=True):
        found.update(c.value(c.width * float(x)))
    if mean_error(runs.residuals(found)) > mean_error(now):
        return None
    return found, held


def _widths(origin: Array, slope: Array) -> Array:
    """Where a ridge with soft residuals is least, in widths from the origin."""
    return soft_ridge(origin, slope, np.full(slope.shape[1], NOISE), NOISE)
