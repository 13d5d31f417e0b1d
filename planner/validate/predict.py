"""Predict many runs at once: those that share a shape become one array."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Literal

import numpy as np

from costmodels.configuration import Configuration
from costmodels.costs import SEGMENT
from costmodels.memory import memory_costs
from costmodels.numeric import Array
from costmodels.peak import peak
from costmodels.stack import Stack, load_stack
from costmodels.step import step_time
from costmodels.time import time_costs
from planner.validate.columns import MEMORY_KINDS
from planner.validate.consistency import TOO_LITTLE, own_states, prints_too_little
from planner.validate.kinds import changed
from planner.validate.run import Changes, Run
from planner.validate.shipped import interval_of

AXES = (
    "dp",
    "tp",
    "cp",
    "ep",
    "etp",
    "micro_batch",
    "grad_accum",
    "virtual_stages",
    "zero_stage",
    "sequence_parallel",
    "offload_optimizer",
    "offload_parameters",
)

Fields = Mapping[str, Any]


@dataclass(slots=True)
class Predictions:
    """Of every run, arrays (n,); NaN where the models do not cover it, with the reason.

    ``memory``: of the kind the run measured, of the rank it reports. ``device``: what must fit,
    of the worst stage. [s, byte, byte]
    """

    time: Array
    memory: Array
    device: Array
    time_interval: Array  # (n, 2), relative: below, above
    memory_interval: Array
    limit: Array  # bytes a GPU has
    time_problem: list[str]
    memory_problem: list[str]

    def of(self, chosen: Array) -> Predictions:
        """Those of some runs, by their places."""
        arrays = {
            field.name: getattr(self, field.name)[chosen]
            for field in fields(self)
            if not field.name.endswith("problem")
        }
        return Predictions(
            **arrays,
            time_problem=[self.time_problem[int(i)] for i in chosen],
            memory_problem=[self.memory_problem[int(i)] for i in chosen],
        )


@cache
def stack_of(name: str, changes: Changes) -> Stack:
    """The stack with what a row says about it."""
    sections: dict[str, dict[str, Any]] = {"time": {}, "memory": {}}
    for section, field, value in changes:
        sections[section][field] = json.loads(value)
    return changed(load_stack(name), sections["time"], sections["memory"])


def with_times(stack: Stack, fields: Fields) -> Stack:
    """The stack with fitted constants of its time profile replaced."""
    if not fields:
        return stack
    return stack.model_copy(update={"time": stack.time.model_copy(update=dict(fields))})


def batches(runs: Sequence[Run]) -> list[list[int]]:
    """Indices of runs that can be predicted as one array."""
    found: dict[tuple[object, ...], list[int]] = {}
    for i, run in enumerate(runs):
        found.setdefault(run.key, []).append(i)
    return list(found.values())


def configuration(runs: Sequence[Run], stack: Stack) -> Configuration:
    """Runs with one key as a configuration of arrays (n, 1)."""
    one = runs[0]
    arrays: dict[str, Any] = {
        name: np.array([[float(getattr(run, name))] for run in runs]) for name in AXES
    }
    return Configuration(
        architecture=one.architecture,
        cluster=one.cluster,
        stack=stack,
        precision=one.precision,
        attention=one.attention,
        optimizer=one.optimizer,
        seq_len=one.seq_len,
        cross_entropy=one.cross_entropy,
        dropout=one.dropout,
        pp=one.pp,
        **arrays,
    )


def granularity(run: Run) -> dict[str, Array]:
    """Layers of each stage at the run's checkpoint granularity; the rest keeps everything."""
    layers = np.array(run.layers)
    if run.mix:
        return {name: layers * count / run.architecture.layers for name, count in run.mix}
    if run.row.text("act_ckpt").startswith("every_n:"):
        done = layers // SEGMENT[run.recompute]
        return {"full": done, "none": layers - done}
    return {run.recompute: layers}


def moved(run: Run) -> Array:
    """Layers of each stage whose optimizer state is offloaded: all or none."""
    return np.array(run.layers) * (run.offload_optimizer > 0)


def predict_time(runs: Sequence[Run], fields: Fields | None = None) -> tuple[Array, list[str]]:
    """Step time of every run, and why there is none. [s]

    Parameters
    ----------
    runs : Sequence[Run]
        Any runs.
    fields : Mapping, optional
        Constants of the time profile to use instead of the stack's.
    """
    result, problems = np.full(len(runs), np.nan), [run.time_skip for run in runs]
    for batch in batches(runs):
        index = [i for i in batch if not problems[i]]
        if not index:
            continue
        some = [runs[i] for i in index]
        stack = with_times(stack_of(some[0].stack, some[0].changes), fields or {})
        cfg = configuration(some, stack)
        try:
            step = step_time(
                time_costs(cfg), cfg, np.array(some[0].layers), granularity(some[0]), moved(some[0])
            )
        except ValueError as error:
            for i in index:
                problems[i] = f"not modelled: {error}"
            continue
        result[index] = np.broadcast_to(step.total, len(index))
    return result, problems


def predict_memory(
    runs: Sequence[Run], fields: Fields | None = None
) -> tuple[Array, Array, list[str]]:
    """Peak of every run, of its own kind and rank; what must fit; why there is none. [byte]

    A run whose kind has a switch that saves memory is predicted with it where it would not fit
    without: whoever ran it turned it on.
    """
    value, device, problems = _memory(runs, fields or {}, rescue=False)
    limit = np.array([run.cluster.memory_limit for run in runs])
    rescued = np.array([bool(run.kind.rescue) for run in runs], dtype=bool)
    tight = np.flatnonzero((device > limit) & rescued)
    if len(tight):
        value[tight], device[tight], _ = _memory([runs[int(i)] for i in tight], fields or {}, True)
    return value, device, problems


def _memory(runs: Sequence[Run], fields: Fields, rescue: bool) -> tuple[Array, Array, list[str]]:
    value, device = np.full(len(runs), np.nan), np.full(len(runs), np.nan)
    problems = [run.memory_skip for run in runs]
    for batch in batches(runs):
        index = [i for i in batch if not problems[i]]
        if not index:
            continue
        some = [runs[i] for i in index]
        saving = some[0].kind.rescue if rescue else {}
        stack = stack_of(some[0].stack, some[0].changes)
        cfg = configuration(some, changed(stack, {}, {**saving, **fields}))
        try:
            layers, costs = np.array(some[0].layers), memory_costs(cfg)
            top = peak(costs, layers, granularity(some[0]), moved(some[0]))
            states = own_states(costs, layers, moved(some[0]))
        except ValueError as error:
            for i in index:
                problems[i] = f"not modelled: {error}"
            continue
        shape = (len(index), some[0].pp)
        room = np.maximum(some[0].cluster.memory_limit - costs.fixed, top.reserved)
        pool = np.minimum(top.pool, room)
        kinds = [np.broadcast_to(x, shape) for x in (top.allocated, pool, pool + costs.fixed)]
        needed = np.broadcast_to(top.device, shape)
        least = np.broadcast_to(states, shape)
        for place, (i, run) in enumerate(zip(index, some, strict=True)):
            own = kinds[MEMORY_KINDS.index(run.memory_kind)][place]
            value[i] = _reported(run, own)
            device[i] = needed[place].max()
            if prints_too_little(run, float(_reported(run, least[place]))):
                value[i], problems[i] = np.nan, TOO_LITTLE
    return value, device, problems


def _reported(run: Run, stages: Array) -> float:
    """Of one figure a stage, that of the rank a row reports."""
    if run.stage is not None:
        return float(stages[run.stage])
    return float(stages[0] if run.report == "first" else stages.max())


def predict(runs: Sequence[Run]) -> Predictions:
    """Time and memory of every run with the constants of its stack."""
    time, time_problem = predict_time(runs)
    memory, device, memory_problem = predict_memory(runs)
    stacks = [stack_of(run.stack, run.changes) for run in runs]
    return Predictions(
        time=time,
        memory=memory,
        device=device,
        time_interval=_intervals(runs, stacks, "time"),
        memory_interval=_intervals(runs, stacks, "memory"),
        limit=np.array([run.cluster.memory_limit for run in runs]),
        time_problem=time_problem,
        memory_problem=memory_problem,
    )


def _intervals(
    runs: Sequence[Run], stacks: Sequence[Stack], quantity: Literal["time", "memory"]
) -> Array:
    pairs = [interval_of(run, s, quantity) for run, s in zip(runs, stacks, strict=True)]
    return np.array(pairs, dtype=float).reshape(-1, 2)
