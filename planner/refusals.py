"""Why no candidate is valid: what no layout has, or the rules that refuse what was asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from planner.axes import Constraint
from planner.job import Job
from planner.rules import violations
from planner.space import Shapes, enumerate_shapes

SHOWN = 3


def why_none_is_valid(job: Job) -> str:
    """The reasons, most frequent first, in one line.

    Only candidates that meet the user's own demands are looked at: what rules say of others does
    not help.
    """
    batches = list(enumerate_shapes(job))
    if not any(len(shapes) for shapes in batches):
        return (
            f"no dp, tp and pp use all {job.cluster.gpus} GPUs, divide the global batch of"
            f" {job.global_batch} sequences and the {job.architecture.heads} heads"
        )
    demands = [d for d in job.spec.constraints if d.axis != "recompute"]
    absent = [str(d) for d in demands if not any(d.holds(s.axis(d.axis)).any() for s in batches)]
    layout = (
        f"dp x tp x pp must be {job.cluster.gpus} GPUs, dp x micro_batch must divide"
        f" {job.global_batch} sequences, tp must divide {job.architecture.heads} heads"
    )
    if absent:
        return f"no layout has {' or '.join(absent)}: {layout}"
    wanted = [_meeting(shapes, demands) for shapes in batches]
    if not any(len(shapes) for shapes in wanted):
        return f"no layout has {', '.join(map(str, demands))} together: {layout}"
    counts: Counter[str] = Counter()
    for shapes in wanted:
        counts.update(_refusals(job, shapes))
    reasons = "; ".join(text for text, _ in counts.most_common(SHOWN))
    asked = f" with {', '.join(map(str, demands))}" if demands else ""
    return f"no candidate{asked} is valid: {reasons}"


def _meeting(shapes: Shapes, demands: Sequence[Constraint]) -> Shapes:
    mask = np.ones(len(shapes), dtype=bool)
    for demand in demands:
        mask &= demand.holds(shapes.axis(demand.axis))
    return shapes.take(mask)


def _refusals(job: Job, shapes: Shapes) -> Counter[str]:
    """The first rule that refuses each candidate, explained for one of them."""
    counts: Counter[str] = Counter()
    alive = np.ones(len(shapes), dtype=bool)
    for rule, refused in violations(job, shapes):
        hit = np.flatnonzero(alive & refused)
        if len(hit):
            counts[f"{shapes.stack.name}: {rule.explain(job, shapes, int(hit[0]))}"] += len(hit)
            alive &= ~refused
    return counts
