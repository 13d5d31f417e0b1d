"""Which of the good plans is chosen: the priority a user gives."""

from __future__ import annotations

from dataclasses import dataclass

from planner.candidates import Candidates
from planner.job import Job
from planner.optimum import Found, found_in
from planner.solver import ladder as rungs
from planner.solver import search as proof


@dataclass(frozen=True, slots=True)
class Chosen:
    """The plan, and whether its choice is proven."""

    found: Found
    proven: bool


def choose(
    job: Job, space: Candidates, optimum: Found, epsilon: float, time_limit: float
) -> Chosen:
    """The plan a priority asks for.

    ``balanced``: the least intrusive within ``epsilon`` of the optimum. ``strict``: the fastest
    of the least intrusive that fit at all. ``fastest``: the optimum.
    """
    if job.spec.priority == "fastest":
        return Chosen(optimum, True)
    if job.spec.priority == "strict":
        _, result = rungs.strict(space.batches, time_limit=time_limit)
        if result.best is None:
            return Chosen(optimum, False)
        return Chosen(found_in(space, result.best), result.status == "optimal")
    number = next(i for i, table in enumerate(space.tables) if table is optimum.table)
    best = proof.Found(number, optimum.index, optimum.decision, optimum.objective)
    near = rungs.ladder(
        space.batches, best, int(optimum.objective * (1 + epsilon)), time_limit=time_limit
    )
    return Chosen(found_in(space, near.best), near.status == "optimal")
