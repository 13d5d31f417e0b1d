"""Held-out memory: the few fitted memory constants chosen without the runs they are scored on.

A kind of source names the memory constants that were fitted to its runs and the values tried. For
every fold the combination with the least cost on the other folds predicts the fold. The cost of a
measured run is its absolute error; of a run known to fit or not and predicted to lie on the wrong
side of the limit, ``WRONG`` and how far it lies beyond; in logarithms.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from costmodels.numeric import Array
from planner.validate.folds import folds
from planner.validate.kinds import Kind
from planner.validate.predict import Predictions, predict_memory
from planner.validate.report import ChoiceScore
from planner.validate.run import Run
from planner.validate.score import grouped

WRONG = 0.5  # so large that verdicts count, and distances only break ties


def leave_out_memory(runs: Sequence[Run], found: Predictions) -> tuple[ChoiceScore, ...]:
    """Replace the memory of every run of a kind with fitted constants by its held-out figure."""
    chosen = []
    for places in grouped([run.kind.name for run in runs]).values():
        some = [runs[int(i)] for i in places]
        if some[0].kind.try_memory:
            chosen.append(_of_kind(some[0].kind, some, places, found))
    return tuple(chosen)


def _of_kind(kind: Kind, runs: Sequence[Run], places: Array, found: Predictions) -> ChoiceScore:
    tries = [
        dict(zip(kind.try_memory, values, strict=True))
        for values in product(*kind.try_memory.values())
    ]
    tried = [predict_memory(runs, fields)[:2] for fields in tries]
    cost = np.stack([_cost(runs, value, device) for value, device in tried])
    fold, held_out = folds(runs), []
    for k in np.unique(fold):
        best = int(cost[:, fold != k].sum(axis=1).argmin())
        held_out.append(tries[best])
        inside = np.flatnonzero(fold == k)
        found.memory[places[inside]] = tried[best][0][inside]
        found.device[places[inside]] = tried[best][1][inside]
    best = int(cost.sum(axis=1).argmin())
    return ChoiceScore(
        kind=kind.name,
        stack=runs[0].stack,
        runs=len(runs),
        chosen=tries[best],
        folds=tuple(held_out),
    )


def _cost(runs: Sequence[Run], value: Array, device: Array) -> Array:
    """Cost of every run; zero where nothing is known. Mixed labels count as nothing."""
    measured = np.array([np.nan if r.memory is None else r.memory for r in runs], dtype=float)
    limit = np.array([run.cluster.memory_limit for run in runs])
    over = np.log(device / limit)
    oom = np.array([run.outcome == "oom" for run in runs])
    ok = np.array([run.outcome == "ok" for run in runs])
    fits = np.where(oom & (over <= 0), WRONG - over, 0.0)
    misses = np.where(ok & (over > 0), WRONG + over, 0.0)
    error = np.abs(np.log(value / measured))
    cost: Array = np.nan_to_num(np.where(np.isfinite(measured), error, fits + misses))
    return cost
