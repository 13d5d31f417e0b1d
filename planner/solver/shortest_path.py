"""The least sum of stage times that places all layers, every stage under two ceilings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.solver.program import Ints, ShapeProgram
from planner.solver.stage_options import NEVER, StageOptions


@dataclass(frozen=True, slots=True)
class Path:
    """Layers of each stage that minimise the sum of stage times under two ceilings."""

    total: int
    columns: tuple[int, ...]
    bottleneck: int
    edge: int


def shortest_path(
    program: ShapeProgram, options: StageOptions, time: int, edge: int
) -> Path | None:
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
    return Path(int(chosen.sum()), tuple(columns.tolist()), int(chosen.max()), int(edges.max()))


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
    """All stages as alike as can be, the remainder on the first ones."""
    stages, width = least.shape
    share, rest = divmod(units, stages)
    columns: Ints = share - low + (np.arange(stages) < rest)
    if columns.min() < 0 or columns.max() >= width:
        return None
    return columns if least[np.arange(stages), columns].max() < NEVER else None
