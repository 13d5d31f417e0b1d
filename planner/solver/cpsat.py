"""Solve the program of one shape with CP-SAT.

ortools is imported only when a program is solved: importing it takes longer than most solves.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.solver.program import Amount, Decision, ShapeProgram, evaluate

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    from planner.solver.model import Variables


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a solve established.

    ``status``: *optimal*, *feasible* (time ran out with a plan), *infeasible* (under the limits
    given) or *unknown* (time ran out without one). ``value`` is what was minimised, the objective
    unless an amount was; ``bound`` is proven not to exceed its least.
    """

    status: str
    decision: Decision | None = None
    objective: int | None = None
    value: int | None = None
    bound: int | None = None
    seconds: float = 0.0


def solve_shape(
    program: ShapeProgram,
    *,
    at_most: int | None = None,
    at_least: int | None = None,
    minimise: Amount | None = None,
    limits: Sequence[tuple[Amount, int]] = (),
    hint: Decision | None = None,
    time_limit: float = math.inf,
    seed: int = 0,
) -> Outcome:
    """Minimise the objective, or an amount, of one shape.

    Parameters
    ----------
    program : ShapeProgram
    at_most, at_least : int, optional
        Cut on the objective, and a lower bound of it that the caller has proven.
    minimise : Amount, optional
        Minimise this count of layers instead of the objective.
    limits : sequence of (Amount, int)
        Amounts that must not be exceeded.
    hint : Decision, optional
        Where to start; it need not be feasible.
    time_limit : float
        [s]
    seed : int
        One worker and a fixed seed: the same program gives the same plan.

    Returns
    -------
    Outcome
    """
    start = time.monotonic()
    if program.layers % program.chunk or program.stages * program.chunk > program.layers:
        return Outcome("infeasible")
    if time_limit <= 0:
        return Outcome("unknown")
    from ortools.sat.python import cp_model

    from planner.solver.model import add_hint, add_limits, amount_of, build

    model = cp_model.CpModel()
    variables = build(model, program)
    add_limits(model, program, variables, at_most, at_least, limits)
    model.minimize(variables.objective if minimise is None else amount_of(variables, minimise))
    if hint is not None:
        add_hint(model, program, variables, hint)
    problem = model.validate()
    assert not problem, problem
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    if time_limit < math.inf:
        solver.parameters.max_time_in_seconds = time_limit
    status = solver.solve(model)
    seconds = time.monotonic() - start
    if status == cp_model.INFEASIBLE:
        return Outcome("infeasible", seconds=seconds)
    bound = _whole_bound(solver.best_objective_bound)
    bound += program.fixed if minimise is None else 0
    if status == cp_model.UNKNOWN:
        return Outcome("unknown", bound=bound, seconds=seconds)
    assert status in (cp_model.OPTIMAL, cp_model.FEASIBLE), solver.status_name(status)
    decision = _decision(solver, variables)
    costs = evaluate(program, decision)
    assert costs.feasible, costs.broken
    value = costs.objective if minimise is None else minimise.of(decision)
    proven = status == cp_model.OPTIMAL
    return Outcome(
        status="optimal" if proven else "feasible",
        decision=decision,
        objective=costs.objective,
        value=value,
        bound=value if proven else min(bound, value),
        seconds=seconds,
    )


def _whole_bound(bound: float) -> int:
    """A bound on an integer from one in floating point, which may be rounded from 2^53 on."""
    return math.floor(bound if abs(bound) < 2.0**53 else math.nextafter(bound, -math.inf))


def _decision(solver: cp_model.CpSolver, variables: Variables) -> Decision:
    return Decision(
        layers=tuple(int(solver.value(n)) for n in variables.layers),
        granularity=tuple(tuple(int(solver.value(k)) for k in s) for s in variables.counts),
        offloaded=tuple(int(solver.value(o)) for o in variables.off),
    )
