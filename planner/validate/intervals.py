"""Intervals that held-out residuals ask for: of kinds of sources, and of stacks for plans."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import yaml

from costmodels.intervals import Quantity
from costmodels.numeric import Array
from costmodels.stack import stack_names
from planner.validate.evaluate import Scored
from planner.validate.kinds import Kind
from planner.validate.report import CoverageScore, IntervalScore, StackInterval
from planner.validate.score import grouped
from planner.validate.spread import Pool, Residuals

LEAST_RUNS = 8  # of a kind without neighbours; fewer say too little about a tenth
FEW = 25  # runs; kinds with fewer are judged together
MOST_LOW = 0.9  # a time or a peak is never below a tenth of its prediction
# What PyTorch reserves beyond what tensors take lies between 1.028 and 1.079 of it on one software
# (SimuMax 1.2, B200 release data), about 1.05: a stack whose runs print allocated bytes alone says
# nothing of that part of a plan's peak.
SLACK = 0.03
QUANTITIES: tuple[Quantity, ...] = ("time", "memory")
HEADER = """# How sure predictions are: measured / predicted - 1 of nine in ten runs, below and
# above, every run predicted with constants fitted without its group. Of kinds of sources for
# `planner validate`, of stacks for plans; `unmeasured` is a stack without runs. Written by
# python -m planner.validate RUNS.csv... --intervals costmodels/intervals.yaml
"""


@dataclass(frozen=True, slots=True)
class Found:
    """All that residuals say about intervals."""

    kinds: tuple[IntervalScore, ...] = ()
    coverage: tuple[CoverageScore, ...] = ()
    stacks: tuple[StackInterval, ...] = ()


@dataclass(frozen=True, slots=True)
class Sample:
    """Comparable runs of one kind, or of those it sets apart: places, residuals and kind."""

    name: str
    kind: Kind
    index: Array
    residuals: Residuals


def relative(low: float, high: float) -> tuple[float, float]:
    """Bounds of ``ln(measured / predicted)`` as shares below and above a prediction.

    >>> [round(x, 3) for x in relative(-0.1, 0.2)]
    [0.095, 0.221]
    """
    return min(MOST_LOW, 1 - math.exp(low)), math.exp(high) - 1


def find_intervals(data: Scored) -> Found:
    """Intervals of kinds and stacks, and how many runs they hold, for both quantities."""
    kinds: list[IntervalScore] = []
    coverage: list[CoverageScore] = []
    stacks: list[StackInterval] = []
    for quantity in QUANTITIES:
        samples = _samples(data, quantity)
        # runs that are set apart lend nobody their spread
        pool = Pool({n: s.residuals for n, s in samples.items() if n == s.kind.name})
        shown = {
            n: s
            for n, s in samples.items()
            if pool.lends((s.kind.name,)) or len(s.index) >= LEAST_RUNS
        }
        held = {n: pool.inside(s.residuals, (s.kind.name,)) for n, s in shown.items()}
        kinds += [_of_kind(quantity, samples[n], pool, held[n], data) for n in shown]
        coverage += _coverage(quantity, samples, held)
        if pool.lends():
            stacks += _of_stacks(quantity, samples, pool)
    names = dict.fromkeys(n for run in data.runs for n in (run.kind.name, run.spread("time")))
    order = {name: i for i, name in enumerate(names)}
    return Found(
        tuple(sorted(kinds, key=lambda score: order[score.kind])), tuple(coverage), tuple(stacks)
    )


def _samples(data: Scored, quantity: Quantity) -> dict[str, Sample]:
    """Comparable runs of every kind that has any."""
    known, measured, predicted = (
        (data.timed, data.time, data.predictions.time)
        if quantity == "time"
        else (data.weighed, data.memory, data.predictions.memory)
    )
    comparable = np.array([run.comparable for run in data.runs], dtype=bool)
    numbers = {key: i for i, key in enumerate(dict.fromkeys(run.group for run in data.runs))}
    group = np.array([numbers[run.group] for run in data.runs], dtype=int)
    found = {}
    for name, places in grouped([run.spread(quantity) for run in data.runs]).items():
        index = places[(known & comparable)[places]]
        if len(index):
            value = np.log(measured[index] / predicted[index])
            kind = data.runs[int(index[0])].kind
            found[str(name)] = Sample(str(name), kind, index, Residuals(value, group[index]))
    return found


def _of_kind(
    quantity: Quantity, sample: Sample, pool: Pool, held: Array, data: Scored
) -> IntervalScore:
    value = sample.residuals.value
    low, high = relative(*pool.interval(sample.residuals, (sample.kind.name,)))
    p = data.predictions
    shipped = (p.time_interval if quantity == "time" else p.memory_interval)[sample.index]
    measured = np.exp(value) - 1
    return IntervalScore(
        kind=sample.name,
        stack=data.runs[int(sample.index[0])].stack,
        quantity=quantity,
        count=len(value),
        groups=len(sample.residuals.groups),
        error=float(np.abs(np.exp(-value) - 1).mean()),
        low=low,
        high=high,
        held=float(held.mean()),
        shipped_low=float(shipped[0, 0]),
        shipped_high=float(shipped[0, 1]),
        shipped_held=float(((-shipped[:, 0] <= measured) & (measured <= shipped[:, 1])).mean()),
    )


def _coverage(
    quantity: Quantity, samples: dict[str, Sample], held: dict[str, Array]
) -> list[CoverageScore]:
    """Runs held, over kinds with few runs together and over the others."""
    found = []
    for few in (True, False):
        names = [n for n in held if (len(samples[n].index) < FEW) == few]
        inside = [held[n] for n in names]
        if names:
            groups = [
                float(inside_of.mean())
                for n in names
                for inside_of in _by_group(samples[n].residuals, held[n])
            ]
            found.append(
                CoverageScore(
                    quantity=quantity,
                    few=few,
                    kinds=len(names),
                    count=sum(map(len, inside)),
                    held=float(np.concatenate(inside).mean()),
                    groups=len(groups),
                    held_by_group=float(np.mean(groups)),
                )
            )
    return found


def _by_group(residuals: Residuals, held: Array) -> list[Array]:
    return [held[residuals.group == group] for group in residuals.groups]


def _of_stacks(quantity: Quantity, samples: dict[str, Sample], pool: Pool) -> list[StackInterval]:
    """The interval of every stack that some kind speaks for, and of one that none does."""
    found = []
    for name in (*stack_names(), ""):
        own = [s for s in samples.values() if name and name in s.kind.speaks(quantity)]
        residuals = Residuals(
            np.concatenate([s.residuals.value for s in own] or [np.zeros(0)]),
            np.concatenate([s.residuals.group for s in own] or [np.zeros(0, dtype=int)]),
        )
        if name and not own:
            continue
        bounds = pool.interval(residuals, [s.kind.name for s in own])
        low, high = relative(*bounds)
        if own and quantity == "memory" and all(s.kind.memory_kind == "allocated" for s in own):
            low, high = math.hypot(low, SLACK), math.hypot(high, SLACK)
        found.append(
            StackInterval(
                stack=name,
                quantity=quantity,
                kinds=tuple(dict.fromkeys(s.kind.name for s in own)),
                count=len(residuals.value),
                groups=len(residuals.groups),
                low=low,
                high=high,
            )
        )
    return found


def interval_text(kinds: Sequence[IntervalScore], stacks: Sequence[StackInterval]) -> str:
    """``intervals.yaml``, bounds rounded up to whole per cent.

    Raises
    ------
    ValueError
        If there were too few kinds of runs for a stack that nobody measured.
    """
    of_kinds: dict[str, dict[str, dict[str, float]]] = {}
    for s in kinds:
        of_kinds.setdefault(s.kind, {})[s.quantity] = _entry(s)
    of_stacks: dict[str, dict[str, dict[str, float]]] = {}
    for t in stacks:
        of_stacks.setdefault(t.stack, {})[t.quantity] = _entry(t)
    unmeasured = of_stacks.pop("", {})
    if set(unmeasured) != set(QUANTITIES):
        raise ValueError("too few kinds of sources for intervals: expected three of each quantity")
    whole = {"kinds": of_kinds, "stacks": of_stacks, "unmeasured": unmeasured}
    return HEADER + yaml.safe_dump(whole, sort_keys=True, default_flow_style=None)


def _entry(score: IntervalScore | StackInterval) -> dict[str, float]:
    low, high = up(score.low), up(score.high)
    return {"low": min(low, MOST_LOW), "high": high, "runs": score.count, "groups": score.groups}


def up(share: float) -> float:
    """A bound rounded up to whole per cent.

    >>> up(0.061), up(0.07)
    (0.07, 0.07)
    """
    return math.ceil(100 * share - 1e-9) / 100
