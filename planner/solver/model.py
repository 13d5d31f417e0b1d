r"""The program of one shape in CP-SAT, in the order of its mathematics.

Variables    u_i layers / chunk, s_ig layers at g / segment, o_i, z_ig (is g used on stage i),
             T bottleneck, E edge
Constraints  (1) layers:   sum_i n_i = L, n_i = chunk u_i, sum_g k_ig = n_i, o_i <= n_i
             (2) users:    allowed granularities, bounds on sum_i k_ig
             (3) rules:    what the stack can express
             (4) time:     T >= t_i, E >= e_ia
             (5) memory:   row_ir + working_irg z_ig <= capacity_i for every g
             (6) host:     ranks sum_{i in node} h_i <= host capacity
             (7) ladder:   objective <= at_most, amounts <= their limits
Objective    min w_T T + w_S sum t_i + w_E E, or an amount
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from planner.solver.program import Amount, Decision, ShapeProgram, evaluate

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

Linear: TypeAlias = Any  # a variable or an affine expression of ortools, which has no stubs


@dataclass(slots=True)
class Variables:
    """Variables and expressions of one program."""

    units: list[Linear]
    parts: list[list[Linear]]
    used: list[list[Linear]]
    off: list[Linear]
    layers: list[Linear]
    counts: list[list[Linear]]
    bottleneck: Linear
    edge: Linear
    objective: Linear


def build(model: cp_model.CpModel, program: ShapeProgram) -> Variables:
    stages, kinds = range(program.stages), range(len(program.granularities))
    most = program.layers - (program.stages - 1) * program.chunk
    layers_max = np.full(program.stages, max(most, 0))
    # Variables
    units = [model.new_int_var(1, max(most // program.chunk, 1), f"u{i}") for i in stages]
    parts, used = [], []
    for i in stages:
        sizes = [most // c if program.granularity_allowed[g] else 0 for g, c in _kinds(program)]
        parts.append([model.new_int_var(0, max(sizes[g], 0), f"s{i},{g}") for g in kinds])
        used.append([model.new_bool_var(f"z{i},{g}") for g in kinds])
    off_max = min(most, program.max_offloaded)
    off = [model.new_int_var(0, max(off_max, 0), f"o{i}") for i in stages]
    layers = [program.chunk * u for u in units]
    counts = [[c * parts[i][g] for g, c in _kinds(program)] for i in stages]
    # (1) layers
    model.add(sum(layers) == program.layers)
    for i in stages:
        model.add(sum(counts[i]) == layers[i])
        if program.max_offloaded:
            model.add(off[i] <= layers[i])
        for g in kinds:
            model.add(counts[i][g] <= int(layers_max[i]) * used[i][g])
    # (2) users
    for g in kinds:
        total = sum(counts[i][g] for i in stages)
        if program.granularity_min[g] > 0:
            model.add(total >= int(program.granularity_min[g]))
        if program.granularity_max[g] < program.layers:
            model.add(total <= int(program.granularity_max[g]))
    # (3) rules
    _rules(model, program, layers, counts, off)
    # (4) time
    bottleneck, edge, objective = _times(model, program, layers, counts, off)
    variables = Variables(units, parts, used, off, layers, counts, bottleneck, edge, objective)
    _memory(model, program, variables)  # (5)
    _host(model, program, variables)  # (6)
    return variables


def _kinds(program: ShapeProgram) -> list[tuple[int, int]]:
    return list(enumerate(program.segments))


def _rules(
    model: cp_model.CpModel,
    program: ShapeProgram,
    layers: list[Linear],
    counts: list[list[Linear]],
    off: list[Linear],
) -> None:
    stages = range(program.stages)
    if program.layers_rule == "uniform":
        for i, count in enumerate(program.even_layers.tolist()):
            model.add(layers[i] == count)
    if program.layers_rule == "edges":
        for i, j in itertools.pairwise(stages[1:-1]):
            model.add(layers[i] == layers[j])
    if program.min_offloaded:
        model.add(sum(off) >= program.min_offloaded)
    if program.recompute_rule != "free":
        _recompute_rule(model, program, counts)
    if program.offload_rule == "all" and program.max_offloaded:
        everything = model.new_bool_var("offload")
        for i in stages:
            model.add(off[i] <= program.layers * everything)
            model.add(off[i] >= layers[i] - program.layers * (1 - everything))


def _recompute_rule(
    model: cp_model.CpModel, program: ShapeProgram, counts: list[list[Linear]]
) -> None:
    """One choice holds: all layers at g, or the same count of them at g on every stage."""
    kinds = range(len(program.granularities))
    whole = {g: model.new_bool_var(f"all{g}") for g in kinds}
    if program.recompute_rule == "same":
        whole = {program.plain: whole[program.plain]}
    alike = {g: model.new_bool_var(f"same{g}") for g in program.countable}
    model.add_exactly_one([*whole.values(), *alike.values()])
    for g in kinds:
        choices = [c[g] for c in (whole, alike) if g in c]
        if g == program.plain:
            choices += alike.values()
        for stage in counts:
            model.add(stage[g] <= program.layers * sum(choices))
            if g in alike:
                model.add(stage[g] == counts[0][g]).only_enforce_if(alike[g])


def _times(
    model: cp_model.CpModel,
    program: ShapeProgram,
    layers: list[Linear],
    counts: list[list[Linear]],
    off: list[Linear],
) -> tuple[Linear, Linear, Linear]:
    times = [
        int(program.time_const[i])
        + int(program.time_layer[i]) * layers[i]
        + _dot(program.time_granularity[i], counts[i])
        for i in range(program.stages)
    ]
    low, high = _time_range(program)
    bottleneck = model.new_int_var(low, high, "T")
    for stage in times:
        model.add(bottleneck >= stage)
    low, high = _edge_range(program)
    edge = model.new_int_var(low, high, "E")
    for i, row in np.ndindex(program.edge_const.shape):
        model.add(
            edge
            >= int(program.edge_const[i, row])
            + int(program.edge_layer[i, row]) * layers[i]
            + int(program.edge_offloaded[i, row]) * off[i]
        )
    objective = (
        program.weight_bottleneck * bottleneck
        + program.weight_sum * sum(times)
        + program.weight_edge * edge
    )
    return bottleneck, edge, objective


def _dot(coefficients: Iterable[int], terms: Sequence[Linear]) -> Linear:
    return sum(int(c) * term for c, term in zip(coefficients, terms, strict=True) if c)


def _time_range(program: ShapeProgram) -> tuple[int, int]:
    per_layer = program.time_layer[:, None] + program.time_granularity
    ends = np.stack([per_layer, per_layer * program.layers]) + program.time_const[:, None]
    return int(ends.min()), int(ends.max())


def _edge_range(program: ShapeProgram) -> tuple[int, int]:
    if not program.edge_const.size:
        return 0, 0
    spread = program.layers * (np.abs(program.edge_layer) + np.abs(program.edge_offloaded))
    return int((program.edge_const - spread).min()), int((program.edge_const + spread).max())


def _memory(model: cp_model.CpModel, program: ShapeProgram, v: Variables) -> None:
    for i, row in np.ndindex(program.memory_const.shape):
        size = (
            int(program.memory_const[i, row])
            + int(program.memory_layer[i, row]) * v.layers[i]
            + int(program.memory_offloaded[i, row]) * v.off[i]
            + _dot(program.memory_granularity[i, row], v.counts[i])
        )
        capacity = int(program.capacity[i])
        working = program.memory_working[i, row]
        if not working.all():  # a granularity without a working set adds no stronger row
            model.add(size <= capacity)
        for g in np.flatnonzero(working):
            model.add(size + int(working[g]) * v.used[i][g] <= capacity)


def _host(model: cp_model.CpModel, program: ShapeProgram, v: Variables) -> None:
    for node in program.nodes:
        size = sum(
            int(program.host_const[i])
            + int(program.host_layer[i]) * v.layers[i]
            + int(program.host_offloaded[i]) * v.off[i]
            for i in node
        )
        model.add(program.host_ranks * size <= program.host_capacity)


def amount_of(v: Variables, amount: Amount) -> Linear:
    weights = amount.granularity
    counted = sum(_dot(weights, stage[: len(weights)]) for stage in v.counts)
    return amount.offloaded * sum(v.off) + counted


def add_limits(
    model: cp_model.CpModel,
    program: ShapeProgram,
    v: Variables,
    at_most: int | None,
    at_least: int | None,
    limits: Sequence[tuple[Amount, int]],
) -> None:
    if at_most is not None:
        model.add(v.objective <= at_most - program.fixed)
    if at_least is not None:
        model.add(v.objective >= at_least - program.fixed)
    for amount, limit in limits:
        model.add(amount_of(v, amount) <= limit)


def add_hint(model: cp_model.CpModel, program: ShapeProgram, v: Variables, hint: Decision) -> None:
    for i in range(program.stages):
        model.add_hint(v.units[i], hint.layers[i] // program.chunk)
        model.add_hint(v.off[i], hint.offloaded[i])
        for g, segment in _kinds(program):
            count = hint.granularity[i][g]
            model.add_hint(v.parts[i][g], count // segment)
            model.add_hint(v.used[i][g], count > 0)
    costs = evaluate(program, hint)
    model.add_hint(v.bottleneck, costs.bottleneck)
    model.add_hint(v.edge, costs.edge)
