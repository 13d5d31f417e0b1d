"""Validity as data: the one list that prunes the search, checks, and explains an empty space.

A rule sees candidates as arrays and answers with a mask.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from costmodels.numeric import Array
from planner.job import Job
from planner.rules.degrees import DEGREES
from planner.rules.rule import Rule
from planner.rules.sharding import SHARDING
from planner.rules.software import SOFTWARE, through_accelerate
from planner.space import Shapes

RULES: tuple[Rule, ...] = (*DEGREES, *SOFTWARE, *SHARDING)


def violations(job: Job, shapes: Shapes) -> list[tuple[Rule, Array]]:
    """Each rule that binds these candidates, with the mask of those it refuses."""
    return [
        (rule, ~np.asarray(rule.holds(job, shapes), dtype=bool))
        for rule in RULES
        if rule.applies(shapes.stack.name)
    ]


def prune(job: Job, shapes: Shapes, waived: tuple[str, ...] = ()) -> tuple[Shapes, dict[str, int]]:
    """The candidates no rule refuses, and how many each rule was the first to remove."""
    alive = np.ones(len(shapes), dtype=bool)
    removed: dict[str, int] = {}
    for rule, refused in violations(job, shapes):
        count = int(np.count_nonzero(alive & refused))
        if count and rule.name not in waived:
            removed[rule.name] = count
            alive &= ~refused
    for demand in job.spec.constraints:
        if demand.axis == "recompute":
            continue  # decided inside the program
        refused = ~demand.holds(shapes.axis(demand.axis))
        count = int(np.count_nonzero(alive & refused))
        if count:
            removed[str(demand)] = removed.get(str(demand), 0) + count
            alive &= ~refused
    return shapes.take(alive), removed


def granularities_allowed(job: Job, shapes: Shapes, names: Sequence[str]) -> Array:
    """Checkpoint granularities the user and the stack accept for shapes of one pp, (G,)."""
    allowed = job.spec.constraint("recompute").holds(np.asarray(names))
    pipelined = shapes.stack.expresses.recompute_pipelined
    if pipelined is not None and int(shapes.pp[0]) > 1:
        allowed &= np.isin(names, pipelined)
    if through_accelerate(job, shapes):
        allowed &= np.isin(names, ("none", "full"))  # fsdp_activation_checkpointing: all or none
    return allowed


def first_violation(job: Job, shapes: Shapes) -> str | None:
    """The first rule a single candidate breaks, explained; None if it breaks none."""
    for rule, refused in violations(job, shapes):
        if bool(refused[0]):
            return f"{rule.explain(job, shapes, 0)} [{rule.name}; {rule.source}]"
    return None
