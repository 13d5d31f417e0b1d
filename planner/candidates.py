"""The candidates of a job: every shape, pruned by the rules, as integer tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from costmodels.numeric import Array
from planner.job import Job
from planner.rules import prune
from planner.solver.program import Batch
from planner.space import Shapes, enumerate_shapes
from planner.tables import Tables, build, objective_scale

ACROSS = "tp across nodes, tried when nothing else fits"
UNSTARTABLE = "host RAM while loading, or drive capacity"
CELLS = 60_000  # shapes x stages of one batch: keeps a batch's arrays near 50 MB


@dataclass(frozen=True, slots=True)
class Candidates:
    """What is left to decide among, and what was removed on the way.

    ``rules``: candidates by the first rule, or user's constraint, that removed them.
    """

    tables: tuple[Tables, ...]
    enumerated: int
    rules: dict[str, int]

    @property
    def batches(self) -> tuple[Batch, ...]:
        """The integer tables, for the search."""
        return tuple(t.batch for t in self.tables)

    @property
    def pruned_by_rule(self) -> int:
        """Candidates no rule left."""
        return sum(self.rules.values())

    def where(self, keep: Callable[[Shapes], Array]) -> Candidates:
        """Only the shapes a mask accepts."""
        tables = []
        for table in self.tables:
            mask = np.asarray(keep(table.shapes), dtype=bool)
            if mask.all():
                tables.append(table)
            elif mask.any():
                tables.append(take(table, mask))
        return replace(self, tables=tuple(tables))

    def even(self) -> Candidates:
        """The same shapes with all stages alike: equal layers, one granularity for all."""
        tables = [
            Tables(t.shapes, replace(t.batch, layers_rule="uniform", recompute_rule="all"), t.scale)
            for t in self.tables
        ]
        return replace(self, tables=tuple(tables))

    def recomputing(self, allowed: tuple[str, ...]) -> Candidates:
        """The same shapes with only these checkpoint granularities."""
        tables = []
        for table in self.tables:
            names = np.asarray(table.batch.granularities)
            mask = table.batch.granularity_allowed & np.isin(names, allowed)
            tables.append(
                Tables(table.shapes, replace(table.batch, granularity_allowed=mask), table.scale)
            )
        return replace(self, tables=tuple(tables))


def take(table: Tables, mask: Array) -> Tables:
    """The shapes of a table at a mask."""
    return Tables(table.shapes.take(mask), table.batch.take(np.flatnonzero(mask)), table.scale)


def candidates(
    job: Job,
    *,
    limited: bool = True,
    waived: tuple[str, ...] = (),
    across_nodes: bool = False,
) -> Candidates:
    """All candidates of a job.

    Parameters
    ----------
    job : Job
        The job.
    limited : bool
        Whether stages keep to what the stack can express.
    waived : tuple[str, ...]
        Names of rules to leave out.
    across_nodes : bool
        Whether tensor parallelism may cross nodes where the user does not ask for a degree: it
        is tried only when nothing else fits.
    """
    demand = job.spec.constraint("tp")
    inside = not (across_nodes or demand.allowed is not None or demand.low is not None)
    kept: list[Shapes] = []
    enumerated = 0
    removed: dict[str, int] = {}
    for shapes in enumerate_shapes(job):
        left, counts = prune(job, shapes, waived)
        enumerated += len(shapes)
        for name, count in counts.items():
            removed[name] = removed.get(name, 0) + count
        if inside:
            far = left.tp > job.cluster.gpus_per_node
            if far.any():
                removed[ACROSS] = removed.get(ACROSS, 0) + int(np.count_nonzero(far))
                left = left.take(~far)
        kept += _groups(left)
    scale = objective_scale(np.concatenate([s.virtual_stages for s in kept])) if kept else 1
    built = [build(job, shapes, scale, limited=limited) for shapes in kept]
    tables = tuple(table for table in built if table is not None)
    unstartable = sum(map(len, kept)) - sum(len(table.shapes) for table in tables)
    if unstartable:
        removed[UNSTARTABLE] = unstartable
    return Candidates(tables, enumerated, removed)


def _groups(shapes: Shapes) -> list[Shapes]:
    """Shapes that share pp, and whether they interleave, in batches of bounded size."""
    groups = []
    for pp in np.unique(shapes.pp):
        for interleaved in (False, True):
            part = shapes.take((shapes.pp == pp) & ((shapes.virtual_stages > 1) == interleaved))
            groups += _split(part, int(pp)) if len(part) else []
    return groups


def _split(shapes: Shapes, pp: int) -> list[Shapes]:
    size = max(1, CELLS // pp)
    return [
        shapes.take(np.arange(start, min(start + size, len(shapes))))
        for start in range(0, len(shapes), size)
    ]
