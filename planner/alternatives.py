"""Other plans worth knowing: faster and heavier, or lighter, or smaller than the chosen one."""

from __future__ import annotations

from collections.abc import Sequence

from planner.evaluate import evaluate
from planner.job import Job
from planner.optimum import Found, choice_of
from planner.plan import Alternative, Plan
from planner.ranking import RANKED

SMALLER = 0.9  # of the chosen plan's peak: worth showing for its memory
RECOMPUTE_WEIGHT = {"none": 0, "selective": 1, "full": 2, "every_2": 3, "every_4": 4}


def alternatives(
    job: Job, chosen: Found, optimum: Found, others: Sequence[Found]
) -> tuple[Alternative, ...]:
    """At most ``top`` plans, the proven fastest first, each with what sets it apart.

    A plan that is slower, no smaller and no lighter than the chosen one is left out.
    """
    plan, predicted = evaluate(job, choice_of(chosen))
    out: list[Alternative] = []
    seen = [chosen]
    for found in (optimum, *others):
        if len(out) >= job.spec.top or any(_same(found, s) for s in seen):
            continue
        seen.append(found)
        other, cost = evaluate(job, choice_of(found))
        faster = found.seconds < chosen.seconds
        heavier = _heavier(chosen, plan, found, other)
        smaller = cost.peak_memory_bytes < SMALLER * predicted.peak_memory_bytes
        offloads = other.offload_optimizer != "none" and plan.offload_optimizer == "none"
        if not faster and heavier and (offloads or not smaller):
            continue
        ratio = 100 * abs(found.seconds / chosen.seconds - 1)
        parts = ["the proven fastest"] if _same(found, optimum) else []
        parts.append(f"{ratio:.1f} % {'faster' if faster else 'slower'}")
        parts += [f"heavier: {heavier}"] if heavier else ["lighter"]
        out.append(
            Alternative(
                plan=other,
                step_time_s=found.seconds,
                peak_memory_bytes=cost.peak_memory_bytes,
                note=", ".join(parts),
            )
        )
    return tuple(out)


def _same(a: Found, b: Found) -> bool:
    return a.table is b.table and a.index == b.index


def _heavier(chosen: Found, plan: Plan, found: Found, other: Plan) -> str:
    """The heaviest technique the other plan uses more of; empty if it is the lighter one."""
    ours, theirs = (tuple(f.table.batch.rank[f.index].tolist()) for f in (chosen, found))
    for name, a, b in zip(RANKED, ours, theirs, strict=True):
        if a != b:
            return f"more {name}" if b > a else ""
    if _recomputed(other) > _recomputed(plan):
        return "more recomputation"
    return ""


def _recomputed(plan: Plan) -> tuple[int, int]:
    """Offloaded layers, then recomputed ones by weight: the order of the ladder's passes."""
    layers = sum(s.offloaded_layers for s in plan.stages)
    return layers, sum(RECOMPUTE_WEIGHT[g] * c for g, c in plan.recompute_layers.items())
