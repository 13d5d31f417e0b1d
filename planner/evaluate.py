"""Predict one fully decided plan, in floating point and without the solver.

``solve`` uses it to fill its answer and to check the program's integers; ``estimate`` and
``advise`` use it for configurations that people bring.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from costmodels.configuration import OFFLOAD_TIERS, Configuration
from costmodels.costs import GRANULARITIES, MEMORY_CLASSES, MemoryCosts
from costmodels.flops import flops_utilisation, model_flops_per_step
from costmodels.memory import memory_costs
from costmodels.numeric import Array
from costmodels.peak import Peak, peak
from costmodels.step import StepTime, step_time
from costmodels.time import time_costs
from planner.axes import INTEGER_AXES, SWITCH_AXES, TIER_AXES
from planner.job import Job
from planner.plan import HostLine, Interval, Plan, Predicted, Stage, Verdict
from planner.space import Shapes
from planner.tables import HOST_USABLE, node_share, node_sums


@dataclass(frozen=True, slots=True)
class Choice:
    """A shape and what is decided in its stages: ``granularity[i]`` maps names to layers."""

    shapes: Shapes  # exactly one
    layers: tuple[int, ...]
    granularity: tuple[dict[str, int], ...]
    offloaded: tuple[int, ...]

    @property
    def pp(self) -> int:
        """Pipeline stages."""
        return len(self.layers)

    def counts(self) -> dict[str, Array]:
        """Layers of each stage by granularity, arrays (pp,)."""
        used = {g for stage in self.granularity for g in stage}
        return {
            g: np.array([stage.get(g, 0) for stage in self.granularity], dtype=float)
            for g in GRANULARITIES
            if g in used
        }


def configuration_of(job: Job, shapes: Shapes) -> Configuration:
    """One shape as a configuration of scalars."""
    wide = shapes.configuration(job)
    scalars: dict[str, Any] = {
        name: float(np.asarray(getattr(wide, name)).reshape(-1)[0])
        for name in (*INTEGER_AXES, *SWITCH_AXES, *TIER_AXES)
        if name != "pp"
    }
    return replace(wide, **scalars)


def evaluate(job: Job, choice: Choice) -> tuple[Plan, Predicted]:
    """The plan of a choice, and what it is predicted to cost.

    Time is None where the step of the network cannot be timed (mixture of experts).
    """
    configuration = configuration_of(job, choice.shapes)
    layers = np.array(choice.layers, dtype=float)
    offloaded = np.array(choice.offloaded, dtype=float)
    counts = choice.counts()
    memory = memory_costs(configuration)
    top = peak(memory, layers, counts, offloaded)
    step = None
    if job.architecture.moe is None:
        step = step_time(time_costs(configuration), configuration, layers, counts, offloaded)
    plan = _plan(job, choice, top, step)
    return plan, _predicted(job, configuration, choice, memory, top, step)


def _plan(job: Job, choice: Choice, top: Peak, step: StepTime | None) -> Plan:
    shapes = choice.shapes
    device = np.broadcast_to(top.device, (choice.pp,))
    times = np.zeros(choice.pp) if step is None else np.broadcast_to(step.stages, (choice.pp,))
    first, stages = 0, []
    for i, count in enumerate(choice.layers):
        stages.append(
            Stage(
                stage=i,
                first_layer=first,
                layers=count,
                recompute=choice.granularity[i],
                offloaded_layers=choice.offloaded[i],
                embedding=i == 0,
                head=i == choice.pp - 1,
                time_s=float(times[i]),
                peak_memory_bytes=round(float(device[i])),
            )
        )
        first += count
    used = sorted({g for stage in choice.granularity for g in stage}, key=GRANULARITIES.index)
    return Plan(
        stack=shapes.stack.name,
        gpus=int(shapes.gpus[0]),
        **{axis: int(getattr(shapes, axis)[0]) for axis in INTEGER_AXES},
        precision=shapes.precision,
        attention=shapes.attention,
        recompute=used[0] if len(used) == 1 else "mixed",
        sequence_parallel=bool(shapes.sequence_parallel[0]),
        offload_optimizer=OFFLOAD_TIERS[int(shapes.offload_optimizer[0])],
        offload_parameters=OFFLOAD_TIERS[int(shapes.offload_parameters[0])],
        stages=tuple(stages),
    )


def verdict(low: float, high: float, limit: float) -> Verdict:
    """Where an interval lies against a limit.

    >>> verdict(1.0, 2.0, 1.5)
    'tight'
    """
    if high <= limit:
        return "fits"
    return "tight" if low <= limit else "does not fit"


def _predicted(
    job: Job,
    configuration: Configuration,
    choice: Choice,
    memory: MemoryCosts,
    top: Peak,
    step: StepTime | None,
) -> Predicted:
    pp = choice.pp
    device = np.broadcast_to(top.device, (pp,))
    worst = int(np.argmax(device))
    profile = configuration.stack.memory
    value, limit = float(device[worst]), job.cluster.memory_limit
    # The fixed part (context, communicators) is known no better than the rest: all of it scales.
    low, high = value * (1 - profile.interval_low), value * (1 + profile.interval_high)
    classes = {c: float(np.broadcast_to(top.classes[c], (pp,))[worst]) for c in MEMORY_CLASSES}
    classes["framework"] += value - sum(classes.values())
    phases = {
        name: round(float(np.max(total)) * memory.allocator_factor + float(np.max(memory.fixed)))
        for name, total in top.phases.items()
    }
    at_peak = {name: float(np.broadcast_to(t, (pp,))[worst]) for name, t in top.phases.items()}
    host = _host(job, choice, memory)
    total = None if step is None else float(step.total)
    flops = model_flops_per_step(job.architecture, job.seq_len, job.global_batch)
    gpus = int(choice.shapes.gpus[0])
    rate = None if total is None else float(flops) / total / gpus
    peak_flops = job.cluster.node.gpu.flops.get(choice.shapes.precision)
    time_profile = configuration.stack.time
    return Predicted(
        step_time_s=total,
        step_time_interval_s=None
        if total is None
        else Interval(
            low=total * (1 - time_profile.interval_low),
            high=total * (1 + time_profile.interval_high),
        ),
        tokens_per_s_per_gpu=None
        if total is None
        else job.global_batch * job.seq_len / total / gpus,
        model_tflops_per_gpu=None if rate is None else rate / 1e12,
        mfu=None
        if total is None or not peak_flops
        else float(flops_utilisation(flops, total, gpus, peak_flops)),
        peak_memory_bytes=round(value),
        peak_memory_interval_bytes=Interval(low=low, high=high),
        memory_limit_bytes=int(limit),
        memory_kind="device",
        peak_allocated_bytes=round(float(np.broadcast_to(top.allocated, (pp,))[worst])),
        peak_reserved_bytes=round(float(np.broadcast_to(top.reserved, (pp,))[worst])),
        verdict=verdict(low, high, limit),
        memory=_whole(classes, round(value)),
        peak_phase=max(at_peak, key=lambda name: at_peak[name]),
        peak_stage=worst,
        phases=phases,
        host_memory_bytes=next(line.bytes for line in host if line.what == "training"),
        host=host,
        nvme_bytes=round(_nvme(job, choice, memory)),
        time={} if step is None else {k: float(np.max(v)) for k, v in step.parts.items()},
    )


def _whole(classes: dict[str, float], total: int) -> dict[str, int]:
    """Classes as whole bytes that sum to the total."""
    out = {name: round(value) for name, value in classes.items()}
    out["framework"] += total - sum(out.values())
    return out


def per_node(job: Job, choice: Choice, per_rank: Array) -> float:
    """The largest sum over the ranks of one node of something counted per rank and stage."""
    stages, ranks = node_share(job, choice.shapes)
    values = np.broadcast_to(np.asarray(per_rank, dtype=float), (1, choice.pp))
    return float(node_sums(values, stages)[0] * ranks[0])


def _host(job: Job, choice: Choice, memory: MemoryCosts) -> tuple[HostLine, ...]:
    layers = np.array(choice.layers, dtype=float)
    offloaded = np.array(choice.offloaded, dtype=float)
    limit = int(job.cluster.node.host_memory * HOST_USABLE)
    lines = []
    for what in ("loading", "training", "saving"):
        used = round(per_node(job, choice, memory.host[what].at(layers, offloaded)))
        lines.append(
            HostLine.model_validate(
                {"what": what, "bytes": used, "limit_bytes": limit, "fits": used <= limit}
            )
        )
    return tuple(lines)


def _nvme(job: Job, choice: Choice, memory: MemoryCosts) -> float:
    layers = np.array(choice.layers, dtype=float)
    return per_node(job, choice, memory.nvme.at(layers, np.array(choice.offloaded)))
