"""What a validation found: the JSON that ``planner validate --json`` prints."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

SCHEMA_VERSION = "1.2"


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
    skipped_rows: dict[str, tuple[str, ...]] = {}  # the same: table and line of each
    assumed: dict[str, int]  # empty columns that a default filled, rows each
    assumed_values: dict[str, dict[str, int]] = {}  # the same by the value taken, rows each
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
    when their own group has no say in it. ``shipped_*``: the interval predictions carry.
    """

    kind: str
    stack: str
    quantity: str  # time | memory
    count: int
    groups: int
    error: float  # mean absolute, predicted / measured - 1
    low: float
    high: float
    held: float
    shipped_low: float
    shipped_high: float
    shipped_held: float


class CoverageScore(Frozen):
    """Share of runs inside intervals made without their group, over several kinds of sources."""

    quantity: str  # time | memory
    few: bool  # the kinds with few runs, or the others
    kinds: int
    count: int
    held: float
    groups: int
    held_by_group: float  # mean share of a group's runs


class VerdictScore(Frozen):
    """Verdicts with the interval of memory, of a source that lists runs that did not fit."""

    source: str
    fits: int  # whole interval below the limit
    fits_ran: float | None
    tight: int
    tight_ran: float | None
    unfit: int
    unfit_ran: float | None


class StackInterval(Frozen):
    """The interval of plans on a stack, relative; without a name: of a stack nobody measured."""

    stack: str
    quantity: str  # time | memory
    kinds: tuple[str, ...]  # that speak for it
    count: int
    groups: int
    low: float
    high: float


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


class AxisErrors(Frozen):
    """Errors of the runs with one value of one axis; ``all`` is every run."""

    axis: str
    value: str
    count: int
    median: float  # signed
    mape: float
    worst: float  # signed


class AxisVerdicts(Frozen):
    """Runs with one value of one axis by what happened and what was predicted."""

    axis: str
    value: str
    count: int
    ran_fits: int
    ran_not: int  # ran, predicted not to fit
    oom_fits: int  # out of memory, predicted to fit
    oom_not: int
    failed_fits: int  # crashed or out of memory, the table does not say which
    failed_not: int


class LostGroup(Frozen):
    """A group where the run predicted fastest is not the fastest measured."""

    source: str
    group: str
    count: int
    chosen: str
    best: str
    differs: tuple[str, ...]  # axes in which the two differ
    chosen_s: float  # measured
    best_s: float  # measured
    predicted_gain: float  # by which the chosen one was predicted faster
    regret: float


class Split(Frozen):
    """What is behind one figure: errors or verdicts by axis, or the groups that lose."""

    name: str  # of a line of the accuracy table, or of a source
    metric: str
    errors: tuple[AxisErrors, ...] = ()
    verdicts: tuple[AxisVerdicts, ...] = ()
    groups: int = 0  # judged
    lost: tuple[LostGroup, ...] = ()  # those that lose, the most first
    shares: dict[str, float] = {}  # counted bytes: rows within 0.5 %, by what is counted


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
    coverage: tuple[CoverageScore, ...] = ()
    verdicts: tuple[VerdictScore, ...] = ()
    stack_intervals: tuple[StackInterval, ...] = ()
    constants: tuple[ConstantScore, ...] = ()  # only where they were refitted
    memory_constants: tuple[ChoiceScore, ...] = ()
    headlines: tuple[Headline, ...] = ()
    residuals: tuple[Split, ...] = ()  # of what is missed, and what was asked for
    notes: tuple[str, ...] = ()
