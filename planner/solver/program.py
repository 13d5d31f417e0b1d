r"""The integer program of one shape, and exact evaluation of its decisions.

A *shape* fixes every axis that is enumerated; what is left to decide is, for each pipeline stage
i, the layers ``n_i``, how many of them are checkpointed at each granularity ``k_ig`` and how many
keep their optimizer state on the host ``o_i``. Nothing here knows hardware or networks.

.. math::
    t_i    &= \tau^0_i + \tau_i n_i + \sum_g \rho_{ig} k_{ig}                              \\
    e_{ia} &= \epsilon^0_{ia} + \epsilon_{ia} n_i + \omega_{ia} o_i                        \\
    b_{ir} &= \beta^0_{ir} + \beta_{ir} n_i + \sum_g \kappa_{irg} k_{ig} + \sigma_{ir} o_i
              + \max_{g: k_{ig} > 0} u_{irg} \le M_i                                      \\
    h_i    &= \eta^0_i + \eta_i n_i + \theta_i o_i, \qquad
              \text{ranks} \cdot \sum_{i \in \text{node}} h_i \le H                        \\
    \min\; & w_T \max_i t_i + w_S \sum_i t_i + w_E \max_{i,a} e_{ia} + \text{fixed}

Every coefficient and variable is an int64. A batch whose objective could reach 2^62 is refused,
so no sum overflows; with times in nanoseconds that leaves 4.6e9 weighted seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.solver.checks import AXES, check_shapes, check_values
from planner.solver.limits import counts_hold, rules_hold

Ints: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Decision:
    """What a plan decides for each stage.

    ``layers[i]``, ``granularity[i][g]`` and ``offloaded[i]`` are counts of layers of stage i.
    """

    layers: tuple[int, ...]
    granularity: tuple[tuple[int, ...], ...]
    offloaded: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Amount:
    """A weighted count of layers, over all stages: what a pass of the ladder minimises."""

    name: str
    offloaded: int = 0
    granularity: tuple[int, ...] = ()

    def of(self, decision: Decision) -> int:
        """The count in one decision.

        >>> Amount("full", granularity=(0, 2)).of(Decision((3,), ((1, 2),), (0,)))
        4
        """
        counted = sum(
            weight * count
            for stage in decision.granularity
            for weight, count in zip(self.granularity, stage, strict=False)
        )
        return self.offloaded * sum(decision.offloaded) + counted


@dataclass(frozen=True, slots=True)
class ShapeProgram:
    """One shape's tables: p stages, G granularities, A edge rows, R memory rows.

    Times and weights share one unit, memory another; both belong to the caller.
    """

    layers: int
    stages: int
    granularities: tuple[str, ...]
    segments: tuple[int, ...]  # k_ig is a multiple of segments[g]
    chunk: int  # n_i is a multiple of it (virtual stages of a rank)
    time_const: Ints  # (p,)
    time_layer: Ints  # (p,)
    time_granularity: Ints  # (p, G)
    edge_const: Ints  # (p, A)
    edge_layer: Ints  # (p, A)
    edge_offloaded: Ints  # (p, A)
    memory_const: Ints  # (p, R)
    memory_layer: Ints  # (p, R)
    memory_offloaded: Ints  # (p, R)
    memory_granularity: Ints  # (p, R, G)
    memory_working: Ints  # (p, R, G)
    capacity: Ints  # (p,)
    host_const: Ints  # (p,)
    host_layer: Ints  # (p,)
    host_offloaded: Ints  # (p,)
    host_stages_per_node: int
    host_ranks: int
    host_capacity: int
    weight_bottleneck: int
    weight_sum: int
    weight_edge: int
    fixed: int
    granularity_allowed: Mask  # (G,)
    granularity_min: Ints  # (G,) bounds on the sum over stages
    granularity_max: Ints  # (G,)
    max_offloaded: int  # 0, or the number of layers
    min_offloaded: int  # bound on the sum over stages
    layers_rule: str  # free; edges: all stages alike but the first and the last; uniform: as
    # equal as whole chunks allow, the remainder on the first stages
    recompute_rule: str  # free; same: one count of one granularity, alike on every stage, the
    # rest at none; all: one granularity for all layers; block: all, or same at full
    offload_rule: str  # free; all: every layer or none

    @property
    def even_layers(self) -> Ints:
        """Layers of each stage under the uniform rule, (p,)."""
        share, rest = divmod(self.layers // self.chunk, self.stages)
        return self.chunk * (share + (np.arange(self.stages) < rest))

    @property
    def plain(self) -> int:
        """Index of the granularity that recomputes nothing."""
        return self.granularities.index("none")

    @property
    def countable(self) -> tuple[int, ...]:
        """Granularities a rule lets recompute the same number of layers on every stage."""
        rule, names = self.recompute_rule, self.granularities
        if rule == "same":
            return tuple(g for g in range(len(names)) if g != self.plain)
        return tuple(g for g in range(len(names)) if rule == "block" and names[g] == "full")

    @property
    def nodes(self) -> tuple[tuple[int, ...], ...]:
        """The stages of each group of nodes that share host memory."""
        step = self.host_stages_per_node
        starts = range(0, self.stages, step)
        return tuple(tuple(range(s, min(s + step, self.stages))) for s in starts)


@dataclass(frozen=True, slots=True)
class Batch:
    """The tables of n shapes with the same stages and layers: a leading axis of n.

    ``rank``: (n, K) intrusiveness of what each shape uses, compared lexicographically, smaller is
    less intrusive. ``granularity_min`` and ``granularity_max`` are optional. See ShapeProgram.

    Raises
    ------
    ValueError
        If an array has the wrong shape, a rule is unknown, a weight is negative, or an objective
        could reach 2^62.
    """

    layers: int
    stages: int
    granularities: tuple[str, ...]
    segments: tuple[int, ...]
    chunk: Ints
    time_const: Ints
    time_layer: Ints
    time_granularity: Ints
    edge_const: Ints
    edge_layer: Ints
    edge_offloaded: Ints
    memory_const: Ints
    memory_layer: Ints
    memory_offloaded: Ints
    memory_granularity: Ints
    memory_working: Ints
    capacity: Ints
    host_const: Ints
    host_layer: Ints
    host_offloaded: Ints
    host_stages_per_node: Ints
    host_ranks: Ints
    host_capacity: int
    weight_bottleneck: Ints
    weight_sum: Ints
    weight_edge: Ints
    fixed: Ints
    granularity_allowed: Mask
    max_offloaded: Ints
    rank: Ints
    layers_rule: str = "free"
    recompute_rule: str = "free"
    offload_rule: str = "free"
    granularity_min: Ints | None = None
    granularity_max: Ints | None = None
    min_offloaded: Ints | None = None

    def __post_init__(self) -> None:
        check_shapes(self)
        check_values(self)

    def __len__(self) -> int:
        return len(self.chunk)

    def take(self, index: Ints) -> Batch:
        """The batch of those shapes only."""
        rows = {name: getattr(self, name) for name in _BATCH_ARRAYS}
        return replace(self, **{k: v[index] for k, v in rows.items() if v is not None})

    def program(self, index: int) -> ShapeProgram:
        """The tables of one shape."""
        values: dict[str, Any] = {}
        for name in _PROGRAM_FIELDS:
            value = getattr(self, name)
            if isinstance(value, np.ndarray):
                row = value[index]
                value = row if row.ndim else int(row)
            values[name] = value
        none = np.zeros(len(self.granularities), dtype=np.int64)
        if self.granularity_min is None:
            values["granularity_min"] = none
        if self.granularity_max is None:
            values["granularity_max"] = none + self.layers
        if self.min_offloaded is None:
            values["min_offloaded"] = 0
        return ShapeProgram(**values)


_PROGRAM_FIELDS = tuple(f.name for f in fields(ShapeProgram))
_BATCH_ARRAYS = tuple(AXES)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a decision costs. ``broken`` names the constraints it violates."""

    objective: int
    broken: tuple[str, ...]
    stage_time: tuple[int, ...]  # t_i
    bottleneck: int  # max t_i
    edge: int  # max e_ia, 0 without edge rows
    memory: tuple[tuple[int, ...], ...]  # b_ir
    host: tuple[int, ...]  # bytes of all ranks of each node group

    @property
    def feasible(self) -> bool:
        """Whether no constraint is violated."""
        return not self.broken


def evaluate(program: ShapeProgram, decision: Decision) -> Evaluation:
    """Objective, resources and violated constraints of a decision, in exact integers."""
    n = np.array(decision.layers, dtype=np.int64)
    k = np.array(decision.granularity, dtype=np.int64)
    o = np.array(decision.offloaded, dtype=np.int64)
    time = program.time_const + program.time_layer * n + (program.time_granularity * k).sum(axis=1)
    edges = (
        program.edge_const + program.edge_layer * n[:, None] + program.edge_offloaded * o[:, None]
    )
    used = np.where(k[:, None, :] > 0, program.memory_working, 0)
    memory = (
        program.memory_const
        + program.memory_layer * n[:, None]
        + program.memory_offloaded * o[:, None]
        + (program.memory_granularity * k[:, None, :]).sum(axis=2)
        + used.max(axis=2)
    )
    on_host = program.host_const + program.host_layer * n + program.host_offloaded * o
    host = tuple(program.host_ranks * int(on_host[list(node)].sum()) for node in program.nodes)
    bottleneck = int(time.max())
    edge = int(edges.max()) if edges.size else 0
    objective = (
        program.weight_bottleneck * bottleneck
        + program.weight_sum * int(time.sum())
        + program.weight_edge * edge
        + program.fixed
    )
    holds = {
        **counts_hold(program, n, k, o),
        **rules_hold(program, n, k, o),
        "memory": bool((memory <= program.capacity[:, None]).all()),
        "host": all(size <= program.host_capacity for size in host),
    }
    return Evaluation(
        objective=objective,
        broken=tuple(name for name, holding in holds.items() if not holding),
        stage_time=tuple(time.tolist()),
        bottleneck=bottleneck,
        edge=edge,
        memory=tuple(map(tuple, memory.tolist())),
        host=host,
    )
