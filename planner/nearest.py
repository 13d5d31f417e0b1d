"""How far from fitting: the plan that comes nearest when none fits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costmodels.step import even_layers
from planner.candidates import Candidates
from planner.optimum import Found
from planner.solver.numbers import Ints
from planner.solver.program import Decision
from planner.tables import KIB, Tables, node_sums


@dataclass(frozen=True, slots=True)
class Nearest:
    """A plan and by how much it exceeds what it may use; negative where it fits. [byte]"""

    table: Tables
    index: int
    decision: Decision
    short_by: float
    host_short_by: float

    @property
    def found(self) -> Found:
        """The plan, as a search returns one; it has no objective."""
        return Found(self.table, self.index, self.decision, 0)


def nearest(candidates: Candidates) -> Nearest | None:
    """The even plan with the smallest excess on the GPU, then on the host.

    Layers are split evenly and all recomputed at one granularity, everything that may be
    offloaded is; None without candidates.
    """
    best: Nearest | None = None
    for table in candidates.tables:
        found = _nearest(table)
        if best is None or _key(found) < _key(best):
            best = found
    return best


def _key(found: Nearest) -> tuple[float, float]:
    return max(found.short_by, 0.0) + max(found.host_short_by, 0.0), found.short_by


def _nearest(table: Tables) -> Nearest:
    b = table.batch
    layers = even_layers(b.layers, b.stages)
    offloaded = np.minimum(layers[None, :], b.max_offloaded[:, None])
    base = (
        b.memory_const
        + b.memory_layer * layers[None, :, None]
        + b.memory_offloaded * offloaded[:, :, None]
    )
    host = b.host_const + b.host_layer * layers + b.host_offloaded * offloaded
    host_excess = node_sums(host, b.host_stages_per_node) * b.host_ranks - b.host_capacity
    excess = np.stack([_excess(table, base, layers, g) for g in range(len(b.granularities))])
    excess = np.where(b.granularity_allowed.T, excess, np.iinfo(np.int64).max // 4)
    g, i = np.unravel_index(
        np.argmin(np.maximum(excess, 0) + np.maximum(host_excess, 0)[None, :]), excess.shape
    )
    chosen = tuple(
        tuple(int(n) if j == g else 0 for j in range(len(b.granularities))) for n in layers
    )
    return Nearest(
        table,
        int(i),
        Decision(tuple(map(int, layers)), chosen, tuple(map(int, offloaded[i]))),
        float(excess[g, i]) * KIB,
        float(host_excess[i]) * KIB,
    )


def _excess(table: Tables, base: Ints, layers: Ints, g: int) -> Ints:
    """Excess of every shape with all layers at one granularity. [KiB]"""
    b = table.batch
    used = (
        base
        + b.memory_granularity[:, :, :, g] * layers[None, :, None]
        + b.memory_working[:, :, :, g]
    )
    return np.asarray((used.max(axis=2) - b.capacity).max(axis=1))
