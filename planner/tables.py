"""From costs in bytes and seconds to the integer tables of the program: the only rounding.

Times are rounded to the nearest nanosecond; memory goes up to whole KiB and capacities down, so
a plan the program calls feasible is feasible. With v virtual stages the step time has terms
divided by v, so objectives are counted in ns / ``Tables.scale``, an integer for every shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from costmodels.costs import SEGMENT, Affine, MemoryCosts, TimeCosts
from costmodels.memory import memory_costs
from costmodels.numeric import Array, Numeric
from costmodels.step import even_layers
from costmodels.time import time_costs
from planner.job import Job
from planner.ranking import rank
from planner.rules import granularities_allowed
from planner.solver.program import Batch
from planner.space import Shapes

NS = 1e9  # ticks of a second
KIB = 1024.0
HOST_USABLE = 0.9  # of a node's RAM; the rest is the system's and the page cache's (assumed)
MOST_TICKS = 1e15  # 11 days for one micro-batch; sums stay far below 2^62
UNBOUNDED = 1 << 40  # KiB no node has


@dataclass(frozen=True, slots=True)
class Tables:
    """Integer tables of some shapes of one stack, precision, kernel and pp."""

    shapes: Shapes
    batch: Batch
    scale: int

    def seconds(self, objective: int) -> float:
        """An objective as a step time. [s]"""
        return objective / (self.scale * NS)


def objective_scale(virtual_stages: Array) -> int:
    """Smallest integer every number of virtual stages divides."""
    return int(np.lcm.reduce(np.unique(virtual_stages).astype(np.int64), initial=1))


def partial_offload(shapes: Shapes) -> Array:
    """Where the number of layers whose optimizer state is offloaded is a decision."""
    free = shapes.stack.expresses.offloaded_layers == "free"
    return np.asarray(
        free
        & (shapes.offload_optimizer == 1)
        & (shapes.offload_parameters == 0)
        & (shapes.zero_stage == 3)
        & (shapes.pp == 1)
    )


def granularities(shapes: Shapes, time: TimeCosts, memory: MemoryCosts) -> tuple[str, ...]:
    """Checkpoint granularities the stack runs and both cost models know."""
    known = set(time.recompute) & set(memory.phases[0].kept)
    return tuple(g for g in shapes.stack.expresses.recompute if g in known)


def build(job: Job, shapes: Shapes, scale: int, *, limited: bool = True) -> Tables | None:
    """The integer tables of shapes that share stack, precision, kernel and pp.

    Those whose model cannot be loaded, or whose offloaded state the drives cannot hold, are left
    out; None if no shape remains. ``limited=False`` drops what the stack cannot express inside a
    stage.
    """
    configuration = shapes.configuration(job)
    memory = memory_costs(configuration)
    starts = _starts(job, shapes, memory)
    if not starts.any():
        return None
    if not starts.all():
        shapes = shapes.take(starts)
        configuration = shapes.configuration(job)
        memory = memory_costs(configuration)
    time = time_costs(configuration)
    names = granularities(shapes, time, memory)
    n, p = len(shapes), int(shapes.pp[0])
    partial = partial_offload(shapes)
    cells = _Cells(n, p, (shapes.offload_optimizer > 0) & ~partial, partial)
    virtual = shapes.virtual_stages.astype(np.int64)
    share = scale // virtual
    phases = [cells.phase(phase.classes) for phase in memory.phases]
    factor = memory.allocator_factor
    stages, ranks = node_share(job, shapes)
    host = cells.affine(memory.host["training"])
    edges = _edges(time, cells)
    batch = Batch(
        layers=job.architecture.layers,
        stages=p,
        granularities=names,
        segments=tuple(SEGMENT[g] for g in names),
        chunk=np.ones(n, dtype=np.int64),
        time_const=_ns(cells.stage_const(time)),
        time_layer=_ns(cells.full(_total(time.forward) + _total(time.backward))),
        time_granularity=_ns(
            np.stack([cells.full(_total(time.recompute[g])) for g in names], axis=-1)
        ),
        edge_const=_ns(edges[0]),
        edge_layer=_ns(edges[1]),
        edge_offloaded=_ns(edges[2]),
        memory_const=_kib_up(factor * np.stack([x[0] for x in phases], axis=-1)),
        memory_layer=_kib_up(factor * np.stack([x[1] for x in phases], axis=-1)),
        memory_offloaded=_kib_up(factor * np.stack([x[2] for x in phases], axis=-1)),
        memory_granularity=_kib_up(factor * _by_granularity(memory, "kept", names, cells)),
        memory_working=_kib_up(factor * _by_granularity(memory, "working", names, cells)),
        capacity=_kib_down(cells.full(memory_room(job, shapes, memory))),
        host_const=_kib_up(host[0]),
        host_layer=_kib_up(host[1]),
        host_offloaded=_kib_up(host[2]),
        host_stages_per_node=stages,
        host_ranks=ranks,
        host_capacity=host_capacity(job),
        weight_bottleneck=shapes.grad_accum.astype(np.int64) * scale - share,
        weight_sum=share,
        weight_edge=np.full(n, scale, dtype=np.int64),
        fixed=_ns(np.broadcast_to(_total(time.fixed), (n, 1))[:, 0]) * scale,
        granularity_allowed=np.broadcast_to(
            granularities_allowed(job, shapes, names), (n, len(names))
        ),
        max_offloaded=np.where(partial, job.architecture.layers, 0),
        min_offloaded=np.where(partial, 1, 0),
        rank=rank(job, shapes),
        layers_rule=_layers_rule(shapes) if limited else "free",
        recompute_rule=_recompute_rule(shapes) if limited else "free",
        offload_rule="free",
    )
    return Tables(shapes, batch, scale)


def _layers_rule(shapes: Shapes) -> str:
    """How layers may split over stages; interleaved ones stay near-even, every chunk has some."""
    if int(shapes.pp[0]) == 1:
        return "free"
    interleaved = int(shapes.virtual_stages[0]) > 1
    return "uniform" if interleaved else shapes.stack.expresses.layers_per_stage


def _recompute_rule(shapes: Shapes) -> str:
    """What may differ between layers; chunks of a rank recompute alike, so no partial counts."""
    rule = shapes.stack.expresses.recompute_layers
    return "all" if rule == "block" and int(shapes.virtual_stages[0]) > 1 else rule


def _starts(job: Job, shapes: Shapes, memory: MemoryCosts) -> Array:
    """Shapes whose model fits the host RAM of a node while it loads, and its drives, (n,)."""
    n, p = len(shapes), int(shapes.pp[0])
    layers = even_layers(job.architecture.layers, p)
    node = job.cluster.node
    ok = np.ones(n, dtype=bool)
    for cost, limit in (
        (memory.host["loading"], node.host_memory * HOST_USABLE),
        (memory.nvme, node.nvme_capacity),
    ):
        each = np.broadcast_to(cost.at(layers, layers), (n, p))
        stages, ranks = node_share(job, shapes)
        ok &= (node_sums(each, stages) * ranks <= limit) | ~each.any(axis=1)
    return ok


def node_share(job: Job, shapes: Shapes) -> tuple[Array, Array]:
    """Stages that share a node, and ranks of each stage on it, both (n,)."""
    ranks = (shapes.tp * shapes.cp * shapes.dp).astype(np.int64)
    node = job.cluster.gpus_per_node
    return np.maximum(1, node // ranks), np.minimum(node, ranks)


def node_sums(per_stage: Array, stages_per_node: Array) -> Array:
    """Largest sum over the stages that share a node, (n,)."""
    out = np.zeros(len(per_stage), dtype=per_stage.dtype)
    for width in np.unique(stages_per_node):
        rows = stages_per_node == width
        starts = np.arange(0, per_stage.shape[1], int(width))
        out[rows] = np.add.reduceat(per_stage[rows], starts, axis=1).max(axis=1)
    return out


def memory_room(job: Job, shapes: Shapes, memory: MemoryCosts) -> Numeric:
    """Reserved bytes a plan may use on a GPU, at the safe end of the prediction. [byte]"""
    high = 0.0 if job.spec.accept_tight else shapes.stack.memory.interval_high
    return job.cluster.memory_limit / (1 + high) - memory.fixed


def host_capacity(job: Job) -> int:
    """Host RAM of a node that a plan may use. [KiB]"""
    room = job.cluster.node.host_memory * HOST_USABLE / KIB
    return int(min(room, UNBOUNDED))


@dataclass(frozen=True, slots=True)
class _Cells:
    """Broadcasts costs to (n, p), folding offload that is all or nothing into the layers."""

    n: int
    p: int
    whole: Array  # every layer's optimizer state is offloaded
    partial: Array  # the program says how many

    def full(self, value: Numeric) -> Array:
        return np.broadcast_to(np.asarray(value, dtype=float), (self.n, self.p))

    def affine(self, cost: Affine) -> tuple[Array, Array, Array]:
        const, layer = self.full(cost.const), self.full(cost.per_layer)
        off = self.full(cost.per_offloaded)
        folded = np.where(self.whole[:, None], layer + off, layer)
        return const, folded, np.where(self.partial[:, None], off, 0.0)

    def phase(self, classes: object) -> tuple[Array, Array, Array]:
        assert isinstance(classes, Mapping)
        rows = [self.affine(cost) for cost in classes.values()]
        const, layer, off = (np.sum([row[i] for row in rows], axis=0) for i in range(3))
        return const, layer, off

    def stage_const(self, time: TimeCosts) -> Array:
        """What a stage's micro-batch costs whatever its layers: ends and boundaries."""
        first = np.arange(self.p) == 0
        last = np.arange(self.p) == self.p - 1
        hops = 2.0 * np.asarray(time.boundary) if self.p > 1 else 0.0
        return self.full(
            first * np.asarray(_total(time.embedding)) + last * np.asarray(_total(time.head)) + hops
        )


def _total(parts: object) -> Numeric:
    assert isinstance(parts, Mapping)
    return sum((np.asarray(v, dtype=float) for v in parts.values()), start=np.zeros((1, 1)))


def _edges(time: TimeCosts, cells: _Cells) -> tuple[Array, Array, Array]:
    """Edge rows (n, p, A): one for every combination of the parts' alternatives."""
    zero = np.zeros((cells.n, cells.p))
    combined = [(zero, zero, zero)]
    for alternatives in time.edge.values():
        rows = [cells.affine(cost) for cost in alternatives]
        combined = [(a[0] + b[0], a[1] + b[1], a[2] + b[2]) for a in combined for b in rows]
    const, layer, off = (np.stack([row[i] for row in combined], axis=-1) for i in range(3))
    return const, layer, off


def _by_granularity(memory: MemoryCosts, what: str, names: Sequence[str], cells: _Cells) -> Array:
    """Kept or working bytes, shape (n, p, phases, granularities)."""
    return np.stack(
        [
            np.stack([cells.full(getattr(phase, what).get(g, 0.0)) for g in names], axis=-1)
            for phase in memory.phases
        ],
        axis=-2,
    )


def _ns(seconds: Array) -> Array:
    ticks = np.asarray(seconds) * NS
    if ticks.size and float(np.max(ticks)) > MOST_TICKS:
        raise ValueError(
            "a step would take weeks: too slow to plan; check seq_len, global_batch and bandwidths"
        )
    return np.rint(ticks).astype(np.int64)


def _kib_up(amount: Array) -> Array:
    return np.ceil(np.asarray(amount) / KIB).astype(np.int64)


def _kib_down(amount: Array) -> Array:
    return np.floor(np.asarray(amount) / KIB).astype(np.int64)
