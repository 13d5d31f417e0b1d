"""The least intrusive plan that is still good enough, and the fastest on the lowest rung.

What a shape uses is ranked outside the solver: shapes are visited in lexicographic order of their
rank, and the first rank that holds a good enough plan wins. Among its shapes, passes minimise one
amount after another, each keeping what the passes before it reached, and the objective last.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.solver.amounts import Budget, Candidate, default_amounts, fastest, least, within
from planner.solver.bounds import memory_bounds, memoryless_bounds
from planner.solver.program import Amount, Batch, Decision
from planner.solver.search import Found, SearchResult, search
from planner.solver.stage_options import NEVER

BLOCK = 512  # shapes whose memory bound is computed in one numpy pass

Rank = tuple[int, ...]
Item = tuple[int, int, int]  # bound, batch, shape


@dataclass(frozen=True, slots=True)
class LadderResult:
    """The least intrusive plan within a limit.

    ``status``: *optimal* when every lower rank and every smaller amount is proven impossible,
    *feasible* when time ran out first: the plan is within the limit, a less intrusive one may
    exist. ``amounts``: name and value of each pass, in order. ``shapes``: looked at one by one.
    """

    status: str
    best: Found
    rank: Rank
    amounts: tuple[tuple[str, int], ...]
    shapes: int
    seconds: float


def ladder(
    batches: Sequence[Batch],
    best: Found,
    limit_objective: int,
    *,
    amounts: Callable[[Sequence[str]], tuple[Amount, ...]] = default_amounts,
    time_limit: float = math.inf,
    seed: int = 0,
) -> LadderResult:
    """The least intrusive plan with an objective up to a limit.

    Parameters
    ----------
    batches : sequence of Batch
    best : Found
        A plan within the limit, returned if time runs out before a less intrusive one is found.
    limit_objective : int
    amounts : callable
        From a batch's granularities to what is minimised within the winning rank, in order;
        the same names for every batch.
    time_limit : float
        [s]
    seed : int
        Of CP-SAT.

    Returns
    -------
    LadderResult

    Raises
    ------
    ValueError
        If ``best`` is not within the limit.
    """
    start = time.monotonic()
    if best.objective > limit_objective:
        raise ValueError(
            f"the plan given costs {best.objective}, above the limit {limit_objective}"
        )
    budget = Budget(start + time_limit, seed, limit_objective)
    candidates = [_candidate(batches, best.batch, best.shape, best.decision, amounts)]
    rank = _rank(batches, best.batch, best.shape)
    for here, group in _groups(batches, limit_objective):
        if budget.left <= 0 or here > rank:
            break
        known = {(best.batch, best.shape): best.decision}
        blank = [_candidate(batches, b, s, known.get((b, s)), amounts) for _, b, s in group]
        found = _candidates(blank, budget)
        if found:
            candidates, rank = found, here
            break
    budget.proven &= budget.left > 0
    for number in range(len(candidates[0].amounts)):
        candidates = least(candidates, number, budget)
    names = (amount.name for amount in candidates[0].amounts)
    reached = tuple(zip(names, budget.reached, strict=True))
    plan = fastest(candidates, budget)
    status = "optimal" if budget.proven else "feasible"
    seconds = time.monotonic() - start
    return LadderResult(status, plan, rank, reached, budget.shapes, seconds)


def strict(
    batches: Sequence[Batch], *, time_limit: float = math.inf, seed: int = 0
) -> tuple[Rank | None, SearchResult]:
    """The lowest rank with any feasible plan, and the search for the fastest plan on it.

    The result's shapes are those of that rank alone. Without any plan, the rank is None and the
    result is that of all shapes: *infeasible*, or *unknown* if time ran out.
    """
    deadline = time.monotonic() + time_limit
    for rank, group in _groups(batches, NEVER):
        parts, back = _subset(batches, group)
        result = search(parts, time_limit=deadline - time.monotonic(), seed=seed)
        if result.status == "unknown":
            return None, result
        if result.plans:
            plans = (
                replace(p, batch=back[p.batch][0], shape=back[p.batch][1][p.shape])
                for p in result.plans
            )
            return rank, replace(result, plans=tuple(plans), solves=())
    return None, search(batches, time_limit=deadline - time.monotonic(), seed=seed)


def _rank(batches: Sequence[Batch], batch: int, shape: int) -> Rank:
    return tuple(batches[batch].rank[shape].tolist())


def _groups(batches: Sequence[Batch], limit: int) -> Iterator[tuple[Rank, list[Item]]]:
    """Shapes that no bound puts above the limit, rank by rank, each rank by rising bound."""
    shapes = []
    for number, batch in enumerate(batches):
        bounds = memoryless_bounds(batch)
        for shape in np.flatnonzero((bounds <= limit) & (bounds < NEVER)).tolist():
            shapes.append((_rank(batches, number, shape), number, shape))
    shapes.sort()
    ranks = [(r, [s[1:] for s in g]) for r, g in itertools.groupby(shapes, lambda s: s[0])]
    while ranks:
        sizes = np.cumsum([len(group) for _, group in ranks])
        count = 1 + int(np.searchsorted(sizes, BLOCK))
        block, ranks = ranks[:count], ranks[count:]
        bounds_of = _memory_bounds(batches, [shape for _, group in block for shape in group])
        for rank, group in block:
            items = sorted((bounds_of[shape], *shape) for shape in group)
            kept = [item for item in items if item[0] <= limit and item[0] < NEVER]
            if kept:
                yield rank, kept


def _memory_bounds(
    batches: Sequence[Batch], shapes: list[tuple[int, int]]
) -> dict[tuple[int, int], int]:
    bounds = {}
    for number in sorted({batch for batch, _ in shapes}):
        rows = [shape for batch, shape in shapes if batch == number]
        values = memory_bounds(batches[number].take(np.array(rows)))
        bounds.update({(number, r): v for r, v in zip(rows, values.tolist(), strict=True)})
    return bounds


def _subset(
    batches: Sequence[Batch], group: list[Item]
) -> tuple[list[Batch], list[tuple[int, list[int]]]]:
    """Batches of the group's shapes only, and where each came from."""
    back = []
    for number in sorted({batch for _, batch, _ in group}):
        back.append((number, [shape for _, batch, shape in group if batch == number]))
    return [batches[number].take(np.array(rows)) for number, rows in back], back


def _candidate(
    batches: Sequence[Batch],
    number: int,
    shape: int,
    decision: Decision | None,
    amounts: Callable[[Sequence[str]], tuple[Amount, ...]],
) -> Candidate:
    batch = batches[number]
    return Candidate(number, shape, batch.program(shape), amounts(batch.granularities), decision)


def _candidates(blank: Sequence[Candidate], budget: Budget) -> list[Candidate]:
    """The shapes of one rank that hold a plan within the limit, each with one."""
    found = []
    for candidate in blank:
        budget.shapes += 1
        decision = within(candidate, budget) or candidate.decision
        if decision is not None:
            found.append(replace(candidate, decision=decision))
    return found
