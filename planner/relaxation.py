r"""A relaxation of one shape's program, solved exactly without a solver.

Left out: host memory shared by the stages of a node (each stage alone is held to it), the users'
bounds on sums over stages, and memory that offloading would make larger. Everything else is kept,
so where nothing of that binds, the relaxed optimum is the optimum.

Given ceilings T and E, stages only compete for layers, and the least sum of stage times is a
shortest path over them (dynamic programming). What remains is a search over the two ceilings: in
a box :math:`[T_a, T_b] \times [E_a, E_b]` no plan is better than
:math:`w_T T_a + w_S S(T_b, E_b) + w_E E_a`, and boxes are split, best bound first.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planner.program import Decision, Ints, ShapeProgram, evaluate
from planner.stage_options import (
    NEVER,
    StageOptions,
    Variant,
    number_of_options,
    stage_options,
    times_and_needs,
    usable_counts,
)

MOST_OPTIONS = 3_000_000  # compositions worth enumerating: about a second; beyond, CP-SAT is faster


@dataclass(frozen=True, slots=True)
class Relaxed:
    """``bound``: the relaxed optimum, None if nothing is below the cut. ``decision`` attains it.

    ``exact``: the decision is feasible in the program itself, hence optimal. ``decided`` False:
    too many options to enumerate, nothing was established.
    """

    bound: int | None = None
    decision: Decision | None = None
    exact: bool = False
    decided: bool = True


@dataclass(frozen=True, slots=True)
class _Path:
    """Layers of each stage that minimise the sum of stage times under two ceilings."""

    total: int
    columns: tuple[int, ...]
    bottleneck: int
    edge: int


@dataclass(order=True, slots=True)
class _Box:
    """Plans whose bottleneck and edge lie in [low, high]; compared by their bound."""

    bound: int
    order: int
    path: _Path
    variant: _VariantOptions
    time: tuple[int, int]
    edge: tuple[int, int]


@dataclass(frozen=True, slots=True)
class _VariantOptions:
    variant: Variant
    options: StageOptions
    times: Ints  # distinct stage times, rising
    edges: Ints


def relax(program: ShapeProgram, at_most: int | None = None) -> Relaxed:
    """The relaxed optimum of a shape, if it does not exceed ``at_most``.

    Parameters
    ----------
    program : ShapeProgram
    at_most : int, optional
        Only plans with an objective up to this matter. Without it, plans whose stages all hold
        near-equal numbers of layers are looked at first, to obtain one.

    Returns
    -------
    Relaxed
    """
    if program.layers % program.chunk or program.stages * program.chunk > program.layers:
        return Relaxed()
    units = program.layers // program.chunk
    most = units - program.stages + 1
    if at_most is not None:
        return _relax_within(program, 1, _most_units(program, most, at_most), at_most)
    even = -(-units // program.stages)
    high = even + max(1, even // 4)
    first = Relaxed()
    while first.bound is None and first.decided and high < most:
        low = max(1, units - (program.stages - 1) * high)
        first = _relax_within(program, low, high, None)
        high = 2 * high
    if first.bound is None:
        return _relax_within(program, 1, most, None)
    better = _relax_within(program, 1, _most_units(program, most, first.bound - 1), first.bound - 1)
    if not better.decided:
        return better
    return first if better.bound is None else better


def _most_units(program: ShapeProgram, most: int, at_most: int) -> int:
    """Chunks of layers no stage can exceed without its time alone breaking the cut."""
    ceiling = _ceiling(program, at_most)
    per_layer = program.time_layer + _least_kind(program)
    fits = (ceiling - program.time_const) // np.maximum(per_layer * program.chunk, 1)
    return int(np.clip(np.where(per_layer > 0, fits, most), 0, most).max())


def _least_kind(program: ShapeProgram) -> Ints:
    usable = np.where(program.granularity_allowed, program.time_granularity, NEVER)
    return np.where(program.granularity_allowed.any(), usable.min(axis=1), 0)


def _ceiling(program: ShapeProgram, at_most: int) -> int:
    """What the bottleneck cannot exceed under the cut."""
    per_layer = program.time_layer + _least_kind(program)
    total = int(program.time_const.sum()) + int(per_layer.min()) * program.layers
    spare = at_most - program.fixed - program.weight_sum * total
    spare -= program.weight_edge * _least_edge(program)
    if not program.weight_bottleneck:
        return NEVER if spare >= 0 else -NEVER
    return spare // program.weight_bottleneck


def _least_edge(program: ShapeProgram) -> int:
    if not program.edge_const.size:
        return 0
    least = np.minimum(program.edge_layer, 0) + np.minimum(program.edge_offloaded, 0)
    return int((program.edge_const + least * program.layers).max())


def _variants(program: ShapeProgram) -> Iterator[Variant]:
    """All ways to satisfy the rules on recompute and offload, cheapest recompute first."""
    offloads = ["none"]
    if program.max_offloaded:
        offloads = ["free"] if program.offload_rule == "free" else ["none", "all"]
    kinds = [int(g) for g in np.flatnonzero(program.granularity_allowed)]
    most = program.layers // program.stages
    for offload in offloads:
        if program.recompute_rule == "free":
            yield Variant(None, None, offload)
        elif program.recompute_rule == "all":
            yield from (Variant(g, None, offload) for g in kinds)
        else:
            yield from _same(program, kinds, most, offload)


def _same(program: ShapeProgram, kinds: list[int], most: int, offload: str) -> Iterator[Variant]:
    plain = program.plain
    if plain in kinds:
        yield Variant(plain, None, offload)
        for g in kinds:
            if g != plain:
                step = program.segments[g]
                yield from (Variant(g, k, offload) for k in range(step, most + 1, step))
    elif program.layers % program.stages == 0:
        yield from (Variant(g, None, offload) for g in kinds)


def _relax_within(program: ShapeProgram, low: int, high: int, at_most: int | None) -> Relaxed:
    """The same, when every stage holds ``low`` to ``high`` chunks of layers."""
    if high < low:
        return Relaxed()
    free = program.recompute_rule == "free"
    if free and number_of_options(program, low, high) > MOST_OPTIONS:
        return Relaxed(decided=False)
    best = NEVER if at_most is None else at_most - program.fixed + 1
    found: tuple[_VariantOptions, _Path] | None = None
    heap: list[_Box] = []
    order = 0
    for variant in _variants(program):
        if _least_objective(program, variant) >= best:
            continue
        table = _variant_options(program, variant, low, high)
        if table is None:
            continue
        for box in _first_box(program, table, order):
            heapq.heappush(heap, box)
            order += 1
            best, found = _improve(program, box, best, found)
        while heap and heap[0].bound < best:
            for box in _split(program, heapq.heappop(heap), order):
                order += 1
                best, found = _improve(program, box, best, found)
                if box.bound < best:
                    heapq.heappush(heap, box)
    if found is None:
        return Relaxed()
    decision = _decision(program, *found)
    costs = evaluate(program, decision)
    bound = best + program.fixed
    assert not costs.feasible or costs.objective == bound, (costs.objective, bound)
    return Relaxed(bound, decision, costs.feasible)


def _improve(
    program: ShapeProgram, box: _Box, best: int, found: tuple[_VariantOptions, _Path] | None
) -> tuple[int, tuple[_VariantOptions, _Path] | None]:
    path = box.path
    value = _objective(program, path.bottleneck, path.total, path.edge)
    return (value, (box.variant, path)) if value < best else (best, found)


def _objective(program: ShapeProgram, bottleneck: int, total: int, edge: int) -> int:
    return (
        program.weight_bottleneck * bottleneck
        + program.weight_sum * total
        + program.weight_edge * edge
    )


def _least_objective(program: ShapeProgram, variant: Variant) -> int:
    """A bound for a variant from its own recompute, memory and balance left out."""
    per_layer = program.time_layer.astype(object)
    extra = program.time_const.astype(object)
    if variant.granularity is None:
        per_layer = per_layer + _least_kind(program)
    elif variant.count is None:
        per_layer = per_layer + program.time_granularity[:, variant.granularity]
    else:
        plain = program.time_granularity[:, program.plain]
        per_layer = per_layer + plain
        more = program.time_granularity[:, variant.granularity] - plain
        extra = extra + variant.count * more
    total = int(extra.sum()) + int(per_layer.min()) * program.layers
    mean = -(-total // program.stages)
    return _objective(program, mean, total, _least_edge(program))


def _variant_options(
    program: ShapeProgram, variant: Variant, low: int, high: int
) -> _VariantOptions | None:
    options = stage_options(program, variant, low, high)
    times = np.unique(options.time)
    times = times[times < NEVER]
    if not len(times):
        return None
    return _VariantOptions(variant, options, times, np.unique(options.edge))


def _first_box(program: ShapeProgram, table: _VariantOptions, order: int) -> Iterator[_Box]:
    """The box of all plans, its lower corner raised by counting how many layers fit below."""
    units = program.layers // program.chunk
    low = int(table.options.layers[0]) // program.chunk
    time = _floor(table.options.time.min(axis=2), low, units)
    edge = _floor(
        np.where(table.options.time < NEVER, table.options.edge, NEVER).min(axis=2), low, units
    )
    if time < NEVER:
        bounds = (time, int(table.times[-1])), (edge, int(table.edges[-1]))
        yield from _box(program, table, order, *bounds)


def _floor(least: Ints, low: int, units: int) -> int:
    """Least ceiling below which all stages together can hold all layers."""
    holding = np.minimum.accumulate(least[:, ::-1], axis=1)[:, ::-1]  # holding u chunks or more
    spare = units - low * len(least)
    floor = holding[:, 0].max()
    rest = np.sort(holding[:, 1:], axis=None)
    if spare > len(rest):
        return NEVER
    return int(floor if spare <= 0 else max(floor, rest[spare - 1]))


def _box(
    program: ShapeProgram,
    table: _VariantOptions,
    order: int,
    time: tuple[int, int],
    edge: tuple[int, int],
) -> Iterator[_Box]:
    path = _shortest(program, table.options, time[1], edge[1])
    if path is not None:
        yield _Box(
            _objective(program, time[0], path.total, edge[0]), order, path, table, time, edge
        )


def _split(program: ShapeProgram, box: _Box, order: int) -> Iterator[_Box]:
    """Cut a box where its bound and its path are furthest apart."""
    path, table = box.path, box.variant
    time_gap = program.weight_bottleneck * (path.bottleneck - box.time[0])
    edge_gap = program.weight_edge * (path.edge - box.edge[0])
    if time_gap >= edge_gap:
        middle, after = _middle(table.times, box.time[0], path.bottleneck)
        yield from _box(program, table, order, (box.time[0], middle), box.edge)
        time, edge = (after, box.time[1]), box.edge
    else:
        middle, after = _middle(table.edges, box.edge[0], path.edge)
        yield from _box(program, table, order, box.time, (box.edge[0], middle))
        time, edge = box.time, (after, box.edge[1])
    bound = _objective(program, time[0], path.total, edge[0])
    yield _Box(bound, order + 1, path, table, time, edge)


def _middle(values: Ints, low: int, high: int) -> tuple[int, int]:
    """Two neighbouring values with low <= first < second <= high, nearer to low.

    Plans near the lowest ceiling are the likely ones, so the cut is at a quarter.
    """
    first = int(np.searchsorted(values, low, side="right")) - 1
    last = int(np.searchsorted(values, high))
    cut = max(first, 0) + (last - 1 - max(first, 0)) // 4
    return max(int(values[cut]), low), int(values[cut + 1])


def _shortest(program: ShapeProgram, options: StageOptions, time: int, edge: int) -> _Path | None:
    """Layers of each stage with the least sum of stage times under both ceilings."""
    below = np.where(options.edge <= edge, options.time, NEVER)
    least = below.min(axis=2)
    least = np.where(least <= time, least, NEVER)
    low = int(options.layers[0]) // program.chunk
    columns = {"free": _free, "edges": _edges, "uniform": _uniform}[
        "free" if program.layers_rule == "edges" and program.stages <= 2 else program.layers_rule
    ](least, low, program.layers // program.chunk)
    if columns is None:
        return None
    stages = np.arange(program.stages)
    chosen = least[stages, columns]
    here = below[stages, columns] == chosen[:, None]
    edges = np.where(here, options.edge[stages, columns], NEVER).min(axis=1)
    return _Path(int(chosen.sum()), tuple(columns.tolist()), int(chosen.max()), int(edges.max()))


def _free(least: Ints, low: int, units: int) -> Ints | None:
    """Dynamic programming over stages; ``reach[l]``: least sum with l chunks placed so far."""
    stages, width = least.shape
    spare = units - low * stages
    if spare < 0:
        return None
    padded = np.full(width - 1 + spare + 1, NEVER)
    padded[width - 1] = 0
    tables = [padded]
    windows = np.lib.stride_tricks.sliding_window_view
    for stage in range(stages):
        sums = windows(tables[-1], width) + least[stage, ::-1]
        padded = np.full_like(padded, NEVER)
        np.minimum(sums.min(axis=1), NEVER, out=padded[width - 1 :])
        tables.append(padded)
    if tables[-1][-1] >= NEVER:
        return None
    columns = np.zeros(stages, dtype=np.int64)
    left = spare
    for stage in reversed(range(stages)):
        window = tables[stage][left : left + width] + least[stage, ::-1]
        columns[stage] = width - 1 - int(np.argmin(window))
        left -= int(columns[stage])
    return columns


def _edges(least: Ints, low: int, units: int) -> Ints | None:
    """All stages but the first and the last alike."""
    stages, width = least.shape
    best, columns = NEVER, None
    for middle in range(width):
        inner = least[1:-1, middle]
        left = units - low * stages - middle * (stages - 2)
        if inner.max() >= NEVER or left < 0 or left > 2 * (width - 1):
            continue
        first = np.arange(max(0, left - width + 1), min(left, width - 1) + 1)
        sums = least[0, first] + least[-1, left - first]
        pick = int(np.argmin(sums))
        total = int(inner.sum()) + int(sums[pick])
        if sums[pick] < NEVER and total < best:
            best = total
            columns = np.full(stages, middle)
            columns[0], columns[-1] = first[pick], left - first[pick]
    return columns


def _uniform(least: Ints, low: int, units: int) -> Ints | None:
    """All stages alike."""
    stages, width = least.shape
    column = units // stages - low
    if units % stages or not 0 <= column < width or least[:, column].max() >= NEVER:
        return None
    return np.full(stages, column)


def _decision(program: ShapeProgram, table: _VariantOptions, path: _Path) -> Decision:
    """A decision with the path's layers, stage times and edge, offloading as little as it can."""
    layers, granularity, offloaded = [], [], []
    options = table.options
    below = np.where(options.edge <= path.edge, options.time, NEVER)
    for stage, column in enumerate(path.columns):
        n = int(options.layers[column])
        time = int(below[stage, column].min())
        slots = np.flatnonzero(below[stage, column] == time)
        choices = np.unique(options.offloaded[column, slots])
        counts = usable_counts(program, table.variant, n)
        times, needs = times_and_needs(program, counts, np.array([stage]))
        needs = np.where(times[:, 0] == time, needs[:, 0], NEVER)
        pick = int(np.argmin(needs))
        layers.append(n)
        granularity.append(tuple(counts[pick].tolist()))
        offloaded.append(int(choices[np.searchsorted(choices, needs[pick])]))
    return Decision(tuple(layers), tuple(granularity), tuple(offloaded))
