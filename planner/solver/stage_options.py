"""Every way one pipeline stage can hold its layers, reduced to what the other stages can see.

A stage with n layers, o of them offloaded, only matters to the rest of the program through its
time and its edge. Memory is its own affair, so the fastest way to fit is found here, exactly, by
enumerating the compositions of n over the granularities.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from planner.solver.program import Ints, ShapeProgram

NEVER = (1 << 62) - 1  # no such option; two of them still fit int64
ROWS_AT_ONCE = 1 << 16  # compositions per numpy pass: keeps temporaries in cache


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to satisfy the rules that tie all stages together.

    ``granularity`` None: any composition. Otherwise ``count`` layers of each stage at that
    granularity and the rest at none, or all of them if ``count`` is None.
    ``offload``: free, none or all.
    """

    granularity: int | None = None
    count: int | None = None
    offload: str = "none"


@dataclass(frozen=True, slots=True)
class StageOptions:
    """``time[i, u, o]``: least time of stage i with ``layers[u]`` layers, ``offloaded[u, o]`` of
    them offloaded, NEVER if it does not fit. ``edge``: its edge time, same shape."""

    layers: Ints
    offloaded: Ints
    time: Ints
    edge: Ints


@lru_cache(maxsize=4096)
def number_of_compositions(total: int, segments: tuple[int, ...]) -> int:
    """Ways to write ``total`` as a sum of multiples of the segments.

    >>> number_of_compositions(4, (1, 2))
    3
    """
    ways = np.zeros(total + 1, dtype=np.int64)
    ways[0] = 1
    for segment in segments:
        for start in range(segment):
            ways[start::segment] = np.cumsum(ways[start::segment])
    return int(ways[total])


@lru_cache(maxsize=256)
def compositions(total: int, segments: tuple[int, ...]) -> NDArray[np.int16]:
    """All of them, shape (ways, len(segments)); the last part varies fastest and falls.

    >>> compositions(2, (2, 1)).tolist()
    [[0, 2], [2, 0]]
    """
    parts: list[NDArray[np.int64]] = []
    left = np.array([total])
    for segment in segments[:-1]:
        sizes = left // segment + 1
        source = np.repeat(np.arange(len(left)), sizes)
        first = np.repeat(np.cumsum(sizes) - sizes, sizes)
        part = (np.arange(len(source)) - first) * segment
        parts = [earlier[source] for earlier in parts]
        parts.append(part)
        left = left[source] - part
    table = np.stack([*parts, left], axis=1).astype(np.int16)
    whole: NDArray[np.int16] = table[left % segments[-1] == 0]
    return whole


def allowed_kinds(program: ShapeProgram) -> tuple[int, ...]:
    """Granularities a stage may use, the plain one last (it takes what the others leave)."""
    kinds = [int(g) for g in np.flatnonzero(program.granularity_allowed)]
    return tuple(sorted(kinds, key=lambda g: (g == program.plain, -program.segments[g], g)))


def number_of_options(program: ShapeProgram, low: int, high: int) -> int:
    """Compositions that ``stage_options`` would enumerate for a free variant."""
    segments = tuple(program.segments[g] for g in allowed_kinds(program))
    if not segments:
        return 0
    return sum(number_of_compositions(n * program.chunk, segments) for n in range(low, high + 1))


def counts_of(program: ShapeProgram, variant: Variant, layers: int) -> Ints:
    """Rows of k_g for a stage of that many layers, shape (ways, G)."""
    kinds = allowed_kinds(program)
    size = len(program.granularities)
    if variant.granularity is not None:
        count = layers if variant.count is None else variant.count
        row = np.zeros((1, size), dtype=np.int64)
        row[0, program.plain] = layers - count
        row[0, variant.granularity] = count
        whole = (row % np.array(program.segments) == 0).all() and count <= layers
        usable = program.granularity_allowed[row[0] > 0].all()
        return row if whole and usable else row[:0]
    if not kinds:
        return np.zeros((0, size), dtype=np.int64)
    table = compositions(layers, tuple(program.segments[g] for g in kinds))
    rows = np.zeros((len(table), size), dtype=np.int64)
    rows[:, kinds] = table
    return rows


def usable_counts(program: ShapeProgram, variant: Variant, layers: int) -> Ints:
    """The same, without rows that alone break a user's bound on a sum over stages."""
    counts = counts_of(program, variant, layers)
    for g in np.flatnonzero(program.granularity_max < layers):
        counts = counts[counts[:, g] <= program.granularity_max[g]]
    for g in np.flatnonzero(program.granularity_min > 0) if program.stages == 1 else ():
        counts = counts[counts[:, g] >= program.granularity_min[g]]
    return counts


def times_of(program: ShapeProgram, counts: Ints, stages: Ints) -> Ints:
    """Time of each composition on each stage, (ways, stages)."""
    per_layer = program.time_granularity[stages] + program.time_layer[stages, None]
    time: Ints = program.time_const[stages] + counts @ per_layer.T
    return time


def needs_of(program: ShapeProgram, counts: Ints, stages: Ints) -> Ints:
    """Least number of offloaded layers with which each composition fits each stage's memory.

    (ways, stages), NEVER where no number helps. A row that offloading makes larger is taken
    without offload, which only relaxes it. In doubles, exact here: all sizes are below 2^53.
    """
    layers, used = counts.astype(float), counts > 0
    need = np.zeros((len(counts), len(stages)))
    for row in telling_rows(program):
        size = program.memory_granularity[stages, row] + program.memory_layer[stages, row, None]
        excess = layers @ size.T.astype(float)
        excess += (program.memory_const - program.capacity[:, None])[stages, row]
        working = np.zeros_like(excess)
        for g in np.flatnonzero(program.memory_working[stages, row].any(axis=0)):
            held = program.memory_working[stages, row, g] * used[:, g, None]
            np.maximum(working, held, out=working)
        excess += working
        saved = -program.memory_offloaded[stages, row].astype(float)
        short = np.where(saved > 0, np.ceil(excess / np.maximum(saved, 1)), np.inf)
        np.maximum(need, np.where(excess > 0, short, 0), out=need)
    whole: Ints = np.where(np.isfinite(need), need, float(NEVER)).astype(np.int64)
    return whole


def telling_rows(program: ShapeProgram) -> list[int]:
    """Memory rows that no other row implies."""
    size = program.memory_granularity + program.memory_layer[:, :, None]
    parts = [program.memory_const, program.memory_offloaded]
    parts += list(np.moveaxis(size, 2, 0)) + list(np.moveaxis(program.memory_working, 2, 0))
    table = np.concatenate(parts)  # every coefficient of a row, one column a row
    kept: list[int] = []
    for row in range(table.shape[1]):
        implied = (table[:, row, None] <= table).all(axis=0)
        equal = (table[:, row, None] == table).all(axis=0)
        implied &= ~equal | (np.arange(table.shape[1]) < row)
        if not implied.any():
            kept.append(row)
    return kept


def _blocks(program: ShapeProgram, variant: Variant, layers: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Compositions of all the layer counts, a bounded number of rows at a time."""
    pending: list[Ints] = []
    columns: list[Ints] = []
    rows = 0
    for column, n in enumerate(layers.tolist()):
        counts = usable_counts(program, variant, n)
        for start in range(0, len(counts), ROWS_AT_ONCE):
            part = counts[start : start + ROWS_AT_ONCE]
            pending.append(part)
            columns.append(np.full(len(part), column))
            rows += len(part)
            if rows >= ROWS_AT_ONCE:
                yield np.concatenate(pending), np.concatenate(columns)
                pending, columns, rows = [], [], 0
    if rows:
        yield np.concatenate(pending), np.concatenate(columns)


def stage_options(
    program: ShapeProgram, variant: Variant, low: int, high: int, ceiling: int = NEVER
) -> StageOptions:
    """All options with ``low`` to ``high`` chunks of layers on a stage, up to a ceiling on time."""
    layers = np.arange(low, high + 1) * program.chunk
    most = np.minimum(layers, program.max_offloaded)
    if variant.offload == "free":
        offloaded = np.minimum(np.arange(int(most.max()) + 1), most[:, None])
    else:
        offloaded = (most if variant.offload == "all" else np.zeros_like(most))[:, None]
    stages = np.arange(program.stages)
    width = int(offloaded.max()) + 1
    least = np.full((program.stages, len(layers), width), NEVER)
    flat = least.reshape(-1)
    for counts, columns in _blocks(program, variant, layers):
        time = times_of(program, counts, stages)
        worth = (time <= ceiling).any(axis=1)
        time, columns = time[worth], columns[worth]
        need = needs_of(program, counts[worth], stages)
        fits = (need < width) & (time <= ceiling)
        where = (stages * len(layers) + columns[:, None]) * width + need
        np.minimum.at(flat, where[fits], time[fits])
    np.minimum.accumulate(least, axis=2, out=least)
    time = np.take_along_axis(
        least, np.broadcast_to(offloaded, (program.stages, *offloaded.shape)), axis=2
    )
    time = np.where(_on_host(program, layers, offloaded), time, NEVER)
    return StageOptions(layers, offloaded, time, edges_of(program, layers, offloaded))


def edges_of(program: ShapeProgram, layers: Ints, offloaded: Ints) -> Ints:
    """Edge time of every stage, shape (p, u, o)."""
    if not program.edge_const.shape[1]:
        return np.zeros((program.stages, *offloaded.shape), dtype=np.int64)
    rows = (
        program.edge_const[:, :, None, None]
        + program.edge_layer[:, :, None, None] * layers[:, None]
        + program.edge_offloaded[:, :, None, None] * offloaded
    )
    most: Ints = rows.max(axis=1)
    return most


def _on_host(program: ShapeProgram, layers: Ints, offloaded: Ints) -> NDArray[np.bool_]:
    """Whether the node's other stages, at their least, leave this one enough host memory."""
    size = (
        program.host_const[:, None, None]
        + program.host_layer[:, None, None] * layers[:, None]
        + program.host_offloaded[:, None, None] * offloaded
    )
    most = program.layers - (program.stages - 1) * program.chunk
    corners = np.array([[program.chunk, 0], [program.chunk] * 2, [most, 0], [most, most]])
    least = program.host_const + np.min(
        corners[:, :1] * program.host_layer
        + np.minimum(corners[:, 1:], program.max_offloaded) * program.host_offloaded,
        axis=0,
    )
    others = np.zeros_like(least)
    for node in program.nodes:
        inside = list(node)
        others[inside] = least[inside].sum() - least[inside]
    fits: NDArray[np.bool_] = (
        program.host_ranks * (size + others[:, None, None]) <= program.host_capacity
    )
    return fits
