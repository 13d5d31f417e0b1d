"""Passes over the shapes of one rank: each minimises an amount and keeps what it reached.

An amount that can be avoided altogether is found by the exact relaxation with its variables
removed; only where some is needed does CP-SAT minimise it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from planner.cpsat import solve_shape
from planner.program import Amount, Decision, ShapeProgram, evaluate
from planner.relaxation import relax
from planner.search import Found

ANYTHING = Amount("anything")  # minimising it stops at the first plan
Limits = tuple[tuple[Amount, int], ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A shape with a plan within all limits so far."""

    batch: int
    shape: int
    program: ShapeProgram
    decision: Decision


@dataclass(slots=True)
class Budget:
    """Time left, the limit on the objective and on amounts, and whether all is proven so far."""

    deadline: float
    seed: int
    limit: int
    proven: bool = True
    shapes: int = 0
    limits: Limits = field(default=())

    @property
    def left(self) -> float:
        """Seconds left."""
        return self.deadline - time.monotonic()

    def allows(self, decision: Decision) -> bool:
        """Whether a decision keeps to the limits on amounts."""
        return all(amount.of(decision) <= most for amount, most in self.limits)


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


def within(program: ShapeProgram, budget: Budget) -> Decision | None:
    """A plan within all limits; None if there is none or, then unproven, no time to find one."""
    return _solve(program, budget.limit, ANYTHING, budget)


def _solve(
    program: ShapeProgram, at_most: int, minimise: Amount | None, budget: Budget
) -> Decision | None:
    """A plan with the least objective (or, if it is found sooner, any plan) within the limits."""
    if budget.left <= 0:
        budget.proven = False
        return None
    relaxed = relax(program, at_most)
    if relaxed.decided and relaxed.bound is None:
        return None
    if relaxed.exact and relaxed.decision is not None and budget.allows(relaxed.decision):
        return relaxed.decision
    outcome = solve_shape(
        program,
        at_most=at_most,
        at_least=relaxed.bound,
        minimise=minimise,
        limits=budget.limits,
        hint=relaxed.decision,
        time_limit=budget.left,
        seed=budget.seed,
    )
    budget.proven &= outcome.status in ("optimal", "infeasible")
    return outcome.decision


def least(
    candidates: list[Candidate], amount: Amount, budget: Budget
) -> tuple[list[Candidate], int]:
    """The candidates that reach the least amount, with decisions that do, and that amount."""
    without = []
    for candidate in candidates:
        program = _without(candidate.program, amount)
        decision = candidate.decision
        if amount.of(decision):
            decision = within(program, budget) or decision
        if not amount.of(decision):
            without.append(replace(candidate, program=program, decision=decision))
    if without:
        return without, 0
    least = min(amount.of(c.decision) for c in candidates)
    survivors: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda c: amount.of(c.decision)):
        outcome = solve_shape(
            candidate.program,
            at_most=budget.limit,
            minimise=amount,
            limits=(*budget.limits, (amount, least)),
            hint=candidate.decision,
            time_limit=budget.left,
            seed=budget.seed,
        )
        budget.proven &= outcome.status in ("optimal", "infeasible")
        decision = outcome.decision or candidate.decision
        value = amount.of(decision)
        if value < least:
            least, survivors = value, []
        if value == least and outcome.status != "infeasible":
            survivors.append(replace(candidate, decision=decision))
    budget.limits = (*budget.limits, (amount, least))
    return survivors, least


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
        costs = evaluate(c.program, c.decision)
        assert costs.feasible, costs.broken
        plans.append(Found(c.batch, c.shape, c.decision, costs.objective))
    best = min(plans, key=lambda plan: plan.objective)
    for c in candidates:
        decision = _solve(c.program, best.objective - 1, None, budget)
        if decision is not None:
            value = evaluate(c.program, decision).objective
            best = Found(c.batch, c.shape, decision, value)
    return best
