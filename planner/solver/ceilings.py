r"""The best pair of ceilings on stage time and edge, by branch and bound over boxes of them.

In a box :math:`[T_a, T_b] \times [E_a, E_b]` no plan is better than
:math:`w_T T_a + w_S S(T_b, E_b) + w_E E_a`, where S is the least sum of stage times under the upper
ceilings; the path that attains S is a plan, so every box also offers an incumbent.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np

from planner.solver.program import Ints, ShapeProgram
from planner.solver.shortest_path import Path, shortest_path
from planner.solver.stage_options import NEVER, StageOptions

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Box:
    """Plans whose bottleneck and edge lie in two ranges; ``path`` is best below their ends."""

    time: Range
    edge: Range
    path: Path


@dataclass(slots=True)
class Ceilings:
    """The best path found so far, over the options of several variants one after another.

    ``best``: its objective without the fixed part; only better ones are looked for.
    """

    program: ShapeProgram
    best: int
    found: tuple[StageOptions, Path] | None = None
    created: int = 0
    heap: list[tuple[int, int, _Box]] = field(default_factory=list)

    def improve(self, options: StageOptions) -> bool:
        """Search a variant's options to the end; whether they hold a better path."""
        before = self.best
        times = np.unique(options.time)
        times, edges = times[times < NEVER], np.unique(options.edge)
        time, edge = floors(self.program, options)
        if time < NEVER:
            self._add(options, (time, int(times[-1])), (edge, int(edges[-1])))
        while self.heap and self.heap[0][0] < self.best:
            self._split(heapq.heappop(self.heap)[2], options, times, edges)
        self.heap.clear()
        return self.best < before

    def _add(self, options: StageOptions, time: Range, edge: Range) -> None:
        """A new box, and the plan it offers."""
        path = shortest_path(self.program, options, time[1], edge[1])
        if path is None:
            return
        value = objective(self.program, path.bottleneck, path.total, path.edge)
        if value < self.best:
            self.best, self.found = value, (options, path)
        self._push(_Box(time, edge, path))

    def _push(self, box: _Box) -> None:
        bound = objective(self.program, box.time[0], box.path.total, box.edge[0])
        if bound < self.best:
            heapq.heappush(self.heap, (bound, self.created, box))
            self.created += 1

    def _split(self, box: _Box, options: StageOptions, times: Ints, edges: Ints) -> None:
        """Cut a box where its bound and its path are furthest apart."""
        path = box.path
        time_gap = self.program.weight_bottleneck * (path.bottleneck - box.time[0])
        edge_gap = self.program.weight_edge * (path.edge - box.edge[0])
        if time_gap >= edge_gap:
            below, above = neighbours(times, box.time[0], path.bottleneck)
            self._add(options, (box.time[0], below), box.edge)
            self._push(_Box((above, box.time[1]), box.edge, path))
        else:
            below, above = neighbours(edges, box.edge[0], path.edge)
            self._add(options, box.time, (box.edge[0], below))
            self._push(_Box(box.time, (above, box.edge[1]), path))


def objective(program: ShapeProgram, bottleneck: int, total: int, edge: int) -> int:
    """Objective without its fixed part."""
    return (
        program.weight_bottleneck * bottleneck
        + program.weight_sum * total
        + program.weight_edge * edge
    )


def neighbours(values: Ints, low: int, high: int) -> Range:
    """Two neighbouring values with low <= first < second <= high, a quarter of the way up.

    Nearer to low, since the likely plans have nearly the lowest ceilings.

    >>> neighbours(np.array([1, 2, 3, 4, 5, 6, 7, 8, 9]), 1, 9)
    (2, 3)
    """
    first = max(int(np.searchsorted(values, low, side="right")) - 1, 0)
    last = int(np.searchsorted(values, high))
    cut = first + (last - 1 - first) // 4
    return max(int(values[cut]), low), int(values[cut + 1])


def floors(program: ShapeProgram, options: StageOptions) -> Range:
    """Ceilings on time and on edge, each alone, below which not all layers can be held."""
    units = program.layers // program.chunk
    spare = units - int(options.layers[0]) // program.chunk * program.stages
    edge = np.where(options.time < NEVER, options.edge, NEVER)
    return _floor(options.time.min(axis=2), spare), _floor(edge.min(axis=2), spare)


def _floor(least: Ints, spare: int) -> int:
    holding = np.minimum.accumulate(least[:, ::-1], axis=1)[:, ::-1]  # so many chunks or more
    floor = int(holding[:, 0].max())
    rest = np.sort(holding[:, 1:], axis=None)
    if spare > len(rest):
        return NEVER
    return floor if spare <= 0 else max(floor, int(rest[spare - 1]))
