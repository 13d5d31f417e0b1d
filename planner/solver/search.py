"""The best plan over all shapes, with a proof: best bound first, until no bound is better.

Every shape carries a lower bound that is refined only when it is the smallest left: memoryless,
then with memory, then an exact relaxation, then CP-SAT below the incumbent. When the smallest
bound left reaches the incumbent, no shape can hold a better plan.
"""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from planner.solver.bounds import memory_bounds, memoryless_bounds
from planner.solver.certificate import Counts, Found, SearchResult, Solve
from planner.solver.cpsat import solve_shape
from planner.solver.program import Batch, Decision, Ints, Mask
from planner.solver.relaxation import relax
from planner.solver.stage_options import NEVER

__all__ = ["Counts", "Found", "Progress", "SearchResult", "Solve", "search", "top"]

FIRST_BLOCK, LARGEST_BLOCK = 64, 1024  # shapes whose memory bound is computed in one numpy pass


Progress = Callable[[Counts, int | None, int | None], None]  # settled, incumbent, bound
Item = tuple[int, int, int]  # bound, batch, shape


@dataclass(slots=True)
class _State:
    batches: Sequence[Batch]
    wanted: int
    cut: int
    deadline: float
    seed: int
    waiting: Iterator[tuple[list[Item], int]]  # blocks of shapes, and the bound of what follows
    next_bound: int = NEVER
    block: list[Item] = field(default_factory=list)
    heap: list[tuple[int, int, int, int]] = field(
        default_factory=list
    )  # bound, level, batch, shape
    hints: dict[tuple[int, int], Decision] = field(default_factory=dict)
    plans: list[Found] = field(default_factory=list)
    solves: list[Solve] = field(default_factory=list)
    open_bounds: list[int] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)

    @property
    def threshold(self) -> int:
        """Only plans strictly below it are of interest."""
        if len(self.plans) < self.wanted:
            return self.cut
        return min(self.cut, self.plans[-1].objective)

    def settle(self, **more: int) -> None:
        """Add to the counts."""
        known = {name: getattr(self.counts, name) + value for name, value in more.items()}
        self.counts = replace(self.counts, **known)

    def keep(self, plan: Found) -> None:
        """Take a plan into the best ones."""
        self.plans = sorted([*self.plans, plan], key=lambda p: (p.objective, p.batch, p.shape))
        del self.plans[self.wanted :]


def search(
    batches: Sequence[Batch],
    *,
    time_limit: float = math.inf,
    cut: int | None = None,
    select: Sequence[Mask] | None = None,
    wanted: int = 1,
    progress: Progress | None = None,
    seed: int = 0,
) -> SearchResult:
    """The plan with the smallest objective over all shapes of all batches.

    Parameters
    ----------
    batches : sequence of Batch
    time_limit : float
        [s] Without one, the same input gives the same plan.
    cut : int, optional
        Only plans with an objective up to this are looked for.
    select : sequence of bool arrays, optional
        Shapes of each batch to consider.
    wanted : int
        Number of best plans, each from another shape and optimal within it.
    progress : callable, optional
        Called with the counts, the incumbent's objective and the bound, after each solve.
    seed : int
        Of CP-SAT.

    Returns
    -------
    SearchResult
    """
    start = time.monotonic()
    items, shapes, unfit = _items(batches, select)
    state = _State(
        batches=batches,
        wanted=wanted,
        cut=NEVER if cut is None else cut + 1,
        deadline=start + time_limit,
        seed=seed,
        waiting=_blocks(items),
    )
    state.settle(shapes=shapes, memory=unfit)
    _advance(state)
    while _frontier(state) < state.threshold and time.monotonic() < state.deadline:
        if state.heap and state.heap[0][0] < state.next_bound:
            _solve(state, *heapq.heappop(state.heap))
            if progress is not None:
                incumbent = state.plans[0].objective if state.plans else None
                bound = _bound(state)  # of what is left: the best plan bounds the whole too
                progress(
                    state.counts, incumbent, bound if incumbent is None else min(bound, incumbent)
                )
        else:
            _refine(state)
    return _result(state, start)


def top(
    batches: Sequence[Batch],
    count: int,
    *,
    time_limit: float = math.inf,
    cut: int | None = None,
    select: Sequence[Mask] | None = None,
    progress: Progress | None = None,
    seed: int = 0,
) -> SearchResult:
    """The ``count`` best plans, each from another shape; the rest as in ``search``."""
    return search(
        batches,
        time_limit=time_limit,
        cut=cut,
        select=select,
        wanted=count,
        progress=progress,
        seed=seed,
    )


def _items(batches: Sequence[Batch], select: Sequence[Mask] | None) -> tuple[list[Item], int, int]:
    """Selected shapes by rising bound, how many there are, and how many more cannot fit."""
    columns: list[Ints] = []
    shapes = 0
    for number, batch in enumerate(batches):
        bounds = memoryless_bounds(batch)
        chosen = np.arange(len(batch)) if select is None else np.flatnonzero(select[number])
        shapes += len(chosen)
        chosen = chosen[bounds[chosen] < NEVER]
        columns.append(np.stack([bounds[chosen], np.full(len(chosen), number), chosen]))
    table = np.concatenate(columns, axis=1) if columns else np.zeros((3, 0), dtype=np.int64)
    order = np.lexsort(table[::-1])
    items = [(int(b), int(n), int(s)) for b, n, s in table[:, order].T]
    return items, shapes, shapes - len(items)


def _blocks(items: list[Item]) -> Iterator[tuple[list[Item], int]]:
    start, size = 0, FIRST_BLOCK
    while start < len(items):
        end = start + size
        yield items[start:end], items[start][0]
        start, size = end, min(2 * size, LARGEST_BLOCK)


def _advance(state: _State) -> None:
    state.block, state.next_bound = next(state.waiting, ([], NEVER))


def _frontier(state: _State) -> int:
    """Smallest bound of the shapes still to be looked at."""
    return min(state.next_bound, state.heap[0][0] if state.heap else NEVER)


def _bound(state: _State) -> int:
    """Smallest bound of any shape not settled."""
    return min([_frontier(state), *state.open_bounds])


def _refine(state: _State) -> None:
    """Give the next block of shapes their memory bounds."""
    for number, group in itertools.groupby(sorted(state.block, key=lambda i: i[1]), lambda i: i[1]):
        shapes = np.array([shape for _, _, shape in group])
        bounds = memory_bounds(state.batches[number].take(shapes))
        for bound, shape in zip(bounds.tolist(), shapes.tolist(), strict=True):
            if bound < NEVER:
                heapq.heappush(state.heap, (bound, 1, number, shape))
            else:
                state.settle(memory=1)
    _advance(state)


def _solve(state: _State, bound: int, level: int, number: int, shape: int) -> None:
    if level == 1:
        _relax(state, bound, number, shape)
    else:
        _prove(state, bound, number, shape)


def _relax(state: _State, bound: int, number: int, shape: int) -> None:
    """Solve a shape's relaxation; where it is not the program itself, leave it to CP-SAT."""
    start = time.monotonic()
    program = state.batches[number].program(shape)
    at_most = state.threshold - 1 if state.threshold < NEVER else None
    relaxed = relax(program, at_most)
    if not relaxed.decided:
        status = "undecided"
        heapq.heappush(state.heap, (bound, 2, number, shape))
    elif relaxed.bound is None:
        status = "infeasible"
        state.settle(**{"memory" if at_most is None else "bound": 1})
    elif relaxed.exact:
        assert relaxed.decision is not None
        status = "optimal"
        state.settle(relaxation=1)
        state.keep(Found(number, shape, relaxed.decision, relaxed.bound))
    else:
        status = "bound"
        if relaxed.decision is not None:
            state.hints[number, shape] = relaxed.decision
        heapq.heappush(state.heap, (max(bound, relaxed.bound), 2, number, shape))
    seconds = time.monotonic() - start
    state.solves.append(Solve(number, shape, "relaxation", status, seconds))


def _prove(state: _State, bound: int, number: int, shape: int) -> None:
    """Solve a shape with CP-SAT under the cut."""
    outcome = solve_shape(
        state.batches[number].program(shape),
        at_most=state.threshold - 1 if state.threshold < NEVER else None,
        at_least=bound,
        hint=state.hints.pop((number, shape), None),
        time_limit=state.deadline - time.monotonic(),
        seed=state.seed,
    )
    if outcome.decision is not None and outcome.objective is not None:
        state.keep(Found(number, shape, outcome.decision, outcome.objective))
    if outcome.status == "optimal":
        state.settle(cpsat=1)
    elif outcome.status == "infeasible":
        state.settle(infeasible=1)
    else:
        state.open_bounds.append(max(bound, outcome.bound if outcome.bound is not None else bound))
    state.solves.append(Solve(number, shape, "cpsat", outcome.status, outcome.seconds))


def _result(state: _State, start: float) -> SearchResult:
    bound = _bound(state)
    proven = bound >= state.threshold
    settled = ("memory", "bound", "relaxation", "cpsat", "infeasible")
    left = state.counts.shapes - sum(getattr(state.counts, name) for name in settled)
    state.settle(**{"bound" if proven else "unsettled": left})
    gap, best = None, state.plans[0].objective if state.plans else None
    if best is None:
        status = "infeasible" if proven else "unknown"
    else:
        status = "optimal" if proven else "feasible"
        bound = best if proven else min(bound, best)
        gap = (best - bound) / max(abs(best), 1)
    return SearchResult(
        status=status,
        plans=tuple(state.plans),
        bound=None if status == "infeasible" else bound,
        gap=gap,
        counts=state.counts,
        seconds=time.monotonic() - start,
        solves=tuple(state.solves),
    )
