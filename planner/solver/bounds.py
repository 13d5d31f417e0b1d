r"""Lower bounds on the objective of whole batches of shapes.

``memoryless_bounds`` is closed form: nothing recomputed, stages balanced. ``memory_bounds`` adds
memory: the least time of each stage at each number of layers is a linear program with two
constraints (so many layers, so much memory), whose optimum mixes at most two granularities. Since
a ceiling T admits :math:`\#\{(i, n): t_i(n) \le T\}` layers, the least bottleneck is the L-th
smallest of those times, and the least sum of times takes the L smallest increments.
Both are valid for every program in the batch; NEVER marks one that has no feasible plan.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.solver.fit import cannot_fit, even_layers, layers_that_fit, some_allowed
from planner.solver.program import Batch, Ints
from planner.solver.stage_options import NEVER

Reals = NDArray[np.float64]

# Ceilings on the bottleneck, relative to the least one, between which the bound is refined.
CEILINGS = (1.0, 1.01, 1.03, 1.08, 1.2, 1.5)
NARROW = 1 - 1e-9  # covers the rounding of a product and a quotient of doubles


def _least_extra(batch: Batch) -> Ints:
    """Time per layer of the cheapest allowed granularity, (n, p)."""
    extra = np.where(batch.granularity_allowed[:, None, :], batch.time_granularity, NEVER)
    least: Ints = extra.min(axis=2)
    return np.where(some_allowed(batch)[:, None], least, 0)


def _edge_bounds(batch: Batch) -> Ints:
    """Least edge, whatever the stages hold, (n,)."""
    if not batch.edge_const.shape[2]:
        return np.zeros(len(batch), dtype=np.int64)
    chunk = batch.chunk[:, None, None]
    most = batch.layers - (batch.stages - 1) * chunk
    off = np.where(batch.max_offloaded[:, None, None] > 0, batch.edge_offloaded, 0)
    per_layer = batch.edge_layer + np.minimum(off, 0)
    rows = batch.edge_const + np.minimum(per_layer * chunk, per_layer * most)
    least: Ints = rows.max(axis=(1, 2))
    return least


def objective_of(batch: Batch, bottleneck: Ints, total: Ints, edge: Ints) -> Ints:
    """Objective of every shape; NEVER where any part is."""
    never = (bottleneck >= NEVER) | (total >= NEVER) | (edge >= NEVER)
    value = (
        batch.weight_bottleneck * np.where(never, 0, bottleneck)
        + batch.weight_sum * np.where(never, 0, total)
        + batch.weight_edge * np.where(never, 0, edge)
        + batch.fixed
    )
    return np.where(never, NEVER, value)


def memoryless_bounds(batch: Batch) -> Ints:
    """LB0: a bound on each objective that leaves memory out, NEVER where ``cannot_fit``, (n,)."""
    if not len(batch):
        return np.zeros(0, dtype=np.int64)
    bottleneck, total, edge = memoryless_parts(batch)
    return np.where(cannot_fit(batch), NEVER, objective_of(batch, bottleneck, total, edge))


def memoryless_parts(batch: Batch) -> tuple[Ints, Ints, Ints]:
    """Least bottleneck, sum of stage times and edge, each alone, memory left out. (n,) each."""
    per_layer = batch.time_layer + _least_extra(batch)
    total = batch.time_const.sum(axis=1) + per_layer.min(axis=1) * batch.layers
    chunk = batch.chunk
    mean = -(-total // batch.stages)
    most = -(-batch.layers // (batch.stages * chunk)) * chunk  # some stage holds so many
    rising = np.maximum(per_layer, 0)
    fullest = (batch.time_const + rising * most[:, None]).min(axis=1)
    one = batch.time_const + rising * chunk[:, None] + np.minimum(per_layer, 0) * batch.layers
    bottleneck = np.maximum(mean, one.max(axis=1))
    bottleneck = np.where((per_layer >= 0).all(axis=1), np.maximum(bottleneck, fullest), bottleneck)
    return bottleneck, total, _edge_bounds(batch)


def memory_bounds(batch: Batch) -> Ints:
    """LB1: a bound on each objective that counts memory, never below LB0, (n,).

    Stages near the even split are tabulated; a plan with a fuller stage is bounded by that
    stage's time alone.
    """
    base = memoryless_bounds(batch)
    keep = np.flatnonzero(base < NEVER)
    if not len(keep):
        return base
    part = batch.take(keep)
    units = part.layers // part.chunk
    even = -(-units // part.stages)
    width = int(min(units.max() - part.stages + 1, 2 * even.max() + 2))
    bound = np.full(len(part), NEVER)
    for kinds in _mixable(part):
        for offload in ("none", "all") if _all_or_nothing(part) else ("free",):
            time = stage_bounds(part, width, kinds, offload)
            edge = _edge_table(part, width, offload)
            bound = np.minimum(bound, _combine(part, time, edge))
    bound = np.minimum(bound, _outside(part, width))
    result = base.copy()
    result[keep] = np.maximum(bound, base[keep])
    return result


def _mixable(batch: Batch) -> list[tuple[int, ...]]:
    """Sets of granularities that cover what the rule lets one plan mix."""
    names = batch.granularities
    plain = names.index("none")
    single: list[tuple[int, ...]] = [(g,) for g in range(len(names))]
    pairs: list[tuple[int, ...]] = [(plain, g) for g in range(len(names)) if g != plain]
    full: list[tuple[int, ...]] = [(plain, names.index("full"))] if "full" in names else []
    every: list[tuple[int, ...]] = [tuple(range(len(names)))]
    sets = {"free": every, "same": pairs or single, "block": single + full, "all": single}
    return sets[batch.recompute_rule]


def _all_or_nothing(batch: Batch) -> bool:
    return batch.offload_rule == "all" and bool((batch.max_offloaded > 0).any())


def _outside(batch: Batch, width: int) -> Ints:
    """Bound on plans with more than ``width`` chunks on some stage."""
    bottleneck, total, edge = memoryless_parts(batch)
    n = (width + 1) * batch.chunk[:, None]
    per_layer = batch.time_layer + _least_extra(batch)
    full = batch.time_const + per_layer * n + np.minimum(per_layer, 0) * batch.layers
    full = np.where(layers_that_fit(batch) >= n, full, NEVER).min(axis=1)
    most = batch.layers - (batch.stages - 1) * batch.chunk
    full = np.where(n[:, 0] <= most, full, NEVER)
    if batch.layers_rule == "uniform":
        full = np.full_like(full, NEVER)
    return objective_of(batch, np.maximum(bottleneck, full), total, edge)


def stage_bounds(batch: Batch, width: int, kinds: tuple[int, ...], offload: str) -> Ints:
    """Least time of each stage with 1 to ``width`` chunks of layers, (n, p, width).

    ``kinds``: granularities that may be mixed. ``offload`` none, all, or free: all of it for
    memory, none of it for time.
    """
    n = (batch.chunk[:, None] * np.arange(1, width + 1))[:, None, :].astype(float)
    least = np.zeros((len(batch), batch.stages, width))
    for row in range(batch.memory_const.shape[2]):
        saved = batch.memory_offloaded[:, :, row]
        saved = {"none": 0 * saved, "all": saved, "free": np.minimum(saved, 0)}[offload]
        saved = np.where(batch.max_offloaded[:, None] > 0, saved, 0)
        room = batch.capacity - batch.memory_const[:, :, row]
        room_left = room[:, :, None] - (batch.memory_layer[:, :, row] + saved)[:, :, None] * n
        least = np.maximum(least, _mixtures(batch, row, room_left, n, kinds))
    if not batch.memory_const.shape[2]:
        least = _least_extra(batch)[:, :, None] * n
    fits = np.isfinite(least)
    whole = np.where(fits, least, 0).astype(np.int64)
    stage = batch.time_const[:, :, None] + batch.time_layer[:, :, None] * n.astype(np.int64)
    stage = np.where(fits, stage + whole, NEVER)
    if batch.layers_rule == "uniform":
        stage = np.where(n == even_layers(batch)[:, :, None], stage, NEVER)
    return stage


def _mixtures(batch: Batch, row: int, room: Reals, n: Reals, kinds: tuple[int, ...]) -> Reals:
    """Least recompute time of n layers in a row's memory, infinite if they do not fit."""
    allowed = batch.granularity_allowed
    best = np.full(room.shape, np.inf)
    for g in kinds:
        time, size, working = _coefficients(batch, row, g)
        fits = allowed[:, g, None, None] & (size * n + working <= room)
        best = np.where(fits, np.minimum(best, time * n), best)
    for g in kinds:
        time, size, working = _coefficients(batch, row, g)
        for h in kinds:
            slower, smaller, other = _coefficients(batch, row, h)
            usable = (allowed[:, g] & allowed[:, h])[:, None, None]
            usable = usable & (slower > time) & (smaller < size)
            if not usable.any():
                continue
            left = room - np.maximum(working, other)
            over = size * n - left
            ratio = np.where(usable, (slower - time) / np.maximum(size - smaller, 1), 0)
            mixed = time * n + np.ceil(ratio * over * NARROW)
            usable = usable & (over > 0) & (smaller * n <= left)
            best = np.where(usable, np.minimum(best, mixed), best)
    return best


def _coefficients(batch: Batch, row: int, g: int) -> tuple[Reals, Reals, Reals]:
    """Time, memory and working set of granularity g, (n, p, 1) each."""
    return (
        batch.time_granularity[:, :, g, None].astype(float),
        batch.memory_granularity[:, :, row, g, None].astype(float),
        batch.memory_working[:, :, row, g, None].astype(float),
    )


def _edge_table(batch: Batch, width: int, offload: str) -> Ints:
    """Least edge of each stage with 1 to ``width`` chunks of layers, (n, p, width)."""
    n = (batch.chunk[:, None] * np.arange(1, width + 1))[:, None, :]
    least = np.full((len(batch), batch.stages, width), -NEVER)
    for row in range(batch.edge_const.shape[2]):
        per_offloaded = batch.edge_offloaded[:, :, row]
        off = {"none": 0 * per_offloaded, "all": per_offloaded}.get(
            offload, np.minimum(per_offloaded, 0)
        )
        off = np.where(batch.max_offloaded[:, None] > 0, off, 0)
        slope = batch.edge_layer[:, :, row] + off
        least = np.maximum(least, batch.edge_const[:, :, row, None] + slope[:, :, None] * n)
    return least if batch.edge_const.shape[2] else np.zeros_like(least)


def _combine(batch: Batch, time: Ints, edge: Ints) -> Ints:
    """Bound on plans whose stages take one of the tabulated numbers of layers each, (n,)."""
    edge = np.where(time < NEVER, edge, NEVER)
    spare = batch.layers // batch.chunk - batch.stages
    holding = np.minimum.accumulate(time[:, :, ::-1], axis=2)[:, :, ::-1]
    least_edge = _least_ceiling(np.minimum.accumulate(edge[:, :, ::-1], axis=2)[:, :, ::-1], spare)
    floor = _least_ceiling(holding, spare)
    bound = np.full(len(batch), NEVER)
    finite = np.where(floor < NEVER, floor, 0)
    for ceiling, after in zip(CEILINGS, (*CEILINGS[1:], np.inf), strict=True):
        low = np.where(finite > 0, (finite * ceiling).astype(np.int64), finite)
        high = np.full_like(low, NEVER)
        if np.isfinite(after):
            high = np.where(finite > 0, (finite * after).astype(np.int64), NEVER)
        total = _least_total(holding, spare, high)
        here = objective_of(batch, np.where(floor < NEVER, low, NEVER), total, least_edge)
        bound = np.minimum(bound, here)
    return bound


def _least_ceiling(holding: Ints, spare: Ints) -> Ints:
    """Least T below which the stages can hold all layers, (n,)."""
    first = holding[:, :, 0].max(axis=1)
    rest = np.sort(holding[:, :, 1:].reshape(len(holding), -1), axis=1)
    rest = np.concatenate([first[:, None], rest], axis=1)
    enough = spare < rest.shape[1]
    at = np.where(enough, spare, 0)
    found = np.take_along_axis(rest, at[:, None], axis=1)[:, 0]
    return np.where(enough, np.maximum(first, found), NEVER)


def _least_total(holding: Ints, spare: Ints, ceiling: Ints) -> Ints:
    """Least sum of stage times with every stage up to its ceiling, (n,)."""
    open_ = holding <= ceiling[:, None, None]
    open_ &= holding < NEVER
    base = np.where(open_[:, :, 0], holding[:, :, 0], 0)
    steps = np.where(open_[:, :, 1:], np.diff(holding, axis=2), NEVER)
    steps = np.sort(steps.reshape(len(holding), -1), axis=1)
    width = steps.shape[1]
    taken = np.arange(width)[None, :] < spare[:, None]
    enough = open_[:, :, 0].all(axis=1) & (spare <= width)
    enough &= ~((steps >= NEVER) & taken).any(axis=1)
    total = base.sum(axis=1) + np.where(taken & (steps < NEVER), steps, 0).sum(axis=1)
    return np.where(enough, total, NEVER)
