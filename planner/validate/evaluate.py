"""Scores of sources and groups from runs and their predictions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from costmodels.numeric import Array
from planner.validate.assumed import assumed_values
from planner.validate.columns import MEMORY_KINDS
from planner.validate.predict import Predictions
from planner.validate.report import (
    FitScore,
    GroupScore,
    MemoryScore,
    SourceScore,
    TimeScore,
    VerdictScore,
)
from planner.validate.run import Run
from planner.validate.score import (
    CLOSE,
    LEAST_ROWS,
    blind_regret,
    grouped,
    inside,
    rank_correlation,
    regret,
)


@dataclass(frozen=True, slots=True)
class Scored:
    """Runs with measurements and predictions side by side, arrays (n,)."""

    runs: Sequence[Run]
    predictions: Predictions
    time: Array  # measured, NaN where not [s]
    memory: Array  # measured, NaN where not [byte]
    ok: Array
    oom: Array
    failed: Array

    @property
    def timed(self) -> Array:
        """Runs whose step time is measured and predicted."""
        known: Array = np.isfinite(self.time) & np.isfinite(self.predictions.time) & ~self.failed
        return known & ~self.oom

    @property
    def weighed(self) -> Array:
        """Runs whose peak memory is measured and predicted."""
        known: Array = np.isfinite(self.memory) & np.isfinite(self.predictions.memory)
        return known

    @property
    def fits(self) -> Array:
        """Runs predicted to fit, by the point estimate."""
        with np.errstate(invalid="ignore"):
            result: Array = self.predictions.device <= self.predictions.limit
        return result

    @property
    def judged(self) -> Array:
        """Runs with a prediction of what must fit."""
        result: Array = np.isfinite(self.predictions.device)
        return result

    @property
    def used(self) -> Array:
        """Runs of which anything is scored: time, peak, or whether they ran."""
        result: Array = self.timed | self.weighed
        return result | (self.judged & (self.ok | self.oom | self.failed))


def scored(runs: Sequence[Run], predictions: Predictions) -> Scored:
    """Put measurements beside predictions."""
    outcome = np.array([run.outcome for run in runs], dtype=object)
    return Scored(
        runs,
        predictions,
        time=np.array([np.nan if r.time is None else r.time for r in runs], dtype=float),
        memory=np.array([np.nan if r.memory is None else r.memory for r in runs], dtype=float),
        ok=outcome == "ok",
        oom=outcome == "oom",
        failed=outcome == "crashed_or_oom",
    )


def time_score(data: Scored, index: Array) -> TimeScore | None:
    """Step times of some runs; None where none is measured."""
    chosen = index[data.timed[index]]
    if not len(chosen):
        return None
    predicted, measured = data.predictions.time[chosen], data.time[chosen]
    error = predicted / measured - 1
    within = inside(predicted, measured, data.predictions.time_interval[chosen])
    groups = [g for g in group_scores(data, index) if g.regret is not None]
    blind = [blind_of(data, i) for i in large_groups(data, index)]
    ran = [b[1] for b in blind if b is not None]
    return TimeScore(
        count=len(chosen),
        mape=float(np.abs(error).mean()),
        bias=float(error.mean()),
        p90=float(np.quantile(np.abs(error), 0.9)),
        worst=float(np.abs(error).max()),
        within_25=float((np.abs(error) <= CLOSE).mean()),
        coverage=float(within.mean()),
        groups=len(groups),
        rho=mean([g.rho for g in groups]),
        regret=mean([g.regret for g in groups]),
        worst_regret=max((g.regret for g in groups if g.regret is not None), default=None),
        blind_regret=mean([None if b is None else b[0] for b in blind]),
        blind_first_ran=mean([float(r) for r in ran]),
    )


def mean(values: Sequence[float | None]) -> float | None:
    """Mean of the values there are, None where there are none.

    >>> mean([1.0, None, 3.0])
    2.0
    """
    known = [v for v in values if v is not None and not math.isnan(v)]
    return sum(known) / len(known) if known else None


def large_groups(data: Scored, index: Array) -> list[Array]:
    """Groups with enough timed runs to rank, all their runs included."""
    groups = [index[i] for i in grouped([data.runs[j].group for j in index]).values()]
    return [g for g in groups if data.timed[g].sum() >= LEAST_ROWS]


def blind_of(data: Scored, index: Array) -> tuple[float, bool] | None:
    """Blind regret of a group, oom and failed runs being among the choices."""
    known = index[np.isfinite(data.predictions.time[index]) & data.judged[index]]
    if not data.timed[known].any():
        return None
    return blind_regret(
        data.predictions.time[known], data.time[known], data.timed[known], data.fits[known]
    )


def memory_scores(data: Scored, index: Array) -> tuple[MemoryScore, ...]:
    """Peak memory of some runs, by memory kind."""
    found = []
    for kind in MEMORY_KINDS:
        own = np.array([data.runs[i].memory_kind == kind for i in index], dtype=bool)
        chosen = index[data.weighed[index] & own]
        if not len(chosen):
            continue
        predicted, measured = data.predictions.memory[chosen], data.memory[chosen]
        error = predicted / measured - 1
        within = inside(predicted, measured, data.predictions.memory_interval[chosen])
        found.append(
            MemoryScore(
                kind=kind,
                count=len(chosen),
                mape=float(np.abs(error).mean()),
                bias=float(error.mean()),
                median=float(np.median(np.abs(error))),
                worst=float(np.abs(error).max()),
                coverage=float(within.mean()),
            )
        )
    return tuple(found)


def fit_score(data: Scored, index: Array) -> FitScore | None:
    """The verdict's confusion over some runs."""
    known = index[data.judged[index]]
    sure = known[data.ok[known] | data.oom[known]]
    failed = known[data.failed[known]]
    if not len(sure):
        return None
    fits, ok = data.fits[sure], data.ok[sure]
    return FitScore(
        count=len(sure),
        accuracy=float((fits == ok).mean()),
        false_fit=float((fits & ~ok).mean()),
        false_no_fit=float((~fits & ok).mean()),
        ok=int(ok.sum()),
        ok_called_oom=float((~fits & ok).sum() / max(1, ok.sum())),
        failed=len(failed),
        failed_called_oom=float((~data.fits[failed]).mean()) if len(failed) else None,
    )


def group_scores(data: Scored, index: Array) -> tuple[GroupScore, ...]:
    """Every group of some runs."""
    found = []
    for key, places in grouped([data.runs[i].group for i in index]).items():
        assert isinstance(key, tuple)
        some = index[places]
        timed = some[data.timed[some]]
        predicted, measured = data.predictions.time[timed], data.time[timed]
        error = predicted / measured - 1
        large = len(timed) >= LEAST_ROWS
        weighed = some[data.weighed[some]]
        memory_error = data.predictions.memory[weighed] / data.memory[weighed] - 1
        fit, blind = fit_score(data, some), blind_of(data, some) if large else None
        rho = rank_correlation(predicted, measured) if large else math.nan
        found.append(
            GroupScore(
                **dict(
                    zip(
                        ("source", "model", "gpu", "n_gpus", "seq_len", "global_batch"),
                        key,
                        strict=True,
                    )
                ),
                count=len(some),
                time_mape=float(np.abs(error).mean()) if len(timed) else None,
                time_bias=float(error.mean()) if len(timed) else None,
                rho=None if math.isnan(rho) else rho,
                regret=regret(predicted, measured) if large else None,
                blind_regret=None if blind is None else blind[0],
                memory_mape=float(np.abs(memory_error).mean()) if len(weighed) else None,
                fit_accuracy=None if fit is None else fit.accuracy,
            )
        )
    return tuple(found)


def source_score(
    data: Scored, index: Array, source: str, kind: str, skipped: Mapping[str, Sequence[str]]
) -> SourceScore:
    """Everything about the runs of one source and kind; ``skipped``: places by reason."""
    assumed = Counter(name for i in index for name in data.runs[i].assumed)
    return SourceScore(
        source=source,
        kind=kind,
        stack=data.runs[index[0]].stack if len(index) else "",
        rows=len(index) + sum(map(len, skipped.values())),
        used=len(index),
        skipped={reason: len(places) for reason, places in sorted(skipped.items())},
        skipped_rows={reason: tuple(places) for reason, places in sorted(skipped.items())},
        assumed=dict(sorted(assumed.items())),
        assumed_values=assumed_values([data.runs[i] for i in index]),
        time=time_score(data, index),
        memory=memory_scores(data, index),
        fit=fit_score(data, index),
        groups=group_scores(data, index),
    )


def verdict_score(data: Scored, index: Array, source: str) -> VerdictScore | None:
    """Verdicts of a source's runs that ran or did not fit; None where all ran."""
    known = index[data.judged[index] & (data.ok | data.oom)[index]]
    if not data.oom[known].any():
        return None
    device, limit = data.predictions.device[known], data.predictions.limit[known]
    interval = data.predictions.memory_interval[known]
    fits, unfit = device * (1 + interval[:, 1]) <= limit, device * (1 - interval[:, 0]) > limit
    tight = ~fits & ~unfit
    ok = data.ok[known]

    def ran(chosen: Array) -> float | None:
        return float(ok[chosen].mean()) if chosen.any() else None

    return VerdictScore(
        source=source,
        fits=int(fits.sum()),
        fits_ran=ran(fits),
        tight=int(tight.sum()),
        tight_ran=ran(tight),
        unfit=int(unfit.sum()),
        unfit_ran=ran(unfit),
    )
