"""What a search answers: plans, and how every shape was settled."""

from __future__ import annotations

from dataclasses import dataclass

from planner.solver.program import Decision


@dataclass(frozen=True, slots=True)
class Found:
    """A plan: shape ``shape`` of batch ``batch``, what its stages do, and its objective."""

    batch: int
    shape: int
    decision: Decision
    objective: int


@dataclass(frozen=True, slots=True)
class Counts:
    """How each shape was settled; with nothing ``unsettled`` they add up to ``shapes``.

    ``memory``: cannot fit, whatever is decided. ``bound``: a bound reaches the incumbent.
    ``relaxation``: solved to optimality without CP-SAT. ``cpsat``: by CP-SAT. ``infeasible``:
    CP-SAT proved that no plan lies below the cut.
    """

    shapes: int = 0
    memory: int = 0
    bound: int = 0
    relaxation: int = 0
    cpsat: int = 0
    infeasible: int = 0
    unsettled: int = 0


@dataclass(frozen=True, slots=True)
class Solve:
    """One attempt at a shape: ``method`` relaxation or cpsat, its outcome and time [s]."""

    batch: int
    shape: int
    method: str
    status: str
    seconds: float


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The certificate of a search.

    ``status``: *optimal* (proven), *infeasible* (proven: no plan at or below the cut), *feasible*
    or *unknown* (time ran out with or without a plan). ``bound``: no plan has a smaller objective;
    None when infeasible. ``gap``: (objective - bound) / objective. ``plans``: best first, each
    from another shape; one unless several were asked for.
    """

    status: str
    plans: tuple[Found, ...]
    bound: int | None
    gap: float | None
    counts: Counts
    seconds: float
    solves: tuple[Solve, ...] = ()

    @property
    def best(self) -> Found | None:
        """The plan with the smallest objective."""
        return self.plans[0] if self.plans else None
