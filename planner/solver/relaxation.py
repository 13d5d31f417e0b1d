"""A relaxation of one shape's program, solved exactly without a solver.

Left out: host memory shared by the stages of a node (each stage alone is held to it), the users'
bounds on sums over stages, and memory that offloading would make larger. Everything else is kept,
so where nothing of that binds, the relaxed optimum is the optimum.

Given ceilings on stage time and edge, stages only compete for layers, and the least sum of stage
times is a shortest path over them (dynamic programming). What remains is a search over the two
ceilings (``planner.solver.ceilings``), for each way to satisfy the rules that tie stages together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planner.solver.ceilings import Ceilings, objective
from planner.solver.program import Decision, Ints, ShapeProgram, evaluate
from planner.solver.shortest_path import Path
from planner.solver.stage_options import (
    NEVER,
    StageOptions,
    Variant,
    needs_of,
    number_of_options,
    stage_options,
    times_of,
    usable_counts,
)

MOST_OPTIONS = 400_000  # compositions worth enumerating: 0.1 s; beyond, CP-SAT is faster


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
        return _relax_within(program, _most_units(program, most, at_most), at_most)
    even = -(-units // program.stages)
    high = even + max(1, even // 4)
    first = Relaxed()
    while first.bound is None and first.decided and high < most:
        first = _relax_within(program, high, None)
        high = 2 * high
    if first.bound is None:
        return _relax_within(program, most, None)
    cut = first.bound - 1
    better = _relax_within(program, _most_units(program, most, cut), cut)
    if not better.decided:
        return better
    return first if better.bound is None else better


def _most_units(program: ShapeProgram, most: int, at_most: int) -> int:
    """Chunks of layers no stage can exceed without its time alone breaking the cut."""
    ceiling = _ceiling(program, at_most - program.fixed)
    per_layer = program.time_layer + _least_kind(program)
    fits = (ceiling - program.time_const) // np.maximum(per_layer * program.chunk, 1)
    return int(np.clip(np.where(per_layer > 0, fits, most), 0, most).max())


def _least_kind(program: ShapeProgram) -> Ints:
    usable = np.where(program.granularity_allowed, program.time_granularity, NEVER)
    return np.where(program.granularity_allowed.any(), usable.min(axis=1), 0)


def _ceiling(program: ShapeProgram, at_most: int) -> int:
    """What the bottleneck cannot exceed if the objective, fixed part aside, is to be at most so."""
    per_layer = program.time_layer + _least_kind(program)
    total = int(program.time_const.sum()) + int(per_layer.min()) * program.layers
    spare = at_most - program.weight_sum * total
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
    for offload in offloads:
        if program.recompute_rule == "free":
            yield Variant(None, None, offload)
        elif program.recompute_rule == "all":
            yield from (Variant(g, None, offload) for g in kinds)
        else:
            yield from _counted(program, kinds, offload)


def _counted(program: ShapeProgram, kinds: list[int], offload: str) -> Iterator[Variant]:
    """Variants of the rules that recompute the same number of layers on every stage."""
    most = program.layers // program.stages
    whole = [g for g in kinds if program.recompute_rule == "block" or g == program.plain]
    yield from (Variant(g, None, offload) for g in whole)
    if program.plain not in kinds:  # every layer is recomputed, so stages hold the same number
        yield from (Variant(g, None, offload) for g in kinds if g not in whole)
        return
    for g in program.countable:
        step = program.segments[g]
        if g in kinds:
            yield from (Variant(g, k, offload) for k in range(step, most + 1, step))


def _relax_within(program: ShapeProgram, high: int, at_most: int | None) -> Relaxed:
    """The same, when no stage holds more than ``high`` chunks of layers."""
    low = max(1, program.layers // program.chunk - (program.stages - 1) * high)
    if high < low:
        return Relaxed()
    free = program.recompute_rule == "free"
    if free and number_of_options(program, low, high) > MOST_OPTIONS:
        return Relaxed(decided=False)
    search = Ceilings(program, NEVER if at_most is None else at_most - program.fixed + 1)
    chosen: Variant | None = None
    for variant in _variants(program):
        if _least_objective(program, variant) >= search.best:
            continue
        if search.improve(
            stage_options(program, variant, low, high, _ceiling(program, search.best))
        ):
            chosen = variant
    if search.found is None or chosen is None:
        return Relaxed()
    decision = _decision(program, chosen, *search.found)
    costs = evaluate(program, decision)
    bound = search.best + program.fixed
    assert not costs.feasible or costs.objective == bound, (costs.objective, bound)
    return Relaxed(bound, decision, costs.feasible)


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
    return objective(program, mean, total, _least_edge(program))


def _decision(
    program: ShapeProgram, variant: Variant, options: StageOptions, path: Path
) -> Decision:
    """A decision with the path's layers, stage times and edge, offloading as little as it can."""
    layers, granularity, offloaded = [], [], []
    below = np.where(options.edge <= path.edge, options.time, NEVER)
    for stage, column in enumerate(path.columns):
        n = int(options.layers[column])
        time = int(below[stage, column].min())
        slots = np.flatnonzero(below[stage, column] == time)
        choices = np.unique(options.offloaded[column, slots])
        counts = usable_counts(program, variant, n)
        counts = counts[times_of(program, counts, np.array([stage]))[:, 0] == time]
        needs = needs_of(program, counts, np.array([stage]))[:, 0]
        pick = int(np.argmin(needs))
        layers.append(n)
        granularity.append(tuple(counts[pick].tolist()))
        offloaded.append(int(choices[np.searchsorted(choices, needs[pick])]))
    return Decision(tuple(layers), tuple(granularity), tuple(offloaded))
