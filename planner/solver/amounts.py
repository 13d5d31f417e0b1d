"""Passes over the shapes of one rank: each minimises an amount and keeps what it reached.

An amount that can be avoided altogether is found by the exact relaxation with its variables
removed; only where some is needed does CP-SAT minimise it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.solver.cpsat import solve_shape
from planner.solver.program import Amount, Decision, ShapeProgram, evaluate
from planner.solver.relaxation import relax
from planner.solver.search import Found

ANYTHING = Amount("anything")  # minimising it stops at the first plan


@dataclass(frozen=True, slots=True)
class Candidate:
    """A shape, and a plan of it within all limits so far once one is found.

    ``amounts``: what the passes minimise, in its own granularities.
    """

    batch: int
    shape: int
    program: ShapeProgram
    amounts: tuple[Amount, ...]
    decision: Decision | None = None

    @property
    def plan(self) -> Decision:
        """The decision, where one is known."""
        assert self.decision is not None
        return self.decision


@dataclass(slots=True)
class Budget:
    """Time left, the limit on the objective, and what the passes so far have reached.

    ``reached``: the value of each pass, in order. ``proven``: all answers so far are proofs.
    """

    deadline: float
    seed: int
    limit: int
    proven: bool = True
    shapes: int = 0
    reached: tuple[int, ...] = ()

    @property
    def left(self) -> float:
        """Seconds left."""
        return self.deadline - time.monotonic()

    def limits(self, candidate: Candidate) -> tuple[tuple[Amount, int], ...]:
        """The amounts a candidate's plan must not exceed."""
        return tuple(zip(candidate.amounts, self.reached, strict=False))


def default_amounts(granularities: Sequence[str]) -> tuple[Amount, ...]:
    """Offloaded layers; layers recomputed in full, longer segments weighing more; selective ones.

    >>> default_amounts(("none", "selective", "full", "every_2"))[1].granularity
    (0, 0, 1, 2)
    """
    light = ("none", "selective")
    heavy = [name for name in granularities if name not in light]
    weights = tuple(0 if name in light else 1 + heavy.index(name) for name in granularities)
    selective = tuple(int(name == "selective") for name in granularities)
    return (
        Amount("offloaded", offloaded=1),
        Amount("full", granularity=weights),
        Amount("selective", granularity=selective),
    )


def within(candidate: Candidate, budget: Budget) -> Decision | None:
    """A plan within all limits; None if there is none or, then unproven, no time to find one."""
    return _solve(candidate, budget.limit, ANYTHING, budget)


def _solve(
    candidate: Candidate, at_most: int, minimise: Amount | None, budget: Budget
) -> Decision | None:
    """A plan with the least objective (or, if it is found sooner, any plan) within the limits."""
    if budget.left <= 0:
        budget.proven = False
        return None
    relaxed = relax(candidate.program, at_most)
    if relaxed.decided and relaxed.bound is None:
        return None
    decision, limits = relaxed.decision, budget.limits(candidate)
    if decision is not None and relaxed.exact and _keeps(decision, limits):
        return decision
    outcome = solve_shape(
        candidate.program,
        at_most=at_most,
        at_least=relaxed.bound,
        minimise=minimise,
        limits=limits,
        hint=decision,
        time_limit=budget.left,
        seed=budget.seed,
    )
    budget.proven &= outcome.status in ("optimal", "infeasible")
    return outcome.decision


def _keeps(decision: Decision, limits: Sequence[tuple[Amount, int]]) -> bool:
    return all(amount.of(decision) <= most for amount, most in limits)


def least(candidates: Sequence[Candidate], number: int, budget: Budget) -> list[Candidate]:
    """The candidates that reach the least of an amount, each with a decision that does."""
    without = [_avoid(candidate, candidate.amounts[number], budget) for candidate in candidates]
    survivors = [candidate for candidate in without if candidate is not None]
    value = 0
    if not survivors:
        survivors, value = _minimise(candidates, number, budget)
    budget.reached = (*budget.reached, value)
    return survivors


def _avoid(candidate: Candidate, amount: Amount, budget: Budget) -> Candidate | None:
    """The candidate with the amount ruled out, if it has a plan then."""
    free = replace(candidate, program=_without(candidate.program, amount))
    decision = within(free, budget) if amount.of(free.plan) else free.decision
    return None if decision is None else replace(free, decision=decision)


def _minimise(
    candidates: Sequence[Candidate], number: int, budget: Budget
) -> tuple[list[Candidate], int]:
    """The candidates with the least amount, and that least, by CP-SAT."""
    ordered = sorted(candidates, key=lambda c: c.amounts[number].of(c.plan))
    value = ordered[0].amounts[number].of(ordered[0].plan)
    survivors: list[Candidate] = []
    for candidate in ordered:
        amount = candidate.amounts[number]
        outcome = solve_shape(
            candidate.program,
            at_most=budget.limit,
            minimise=amount,
            limits=(*budget.limits(candidate), (amount, value)),
            hint=candidate.decision,
            time_limit=budget.left,
            seed=budget.seed,
        )
        budget.proven &= outcome.status in ("optimal", "infeasible")
        decision = outcome.decision or candidate.plan
        here = amount.of(decision)
        if here < value:
            value, survivors = here, []
        if here == value and outcome.status != "infeasible":
            survivors.append(replace(candidate, decision=decision))
    return survivors, value


def _without(program: ShapeProgram, amount: Amount) -> ShapeProgram:
    """The program with none of that amount."""
    weights = np.zeros(len(program.granularities), dtype=np.int64)
    weights[: len(amount.granularity)] = amount.granularity
    return replace(
        program,
        granularity_allowed=program.granularity_allowed & (weights == 0),
        max_offloaded=0 if amount.offloaded else program.max_offloaded,
    )


def fastest(candidates: Sequence[Candidate], budget: Budget) -> Found:
    """The plan with the smallest objective within the amounts reached."""
    plans = []
    for c in candidates:
        costs = evaluate(c.program, c.plan)
        assert costs.feasible, costs.broken
        plans.append(Found(c.batch, c.shape, c.plan, costs.objective))
    best = min(plans, key=lambda plan: plan.objective)
    for c in candidates:
        decision = _solve(c, best.objective - 1, None, budget)
        if decision is not None:
            value = evaluate(c.program, decision).objective
            best = Found(c.batch, c.shape, decision, value)
    return best
