"""The search over a job's candidates, in the planner's words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.candidates import Candidates
from planner.evaluate import Choice
from planner.job import Job
from planner.solver import search as proof
from planner.solver.program import Decision
from planner.tables import Tables


@dataclass(frozen=True, slots=True)
class Found:
    """A plan: one shape of some tables, what its stages do, and its integer objective."""

    table: Tables
    index: int
    decision: Decision
    objective: int

    @property
    def seconds(self) -> float:
        """The step time the program computed. [s]"""
        return self.table.seconds(self.objective)


def found_in(space: Candidates, plan: proof.Found) -> Found:
    """A plan of the search, with the tables it is from."""
    return Found(space.tables[plan.batch], plan.shape, plan.decision, plan.objective)


def fastest(job: Job, space: Candidates, time_limit: float | None = None) -> Found | None:
    """The fastest plan among some candidates; None if none fits.

    Raises
    ------
    TimeoutError
        If time ran out before a plan was found or its absence proven.
    """
    limit = job.spec.time_limit if time_limit is None else time_limit
    result = proof.search(space.batches, time_limit=limit)
    if result.best is not None:
        return found_in(space, result.best)
    if result.status == "unknown":
        raise TimeoutError(f"no plan found in {limit:g} s")
    return None


def choice_of(found: Found) -> Choice:
    """A found plan as the cost models evaluate it.

    Where the program had no choice, an offloaded optimizer is offloaded for every layer.
    """
    shapes = found.table.shapes.take(np.array([found.index]))
    names = found.table.batch.granularities
    decision = found.decision
    free = int(found.table.batch.max_offloaded[found.index]) > 0
    whole = int(shapes.offload_optimizer[0]) > 0 and not free
    return Choice(
        shapes=shapes,
        layers=decision.layers,
        granularity=tuple(
            {g: int(k) for g, k in zip(names, stage, strict=True) if k}
            for stage in decision.granularity
        ),
        offloaded=decision.layers if whole else decision.offloaded,
    )
