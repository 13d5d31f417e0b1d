"""What a validation found: the JSON that ``planner validate --json`` prints."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

SCHEMA_VERSION = "1.0"


class Frozen(BaseModel):
    """Base of all parts. Errors are predicted / measured - 1, as shares, not per cent."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class TimeScore(Frozen):
    """Step times. Rank correlation and regret are means over groups of at least 8 runs."""

    count: int
    mape: float
    bias: float
    p90: float  # of the absolute errors
    worst: float
    within_25: float  # share of runs within 25 %
    coverage: float  # share of measurements inside the interval of their prediction
    groups: int  # that are large enough to rank
    rho: float | None
    regret: float | None
    worst_regret: float | None
    blind_regret: float | None  # where the model also decides what fits
    blind_first_ran: float | None  # share of groups whose first pick ran


class MemoryScore(Frozen):
    """Peaks of one memory kind."""

    kind: str
    count: int
    mape: float
    bias: float
    median: float  # of the absolute errors
    worst: float
    coverage: float


class FitScore(Frozen):
    """Predicted against real outcomes; shares of ``count``, the runs known to fit or not.

    ``failed`` counts runs whose table mixes crashes with running out of memory; they are not
    part of ``count``.
    """

    count: int
    accuracy: float
    false_fit: float  # out of memory, predicted to fit
    false_no_fit: float  # ran, predicted not to fit
    ok: int
    ok_called_oom: float  # of the runs that ran
    failed: int
    failed_called_oom: float | None


class GroupScore(Frozen):
    """Runs of one model on one cluster with one sequence length and global batch."""

    source: str
    model: str
    gpu: str
    n_gpus: str
    seq_len: str
    global_batch: str
    count: int
    time_mape: float | None
    time_bias: float | None
    rho: float | None
    regret: float | None
    blind_regret: float | None
    memory_mape: float | None
    fit_accuracy: float | None


class SourceScore(Frozen):
    """All runs of one source read in one way."""

    source: str
    kind: str
    stack: str
    rows: int
    used: int
    skipped: dict[str, int]
    assumed: dict[str, int]  # empty columns that a default filled, rows each
    time: TimeScore | None
    memory: tuple[MemoryScore, ...]
    fit: FitScore | None
    groups: tuple[GroupScore, ...]


class OracleScore(Frozen):
    """Counted bytes against those a table lists."""

    count: int
    within_half_percent: float
    within_two_percent: float  # of the rows whose attention is modelled
    mape: float
    worst: float
    right_phase: float | None  # peaks only
    by_category: dict[str, float]  # share of rows within 0.5 %


class IntervalScore(Frozen):
    """The interval of predictions for one kind of source, relative: below and above.

    ``low``, ``high``: what nine in ten of its runs ask for; ``held``: the share of runs inside
    when their own fold has no say in it. ``shipped_*``: the interval predictions carry.
    """

    kind: str
    stack: str
    quantity: str  # time | memory
    count: int
    error: float  # mean absolute, predicted / measured - 1
    low: float
    high: float
    held: float
    shipped_low: float
    shipped_high: float
    shipped_held: float


class ConstantScore(Frozen):
    """One fitted constant: as shipped, fitted to all runs, its range over the folds."""

    stack: str
    name: str
    runs: int
    shipped: float
    fitted: float
    lowest: float
    highest: float
    error: float  # of the stack's held-out predictions
    error_without: float  # with this constant neutral, the others fitted to all runs


class ChoiceScore(Frozen):
    """Memory constants of one kind of source, chosen from values tried."""

    kind: str
    stack: str
    runs: int
    chosen: dict[str, Any]  # on all runs
    folds: tuple[dict[str, Any], ...]  # without the runs of each fold


class Headline(Frozen):
    """One line of the accuracy table."""

    name: str
    rows: int
    metric: str
    value: float | None
    target: float
    peer: str
    met: bool | None  # None where there are too few rows to say


class Report(Frozen):
    """Everything."""

    schema_version: str = SCHEMA_VERSION
    tables: tuple[str, ...]
    held_out: bool  # constants refitted without the runs they are scored on
    rows: int
    used: int
    skipped: dict[str, int]
    sources: tuple[SourceScore, ...]
    oracle_activations: OracleScore | None = None
    oracle_peaks: OracleScore | None = None
    intervals: tuple[IntervalScore, ...] = ()
    constants: tuple[ConstantScore, ...] = ()  # only where they were refitted
    memory_constants: tuple[ChoiceScore, ...] = ()
    headlines: tuple[Headline, ...] = ()
    notes: tuple[str, ...] = ()
