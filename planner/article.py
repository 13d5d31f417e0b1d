"""Common advice by model size, and whether the plan agrees with it or beats it.

The advice is the table of recommended settings in a practical survey of GPU memory optimisation
for large models (section 8.1); what a row leaves open is chosen as well as possible.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from costmodels.numeric import Array
from costmodels.params import total_parameters
from planner.candidates import Candidates
from planner.evaluate import evaluate
from planner.job import Job
from planner.nearest import nearest
from planner.optimum import choice_of, fastest
from planner.plan import Plan, Predicted
from planner.report_rows import gib, seconds
from planner.shortfall import gpu_lacks, gpu_may_lack, host_lacks
from planner.space import Shapes

ROUNDED = 1.05  # "13B" includes 13.02e9 parameters


@dataclass(frozen=True, slots=True)
class Advice:
    """One row: models of at most ``size`` parameters, on one card or several."""

    size: float
    several: bool
    text: str
    zero_stage: int
    offload: int  # index of the tier: none, cpu, nvme
    recompute: tuple[str, ...]


ANY = ("none", "selective", "full", "every_2", "every_4")
RECOMPUTED = ("full", "every_2", "every_4")
TABLE = (
    Advice(1e9, False, "mixed precision and checkpointing", 0, 0, RECOMPUTED),
    Advice(7e9, False, "mixed precision, FlashAttention and checkpointing", 0, 0, RECOMPUTED),
    Advice(13e9, True, "ZeRO-2, mixed precision and FlashAttention", 2, 0, ANY),
    Advice(70e9, True, "ZeRO-3, CPU offload and mixed precision", 3, 1, ANY),
    Advice(np.inf, True, "ZeRO-3, NVMe offload and mixed precision", 3, 2, ANY),
)


def advice_for(job: Job) -> Advice | None:
    """The row for a job's model and number of GPUs, if the table has one."""
    size = total_parameters(job.architecture)
    several = job.cluster.gpus > 1
    rows = [row for row in TABLE if size <= row.size * ROUNDED]
    row = rows[0]
    if several and not row.several:
        return None  # the table has small models on one card only
    if not several and row.several:
        return None
    return row


_UNNEEDED = (", of which offload is not needed here", ", of which CPU offload is enough here")


def compare(job: Job, space: Candidates, plan: Plan, predicted: Predicted) -> str | None:
    """One sentence on how the plan compares with the advice; None where there is no row.

    The rows are for few cards: offload that a row names and this cluster does not need is left
    out, or done by the CPU where that is enough.
    """
    row = advice_for(job)
    if row is None or predicted.step_time_s is None:
        return None
    start = f"Common advice at this size is {row.text}"
    advised, found = _following(row, space), None
    for tier in range(row.offload + 1):  # the least offload that fits here
        lighter = replace(row, offload=tier)
        candidates = _following(lighter, space)
        found = fastest(job, candidates) if candidates.tables else None
        if found is not None:
            start += _UNNEEDED[tier] if tier < row.offload else ""
            row = lighter
            break
    if found is None:
        if not advised.tables:
            return f"{start}; no candidate here can follow it."
        return f"{start}: {_by(job, advised)}."
    _, theirs = evaluate(job, choice_of(found))
    assert theirs.step_time_s is not None
    if agrees(row, plan):
        return f"{start}: the plan agrees."
    ratio = theirs.step_time_s / predicted.step_time_s - 1
    word = "faster" if ratio >= 0 else "slower, but less intrusive"
    return (
        f"{start}: at best {seconds(theirs.step_time_s)} and {gib(theirs.peak_memory_bytes)} per"
        f" GPU; the plan is {100 * abs(ratio):.1f} % {word}."
    )


def agrees(row: Advice, plan: Plan) -> bool:
    """Whether a plan follows a row."""
    tiers = ("none", "cpu", "nvme")
    return (
        plan.tp == plan.pp == 1
        and plan.zero_stage == row.zero_stage
        and plan.offload_optimizer == tiers[row.offload]
        and set(plan.recompute_layers) <= set(row.recompute)
    )


def _following(row: Advice, space: Candidates) -> Candidates:
    return space.where(lambda c: _follows(row, c)).recomputing(row.recompute)


def _follows(row: Advice, c: Shapes) -> Array:
    return np.asarray(
        (c.tp == 1)
        & (c.pp == 1)
        & (c.zero_stage == row.zero_stage)
        & (c.offload_optimizer == row.offload)
    )


def _by(job: Job, advised: Candidates) -> str:
    """That the advice does not fit, or may not, and by what."""
    close = nearest(advised)
    if close is None:
        return "it does not fit"
    _, predicted = evaluate(job, choice_of(close.found))
    least, limit = gib(predicted.peak_memory_bytes), gib(predicted.memory_limit_bytes)
    if gpu_lacks(predicted):
        return f"it does not fit ({least} per GPU at the least, limit {limit})"
    if host_lacks(predicted):
        return "it does not fit in host RAM"
    if gpu_may_lack(predicted):
        most = gib(predicted.peak_memory_interval_bytes.high)
        return f"it may not fit (tight: {least} per GPU at the least, up to {most}, limit {limit})"
    return "no split over the stages fits"
