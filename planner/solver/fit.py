"""Shapes with no feasible plan for reasons that need no search."""

from __future__ import annotations

import numpy as np

from planner.solver.program import Batch, Ints, Mask
from planner.solver.stage_options import NEVER


def some_allowed(batch: Batch) -> Mask:
    """Shapes with at least one granularity left, (n,)."""
    some: Mask = np.asarray(batch.granularity_allowed.any(axis=1))
    return some


def layers_that_fit(batch: Batch) -> Ints:
    """More layers than any stage can hold in memory, however much is recomputed, (n, p)."""
    allowed = batch.granularity_allowed[:, None, None, :]
    frugal = np.where(allowed, batch.memory_granularity, NEVER).min(axis=3)
    working = np.where(allowed, batch.memory_working, NEVER).min(axis=3)
    some = some_allowed(batch)[:, None, None]
    saved = np.minimum(batch.memory_offloaded, 0)
    saved = np.where(batch.max_offloaded[:, None, None] > 0, saved, 0)
    per_layer = batch.memory_layer + saved + np.where(some, frugal, 0)
    room = batch.capacity[:, :, None] - batch.memory_const - np.where(some, working, 0)
    most = np.where(room >= 0, room // np.maximum(per_layer, 1), -1)
    # a row that shrinks with layers fits from some number of layers on, if at all
    fits = room - per_layer * batch.layers >= 0
    most = np.where(per_layer > 0, most, np.where(fits, batch.layers, -1))
    least: Ints = np.where(some, most, -1).min(axis=2, initial=batch.layers)
    return least


def even_layers(batch: Batch) -> Ints:
    """Layers of each stage under the uniform rule, (n, p)."""
    share, rest = np.divmod(batch.layers // batch.chunk, batch.stages)
    more = np.arange(batch.stages) < rest[:, None]
    return np.asarray(batch.chunk[:, None] * (share[:, None] + more))


def cannot_fit(batch: Batch) -> Mask:
    """Shapes with no feasible plan for reasons that need no search, (n,).

    Too few layers for the stages, layers that chunks do not divide, memory, host memory.
    """
    chunk = batch.chunk[:, None]
    room = layers_that_fit(batch) // chunk * chunk
    bad: Mask = (room < chunk).any(axis=1) | (room.sum(axis=1) < batch.layers)
    bad |= (batch.layers % batch.chunk != 0) | (batch.stages * batch.chunk > batch.layers)
    if batch.layers_rule == "uniform":
        bad |= (room < even_layers(batch)).any(axis=1)
    return bad | ~some_allowed(batch) | _host_cannot_fit(batch)


def _host_cannot_fit(batch: Batch) -> Mask:
    chunk = batch.chunk[:, None]
    most = batch.layers - (batch.stages - 1) * chunk
    off = np.minimum(batch.host_offloaded, 0)
    off = np.where(batch.max_offloaded[:, None] > 0, off, 0)
    per_layer = batch.host_layer + off
    least = batch.host_const + np.minimum(per_layer * chunk, per_layer * most)
    bad = np.zeros(len(batch), dtype=bool)
    for width in np.unique(batch.host_stages_per_node):
        starts = np.arange(0, batch.stages, width)
        size = np.add.reduceat(least, starts, axis=1) * batch.host_ranks[:, None]
        here = batch.host_stages_per_node == width
        bad |= here & (size > batch.host_capacity).any(axis=1)
    return bad
