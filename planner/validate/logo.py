"""Held-out predictions: fitted constants refitted without the runs they are scored on.

The runs of a stack are cut into folds of whole groups, a group being the runs of one model on one
cluster with one sequence length and global batch. For every fold the stack's fitted constants
come from the other folds alone, drawn to neutral values, and predict the runs of the fold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from costmodels.calibration import SOFT, SPREAD, soft_ridge
from costmodels.numeric import Array
from costmodels.stack import Stack, load_stack
from costmodels.time_profile import FITTED, TimeProfile
from planner.validate.folds import folds
from planner.validate.kinds import matches
from planner.validate.predict import Predictions, predict_time
from planner.validate.report import ConstantScore
from planner.validate.run import Run
from planner.validate.score import grouped

ROUNDS = 5  # of Gauss-Newton; the fourth no longer moves a constant by 0.1 %
STEP = 1e-2  # of a log constant, for the derivative
LEAST = 1e-6  # where a search starts for a constant shipped as zero [s]
# Where the default is zero: ten kernel launches. [s]
NEUTRAL = {"host_tp": 1e-4, "tp_latency": 1e-4}
NEAR = 0.1  # of a log constant, within which a fold is refitted on the linear model
REACH = 0.5  # of a log constant, beyond which a linear fit is not trusted


def fitted_fields(stack: Stack) -> tuple[str, ...]:
    """Constants of a stack's time profile that were fitted to runs, as its sources say."""
    sources = stack.time.sources

    def was_fitted(name: str, depth: int = 3) -> bool:
        text = sources.get(name, "")
        if "fitted on" in text and not text.startswith("assumed"):
            return True
        other = text.removeprefix("as ").split(",")[0].split(";")[0].strip()
        return text.startswith("as ") and depth > 0 and was_fitted(other, depth - 1)

    return tuple(name for name in FITTED if was_fitted(name))


def neutral(fields: Sequence[str]) -> Array:
    """Where constants stand before any run was seen, logarithms."""
    defaults = TimeProfile.model_fields
    values: Array = np.log([float(NEUTRAL.get(f, defaults[f].default)) for f in fields])
    return values


@dataclass(frozen=True, slots=True)
class Fit:
    """A linearised fit: logarithms of constants, and of predictions around them."""

    fields: tuple[str, ...]
    at: Array  # (p,)
    error: Array  # ln predicted - ln measured, (n,)
    slope: Array  # (n, p)
    weight: Array  # of the runs, (n,)

    def without(self, left_out: Array) -> Array:
        """Logarithms of the constants from the runs that are not left out."""
        keep = ~left_out
        away, weight = self.at - neutral(self.fields), self.weight[keep]
        move = solve(self.error[keep], self.slope[keep], away, self.fields, weight)
        result: Array = self.at + np.clip(move, -REACH, REACH)
        return result


def named(fields: Sequence[str], logarithms: Array) -> dict[str, float]:
    """Constants by name."""
    return dict(zip(fields, np.exp(logarithms).tolist(), strict=True))


def shipped(profile: TimeProfile, fields: Sequence[str]) -> Array:
    """Logarithms of the shipped constants."""
    values: Array = np.log([max(float(getattr(profile, name)), LEAST) for name in fields])
    return values


def even_weights(runs: Sequence[Run]) -> Array:
    """Weights with which every kind of source counts alike; their mean is one."""
    kinds = grouped([run.kind.name for run in runs])
    weight = np.ones(len(runs))
    for places in kinds.values():
        weight[places] = len(runs) / len(kinds) / len(places)
    return weight


def solve(
    error: Array, slope: Array, away: Array, fields: Sequence[str], runs_weight: Array
) -> Array:
    """The step that minimises soft-L1 errors and the distance from neutral constants."""
    pull = SOFT / np.array([SPREAD[name] for name in fields])
    return soft_ridge(error, slope, pull, SOFT, away, runs_weight)


def fit(
    runs: Sequence[Run],
    measured: Array,
    fields: tuple[str, ...],
    fixed: Mapping[str, float],
    start: Array,
) -> Fit:
    """Constants from all runs, and how predictions move with them; ``fixed`` ones stay.

    The search starts at ``start`` (a floor that binds nowhere has no slope to follow); what it
    is drawn to are the neutral constants.
    """
    target, steps = np.log(measured), np.eye(len(fields)) * STEP
    weight = even_weights(runs)

    def log_times(at: Array) -> Array:
        times = predict_time(runs, {**fixed, **named(fields, at)})[0]
        result: Array = np.log(times)
        return result

    at = start
    for _ in range(ROUNDS):
        error = log_times(at) - target
        slope = np.stack([(log_times(at + s) - target - error) / STEP for s in steps], axis=1)
        move = solve(error, slope, at - neutral(fields), fields, weight)
        move = np.clip(move, -REACH, REACH)
        if np.abs(move).max() < STEP:
            break
        at = at + move
    return Fit(fields, at, error, slope, weight)


def leave_out(runs: Sequence[Run], found: Predictions) -> tuple[ConstantScore, ...]:
    """Replace the time of every run of a fitted stack by its held-out prediction."""
    results = []
    for name, places in grouped([run.stack for run in runs]).items():
        stack = load_stack(str(name))
        fields = fitted_fields(stack)
        if fields:
            results += _leave_out_of(stack, fields, [runs[i] for i in places], places, found)
    return tuple(results)


def _leave_out_of(
    stack: Stack,
    fields: tuple[str, ...],
    runs: Sequence[Run],
    places: Array,
    found: Predictions,
) -> list[ConstantScore]:
    informing = np.array([_informs(r, p) for r, p in zip(runs, found.time[places], strict=True)])
    if not informing.any():
        return []
    fold = folds(runs)
    some = [run for run, use in zip(runs, informing, strict=True) if use]
    measured = np.array([run.time for run in some], dtype=float)
    whole = fit(some, measured, fields, {}, shipped(stack.time, fields))
    values = []
    for k in np.unique(fold):
        out = fold[informing] == k
        at = whole.without(out)
        if np.abs(at - whole.at).max() > NEAR and not out.all():  # no longer linear
            kept = [run for run, left in zip(some, out, strict=True) if not left]
            at = fit(kept, measured[~out], fields, {}, at).at
        values.append(np.exp(at))
        left_out = np.flatnonzero(fold == k)
        constants = named(fields, at)
        found.time[places[left_out]] = predict_time([runs[int(i)] for i in left_out], constants)[0]
    spread = np.array(values)
    error = np.abs(found.time[places[informing]] / measured - 1)
    from_all = named(fields, whole.at)
    return [
        ConstantScore(
            stack=stack.name,
            name=name,
            runs=len(some),
            shipped=float(getattr(stack.time, name)),
            fitted=from_all[name],
            lowest=float(spread[:, i].min()),
            highest=float(spread[:, i].max()),
            error=float(error.mean()),
            error_without=_without(name, fields, some, measured, stack.time),
        )
        for i, name in enumerate(fields)
    ]


def _informs(run: Run, predicted: float) -> bool:
    informs = run.kind.informs
    ran = run.outcome in ("", "ok") and run.time is not None and np.isfinite(predicted)
    return bool(ran and informs is not None and matches(run.row, informs))


def _without(
    name: str,
    fields: tuple[str, ...],
    runs: Sequence[Run],
    measured: Array,
    profile: TimeProfile,
) -> float:
    """Mean error where one constant stays neutral and the others are fitted to all runs."""
    fixed = named((name,), neutral((name,)))
    rest = tuple(f for f in fields if f != name)
    start = shipped(profile, rest)
    constants = named(rest, fit(runs, measured, rest, fixed, start).at) if rest else {}
    predicted = predict_time(runs, {**fixed, **constants})[0]
    return float(np.abs(predicted / measured - 1).mean())
